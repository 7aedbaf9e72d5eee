"""Residual stages by the kernels of `stage_kernels.py`: equal to the modules they stand for, in a third of the kernels.

A block is x + norm2(conv2(relu(norm1(conv1(x))))). Forward, each convolution adds up the statistics of its output a;
one pass then applies them with the ReLU or the shortcut. Backward, a batch norm turns the gradient g of its output into
p g + q a + r, with numbers for each channel; each convolution adds up, with the gradient it writes, what the next p, q
and r are made of. Guests (`nets/norm.py`) come last in a batch: they do not enter the statistics, so for them q and r
are 0.

Shapes: maps [B, C, h, w], channels last; P = B h w pixels.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor, nn

from daydream.kernels import launches
from daydream.kernels.launches import (
    Pass,
    blank,
    convolve,
    differ,
    finish,
    no_sums,
    normalise,
    normalise_back,
    plan_of,
    receive,
    weigh,
)
from daydream.kernels.side_streams import SideStream


@dataclass(frozen=True)
class Layer:
    """A convolution and its batch norm."""

    conv: nn.Conv2d
    norm: nn.BatchNorm2d

    @property
    def parameters(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.conv.weight, self.norm.weight, self.norm.bias


class Stack(NamedTuple):
    """A stem (one layer and a ReLU) or a stage of residual blocks (two layers each), as the kernels see it."""

    layers: Sequence[Layer]
    strides: Sequence[int]
    """Of the stem, or of each block."""
    training: bool


def forward(
    x: Tensor, layers: Sequence[Layer], strides: Sequence[int], training: bool, hosts: int
) -> tuple[Tensor, list[Pass], list[Tensor]]:
    """Pass x through a stem or a stage; return also what the pass back needs, of each layer: its pass, its weights.

    In training, the first `hosts` of x make the statistics of the batch norms.
    """
    passes: list[Pass] = []
    dtype = precision(x)
    weights = weights_of(layers, dtype)
    sums = no_sums(len(layers), layers[0].conv.out_channels, x.device) if training else [None] * len(layers)

    def through(x: Tensor, layer: Layer, stride: int, side: Tensor | None, relu: bool) -> Tensor:
        i, a = len(passes), blank(x, layer.conv.out_channels, stride, dtype)
        convolve(x, weights[i], a, stride=stride, sums=sums[i], counted=hosts)
        norm = normalise(sums[i], a, layer.norm, hosts)
        passes.append(Pass(x, a, norm))
        return finish(a, norm, side, relu)

    return blocks(x, layers, strides, through), passes, weights


def backward(
    g: Tensor,
    passes: Sequence[Pass],
    weights: Sequence[Tensor],
    layers: Sequence[Layer],
    strides: Sequence[int],
    stored: bool,
    hosts: int,
    wants_x: bool,
    trains: bool,
) -> tuple[Tensor | None, list[Tensor | None]]:
    """Return the gradients for x and, for each layer in turn, for its weights, its norm's weights and biases.

    `stored` says that the forward pass normalised by running statistics.
    """
    stem = len(layers) == 1
    sizes = [layer.conv.weight.numel() for layer in layers]
    sums = no_sums(len(layers), g.shape[1], g.device)
    backs: list[Tensor] = [g] * len(layers)
    # A stage's layers share their chunks, so that one sum over them ends all.
    parts = g.new_empty(plan_of(passes[-1].x).chunks, sum(sizes) if trains else 0, dtype=torch.float32)
    views = parts.split(sizes, dim=1) if trains else ()
    beside = SideStream(g.device, "weighing")

    def into(i: int, g: Tensor, stride: int) -> Tensor:
        """Return the gradient of what convolution i wrote, and add up that of its weights."""
        backs[i] = normalise_back(sums[i], passes[i], stored, hosts)
        g = differ(g, passes[i], backs[i], hosts)
        if trains:
            beside.keep(g)
            with beside:  # no other gradient waits for that of weights
                weigh(passes[i].x, g, stride, views[i])
        return g

    g = g.to(passes[-1].a.dtype).contiguous(memory_format=torch.channels_last)
    g = receive(g, passes[-1], stem, sums[-1])
    shortcut, dx = g, None
    for i in range(len(layers) - 1, -1, -1):
        first = stem or i % 2 == 0
        stride = strides[i // 2] if first else 1
        inner = into(i, g, stride)
        if i == 0 and not wants_x:
            break
        dx = torch.empty_like(passes[i].x, dtype=inner.dtype)
        before = passes[i - 1] if i else None
        convolve(
            inner,
            weights[i],
            dx,
            stride=stride,
            back=True,
            side=shortcut if first and not stem else None,
            owner=before.a if before else None,
            gate=before.norm if before and not first else None,
            sums=sums[i - 1] if before else None,
        )
        if not first:
            shortcut = g
        g = dx
    beside.join()
    grads: list[Tensor | None] = [None] * (3 * len(layers))
    if trains:
        for i, (layer, flat) in enumerate(zip(layers, parts.sum(0).split(sizes), strict=True)):
            weight = layer.conv.weight
            # As the weights lie: out x 3 x 3 x in.
            grads[3 * i] = flat.view(weight.shape[0], 3, 3, weight.shape[1]).permute(0, 3, 1, 2)
            grads[3 * i + 1], grads[3 * i + 2] = backs[i][3], backs[i][4]
    return dx if wants_x else None, grads


class Stage(torch.autograd.Function):
    """The stem (one layer and a ReLU) or a stack of residual blocks (two layers each), by the kernels."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, layers: Sequence[Layer], strides: Sequence[int], training: bool, hosts: int, *_: Tensor
    ) -> Tensor:
        y, passes, ctx.weights = forward(x, layers, strides, training, hosts)
        ctx.layers, ctx.strides, ctx.training, ctx.hosts = layers, strides, training, hosts
        ctx.save_for_backward(*(tensor for passed in passes for tensor in passed))
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        kept, wants = ctx.saved_tensors, ctx.needs_input_grad
        passes = [Pass(*kept[i : i + 3]) for i in range(0, len(kept), 3)]
        stored, trains = not ctx.training, any(wants[5:])
        dx, grads = backward(g, passes, ctx.weights, ctx.layers, ctx.strides, stored, ctx.hosts, wants[0], trains)
        return dx, None, None, None, None, *grads


def precision(x: Tensor) -> torch.dtype:
    """Return the type of maps: autocast's."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def weights_of(layers: Sequence[Layer], dtype: torch.dtype) -> list[Tensor]:
    """Return the layers' weights in the type of maps, all by one kernel; the few of a stem as they are."""
    weights: list[Tensor] = [layer.conv.weight for layer in layers]
    if len(layers) == 1 or weights[0].dtype == dtype:
        return weights
    cast = [torch.empty_like(weight, dtype=dtype) for weight in weights]
    torch._foreach_copy_(cast, weights)
    return cast


def blocks(x: Tensor, layers: Sequence[Layer], strides: Sequence[int], through: Callable[..., Tensor]) -> Tensor:
    """Pass x through the layers by `through(x, layer, stride, shortcut, relu)`."""
    if len(layers) == 1:
        return through(x, layers[0], strides[0], None, True)
    for one, two, stride in zip(layers[::2], layers[1::2], strides, strict=True):
        x = through(through(x, one, stride, None, True), two, 1, x, False)
    return x


def evaluated(x: Tensor, layers: Sequence[Layer], strides: Sequence[int]) -> Tensor:
    """Return what `Stage` does in evaluation mode, for passes that nothing trains on: a kernel for each convolution."""
    dtype = precision(x)
    weights = iter(weights_of(layers, dtype))

    def through(x: Tensor, layer: Layer, stride: int, side: Tensor | None, relu: bool) -> Tensor:
        y = blank(x, layer.conv.out_channels, stride, dtype)
        convolve(x, next(weights), y, stride=stride, norm=layer.norm, side=side, relu=relu)
        return y

    return blocks(x, layers, strides, through)


def trained_on(x: Tensor, parameters: Iterable[Tensor]) -> bool:
    """Say whether a pass of x will be followed by one back."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in (x, *parameters))


def run(stack: Stack, x: Tensor, hosts: int | None = None) -> Tensor:
    """Pass maps through a stem or a stage by the kernels; the first `hosts` make the statistics, or all."""
    layers, strides, training = stack
    parameters = [t for layer in layers for t in layer.parameters]
    x = x.contiguous(memory_format=torch.channels_last)
    if not training and not trained_on(x, parameters):
        return evaluated(x, layers, strides)
    y: Tensor = Stage.apply(x, layers, strides, training, len(x) if hosts is None else hosts, *parameters)
    return y


@torch.no_grad()
def compile_ahead(stacks: Sequence[Stack], x: Tensor, back: bool) -> None:
    """Compile, side by side, the kernels that passing x through stacks in turn will need, and with `back` back again.

    Some sixty kernels at half a second each would otherwise be waited for one by one.
    """
    if not hasattr(triton, "AsyncCompileMode"):  # an older Triton: then one by one it is
        return
    with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool):
        launches.dry.compiles = True
        try:
            for layers, strides, training in stacks:
                x = x.contiguous(memory_format=torch.channels_last)
                if training or back:
                    y, passes, weights = forward(x, layers, strides, training, len(x))
                    if back:
                        wants_x = x.dtype == y.dtype  # images, which come in float32, get no gradient
                        stored = not training
                        backward(y, passes, weights, layers, strides, stored, len(x), wants_x, trains=True)
                    x = y
                else:
                    x = evaluated(x, layers, strides)
        finally:
            launches.dry.compiles = False
