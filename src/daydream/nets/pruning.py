"""Blocks that lose channels: gates on a block's inner channels while it trains, then the closed channels taken out.

Only what lies between a block's two convolutions is gated. Its sum with the shortcut keeps its width, so blocks need
not agree, and every weight of a block but its shortcut's goes with its inner channels.

Shapes: m inner channels of a block.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from daydream.nets.resnet import Block, batch_norm, conv

Layer = tuple[int, Tensor, Tensor]
"""A convolution as its cost sees it: the size of its kernel, masks of its input and of its output channels."""


class Compensated(torch.autograd.Function):
    """m = sigmoid(s e), with the gradient on e that a sharpness of 1 would give.

    DER, section 3.3, multiplies the gradient by sigmoid'(e) / (s sigmoid'(s e)), or else few gates would move. What is
    left of the product is dL/dm sigmoid'(e), which has no quotient to underflow.
    """

    @staticmethod
    def forward(ctx: Any, gate: Tensor, sharpness: Tensor) -> Tensor:
        ctx.save_for_backward(gate)
        return (sharpness * gate).sigmoid()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gate,) = ctx.saved_tensors
        opening = gate.sigmoid()
        return gradients[0] * opening * (1 - opening), None


class SlimBlock(nn.Module):
    """A residual block with a gate on each inner channel, or with only so many of them.

    It is no `Block`, so that no kernel made for those takes it for one. Outside of a training, gates are open or shut.
    """

    def __init__(self, block: Block, inner: int, gated: bool) -> None:
        super().__init__()
        self.rectify, self.shortcut, self.norm2 = block.rectify, block.shortcut, block.norm2
        width_in, width_out, stride = block.conv1.in_channels, block.conv2.out_channels, block.conv1.stride[0]
        self.inner, self.width_out, self.stride = inner, width_out, stride
        whole = inner == block.conv1.out_channels
        if inner:
            self.conv1 = block.conv1 if whole else conv(width_in, inner, stride=stride)
            self.norm1 = block.norm1 if whole else batch_norm(inner)
            self.conv2 = block.conv2 if whole else conv(inner, width_out)
        self.gate = nn.Parameter(2 * torch.rand(inner)) if gated else None
        self.mask: Tensor | None = None
        """What multiplies the inner channels in a pass of training."""

    def open(self) -> Tensor:
        """Return a mask of the channels whose gates are open [m]."""
        assert self.gate is not None
        return (self.gate.detach() > 0).float()

    def forward(self, x: Tensor) -> Tensor:
        if self.rectify:
            x = F.relu(x)
        side = [(length - 1) // self.stride + 1 for length in x.shape[2:]]
        if not self.inner:  # a batch norm of nothing is a constant
            y = x.new_zeros(len(x), self.width_out, *side)
        else:
            y = F.relu(self.norm1(self.conv1(x)))
            mask = self.open() if self.mask is None and self.gate is not None else self.mask
            y = self.conv2(y if mask is None else y * mask.to(y.dtype)[:, None, None])
        total: Tensor = self.norm2(y) + self.shortcut(x)
        return total


def slim(net: nn.Module, inner: Sequence[int], gated: bool) -> None:
    """Put slim blocks in the place of a network's blocks, with these inner channels or, where none are given, all."""
    places = [
        (parent, name)
        for parent in net.modules()
        for name, child in parent.named_children()
        if isinstance(child, Block)
    ]
    blocks = [cast(Block, getattr(parent, name)) for parent, name in places]
    counts = inner or [block.conv1.out_channels for block in blocks]
    for (parent, name), block, count in zip(places, blocks, counts, strict=True):
        parent.register_module(name, SlimBlock(block, count, gated))


def slim_blocks(net: nn.Module) -> list[SlimBlock]:
    return [module for module in net.modules() if isinstance(module, SlimBlock)]


def gates(net: nn.Module) -> list[nn.Parameter]:
    """Return the gates of all blocks."""
    return [block.gate for block in slim_blocks(net) if block.gate is not None]


@contextlib.contextmanager
def half_open(net: nn.Module, sharpness: Tensor) -> Iterator[None]:
    """Run the passes inside with masks sigmoid(s e), whose gradient reaches the gates e."""
    blocks = slim_blocks(net)
    for block in blocks:
        block.mask = cast(Tensor, Compensated.apply(block.gate, sharpness))
    try:
        yield
    finally:
        for block in blocks:
            block.mask = None


def layers(net: nn.Module) -> list[Layer]:
    """Return every convolution of a gated network, with masks as they are now."""
    found: list[Layer] = []
    inside: set[int] = set()
    for block in slim_blocks(net):
        mask = block.open() if block.mask is None else block.mask
        for layer, mask_in, mask_out in ((block.conv1, None, mask), (block.conv2, mask, None)):
            found.append(_layer(layer, mask_in, mask_out))
            inside.add(id(layer))
    return found + [_layer(m) for m in net.modules() if isinstance(m, nn.Conv2d) and id(m) not in inside]


def _layer(layer: nn.Conv2d, mask_in: Tensor | None = None, mask_out: Tensor | None = None) -> Layer:
    weight = layer.weight
    masks = [weight.new_ones(n) if m is None else m for m, n in ((mask_in, weight.shape[1]), (mask_out, len(weight)))]
    return layer.kernel_size[0] * layer.kernel_size[1], masks[0], masks[1]


@torch.no_grad()
def take_out(gated: nn.Module, slimmer: nn.Module) -> None:
    """Give a network whose blocks have only the open channels of a gated one what those channels hold."""
    for block, ours in zip(slim_blocks(gated), slim_blocks(slimmer), strict=True):
        ours.shortcut.load_state_dict(block.shortcut.state_dict())
        ours.norm2.load_state_dict(block.norm2.state_dict())
        if not ours.inner:
            continue
        kept = block.open().nonzero().squeeze(1)
        ours.conv1.weight.copy_(block.conv1.weight[kept])
        ours.conv2.weight.copy_(block.conv2.weight[:, kept])
        for name, values in block.norm1.state_dict().items():
            ours.norm1.state_dict()[name].copy_(values[kept])
