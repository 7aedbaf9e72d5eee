"""Residual backbones in stages; every stage's output is the sum before any ReLU, so it is the map methods compare.

`resnet32` is the 0.46 M variant of PODNet and of the paper: 5 + 5 + 4 blocks of 16, 32 and 64 channels and a last
single block, shortcuts by subsampling and zero channels, no ReLU after a residual sum. `resnet10` is its small sister
for the demo and the tests. `resnet18` is the usual one (7x7 stem, pooling) and `resnet18-small` has a 3x3 stem for
small images; their blocks rectify their input, which equals a ReLU after each sum but the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from daydream.nets.norm import Norm


def batch_norm(channels: int, gamma: float = 1.0) -> Norm:
    """Return a batch norm without its step counter: with a fixed momentum nothing reads it."""
    norm = Norm(channels)
    norm.num_batches_tracked = None
    norm.register_load_state_dict_pre_hook(_drop_counter)
    nn.init.constant_(norm.weight, gamma)
    return norm


def _drop_counter(norm: nn.Module, weights: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Take away the step counter that torch adds to weights read from a file, where it finds no version number."""
    weights.pop(f"{prefix}num_batches_tracked", None)


def conv(channels_in: int, channels_out: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


class Subsample(nn.Module):
    """Shortcut without weights: every second pixel, new channels zero."""

    def __init__(self, stride: int, extra: int) -> None:
        super().__init__()
        self.stride, self.extra = stride, extra

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[..., :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra))


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut; with `rectify`, the input passes a ReLU first. The sum is not rectified."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, rectify: bool, project: bool) -> None:
        super().__init__()
        self.conv1, self.norm1 = conv(channels_in, channels_out, stride=stride), batch_norm(channels_out)
        self.conv2, self.norm2 = conv(channels_out, channels_out), batch_norm(channels_out, gamma=0.0)
        self.rectify = rectify
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = (
                nn.Sequential(conv(channels_in, channels_out, 1, stride), batch_norm(channels_out))
                if project
                else Subsample(stride, channels_out - channels_in)
            )

    def forward(self, x: Tensor) -> Tensor:
        if self.rectify:
            x = F.relu(x)
        y = F.relu(self.norm1(self.conv1(x)))
        total: Tensor = self.norm2(self.conv2(y)) + self.shortcut(x)
        return total


def stage(channels_in: int, channels_out: int, blocks: int, stride: int, rectify: bool, project: bool) -> nn.Sequential:
    """Stack blocks; the first one changes the channels and the resolution."""
    rest = [Block(channels_out, channels_out, 1, rectify, project) for _ in range(blocks - 1)]
    return nn.Sequential(Block(channels_in, channels_out, stride, rectify, project), *rest)


@dataclass(frozen=True)
class Backbone:
    """What a backbone is made of: its stages in order, the width of its embedding and of each stage's map."""

    stem: nn.Module
    stages: Sequence[nn.Module]
    channels: tuple[int, ...]
    """Channels of each stage's map; the last is the embedding's width."""


def make_stem() -> nn.Module:
    """Return what comes before the stages of `resnet32`."""
    return nn.Sequential(conv(3, 16), batch_norm(16), nn.ReLU())


def _resnet32(blocks: tuple[int, int, int, int]) -> Backbone:
    widths, strides = (16, 32, 64, 64), (1, 2, 2, 1)
    stem = make_stem()  # first: a seed's random weights come in this order
    stages = [
        stage(w_in, w_out, n, stride, rectify=False, project=False)
        for w_in, w_out, n, stride in zip((16, *widths), widths, blocks, strides, strict=False)
    ]
    return Backbone(stem, stages, widths)


def _resnet18(stem: nn.Module) -> Backbone:
    widths, strides = (64, 128, 256, 512), (1, 2, 2, 2)
    stages = [
        stage(w_in, w_out, 2, stride, rectify=True, project=True)
        for w_in, w_out, stride in zip((64, *widths), widths, strides, strict=False)
    ]
    return Backbone(stem, stages, widths)


def _large_stem() -> nn.Module:
    return nn.Sequential(conv(3, 64, 7, 2), batch_norm(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))


def _small_stem() -> nn.Module:
    return nn.Sequential(conv(3, 64), batch_norm(64), nn.ReLU())


BACKBONES = {
    "resnet32": lambda: _resnet32((5, 5, 4, 1)),
    "resnet10": lambda: _resnet32((1, 1, 1, 1)),
    "resnet18": lambda: _resnet18(_large_stem()),
    "resnet18-small": lambda: _resnet18(_small_stem()),
}


def pooled(maps: Tensor) -> Tensor:
    """Average a map over its pixels: [B, C, h, w] -> [B, C]."""
    return maps.mean((2, 3))


def parameter_count(module: nn.Module) -> int:
    """Count the parameters a module holds."""
    return sum(p.numel() for p in module.parameters())


def to_channels_last(module: nn.Module) -> nn.Module:
    """Lay convolution weights out channels last, the faster layout on every device measured."""
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
