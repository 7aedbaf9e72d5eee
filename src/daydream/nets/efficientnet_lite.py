"""EfficientNet-Lite 0, 1 and 2 in our four stages, from published ImageNet weights or (`+untrained`) random ones.

EfficientNet (Tan and Le, ICML 2019) made for phones: ReLU6 in place of swish, no squeeze-and-excitation, and stem and
head of one width at every scale. Convolutions pad as TensorFlow does: with stride 2, an even side gets its odd pixel at
the end.

| stage | side | blocks of | channels (lite0) |
|---|---|---|---|
| stem | 1/2 | 3x3 convolution | 32 |
| stage1 | 1/4 | 3x3, not expanded; 3x3 | 16, 24 |
| stage2 | 1/8 | 5x5 | 40 |
| stage3 | 1/16 | 3x3; 5x5 | 80, 112 |
| stage4 | 1/32 | 5x5; 3x3; 1x1 convolution | 192, 320, 1280 |

Maps of the first three stages are before any ReLU, as in our other backbones; that of the last is after its ReLU6.
`NAME@SIDE` enlarges smaller images to a side first: weights for photographs see little in 32 pixels.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from daydream.errors import UserError, unknown
from daydream.nets.norm import Norm
from daydream.nets.pretrained import PUBLISHED, published_weights
from daydream.nets.resnet import Backbone, batch_norm

FAMILY = "efficientnet-"
UNTRAINED = "+untrained"
NAME = re.compile(r"(?P<net>[a-z0-9-]+?)(@(?P<side>[0-9]{1,4}))?(?P<bare>\+untrained)?")
SIDES = (32, 1024)
EPSILON, MOMENTUM = 1e-3, 0.01  # TensorFlow's batch norm, as the weights were trained with


@dataclass(frozen=True)
class Row:
    """Equal blocks: how many (lite0), their kernel, the first one's stride, expansion and channels (lite0)."""

    blocks: int
    kernel: int
    stride: int
    expand: int
    channels: int


STAGES = (
    (Row(1, 3, 1, 1, 16), Row(2, 3, 2, 6, 24)),
    (Row(2, 5, 2, 6, 40),),
    (Row(3, 3, 2, 6, 80), Row(3, 5, 1, 6, 112)),
    (Row(4, 5, 2, 6, 192), Row(1, 3, 1, 6, 320)),
)
STEM, HEAD = 32, 1280
SCALES = {"efficientnet-lite0": (1.0, 1.0), "efficientnet-lite1": (1.0, 1.1), "efficientnet-lite2": (1.1, 1.2)}
"""How much wider and deeper each is."""


def parsed(backbone: str) -> tuple[str, int | None, bool]:
    """Return what a name asks for: the network, the side images are enlarged to, and whether weights are random."""
    found = NAME.fullmatch(backbone)
    if found is None or found["net"] not in SCALES:
        raise unknown("backbone", backbone, [*SCALES, *(f"{name}{UNTRAINED}" for name in SCALES), f"{FAMILY}lite0@128"])
    side = int(found["side"]) if found["side"] else None
    if side is not None and not SIDES[0] <= side <= SIDES[1]:
        raise UserError(f"backbone {backbone} enlarges images to {side} pixels; give {SIDES[0]} to {SIDES[1]}")
    return found["net"], side, bool(found["bare"])


def check_efficientnet(backbone: str) -> None:
    """Raise the user's mistake if there is no such network, or its weights are asked for and cannot be had."""
    net, _, bare = parsed(backbone)
    if not bare:
        published_weights(net)


def without_weights(backbone: str) -> str:
    """Return the name of the same network from random weights: all that is needed to load others into it."""
    return backbone if backbone.endswith(UNTRAINED) else f"{backbone}{UNTRAINED}"


def efficientnet_lite(backbone: str) -> Backbone:
    """Build a network by its name."""
    net, side, bare = parsed(backbone)
    made = _built(*SCALES[net], side)
    if not bare:
        load_published(made, published_weights(net))
    return made


class SameConv(nn.Conv2d):
    """A convolution that pads as TensorFlow's `SAME`: the output's side is ceil(side / stride)."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(channels_in, channels_out, kernel, stride, kernel // 2, groups=groups, bias=False)
        nn.init.normal_(self.weight, std=math.sqrt(2 / (kernel**2 * channels_out // groups)))

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        if stride == 1:
            return super().forward(x)
        tall, wide = (max((math.ceil(n / stride) - 1) * stride + kernel - n, 0) for n in x.shape[2:])
        x = F.pad(x, (wide // 2, wide - wide // 2, tall // 2, tall - tall // 2))
        return F.conv2d(x, self.weight, None, self.stride, 0, 1, self.groups)


def norm(channels: int) -> Norm:
    made = batch_norm(channels)
    made.eps, made.momentum = EPSILON, MOMENTUM
    return made


class MBConv(nn.Module):
    """Expand by a 1x1 convolution, filter each channel, project back; a shortcut where shapes agree. No ReLU last."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, stride: int, expand: int) -> None:
        super().__init__()
        inner = channels_in * expand
        self.expand: nn.Module = nn.Identity()
        if expand > 1:
            self.expand = nn.Sequential(SameConv(channels_in, inner, 1), norm(inner), nn.ReLU6())
        self.filter = nn.Sequential(SameConv(inner, inner, kernel, stride, groups=inner), norm(inner), nn.ReLU6())
        self.project = nn.Sequential(SameConv(inner, channels_out, 1), norm(channels_out))
        self.shortcut = stride == 1 and channels_in == channels_out

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.filter(self.expand(x)))
        return x + y if self.shortcut else y


class Enlarge(nn.Module):
    """Enlarge images whose side is smaller to a side [B, 3, h, w] -> [B, 3, S, S]."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2] >= self.side:
            return x
        return F.interpolate(x, (self.side, self.side), mode="bilinear", align_corners=False)


def _built(width: float, depth: float, side: int | None) -> Backbone:
    """Stack the stages at a scale; the first and the last row of blocks are as deep at every scale."""
    first: list[nn.Module] = [Enlarge(side)] if side is not None else []
    stem = nn.Sequential(*first, SameConv(3, STEM, 3, 2), norm(STEM), nn.ReLU6())
    stages: list[nn.Module] = []
    widths: list[int] = []
    channels = STEM
    for rows in STAGES:
        blocks: list[nn.Module] = []
        for row in rows:
            repeats = row.blocks if row.channels in (16, 320) else math.ceil(row.blocks * depth)
            for number in range(repeats):
                out, stride = _scaled(row.channels, width), row.stride if number == 0 else 1
                blocks.append(MBConv(channels, out, row.kernel, stride, row.expand))
                channels = out
        stages.append(nn.Sequential(*blocks))
        widths.append(channels)
    last = nn.Sequential(SameConv(channels, HEAD, 1), norm(HEAD), nn.ReLU6())
    stages[-1] = nn.Sequential(*stages[-1].children(), last)
    return Backbone(stem, stages, (*widths[:-1], HEAD))


def _scaled(channels: int, width: float) -> int:
    """Return a width times a scale, to the nearest multiple of 8 that loses no more than a tenth."""
    wanted = channels * width
    near = max(8, int(wanted + 4) // 8 * 8)
    return near + 8 if near < 0.9 * wanted else near


LAYERS = {
    "expand": ("_expand_conv", "_bn0"),
    "filter": ("_depthwise_conv", "_bn1"),
    "project": ("_project_conv", "_bn2"),
}
"""What the published files call convolution and batch norm of each part of a block."""


def load_published(made: Backbone, weights: Mapping[str, Tensor]) -> None:
    """Fill a network from published weights, by the names that their file gives its layers."""
    pairs: list[tuple[nn.Module, str, str]] = [(made.stem, "_conv_stem", "_bn0")]
    blocks = [block for stage in made.stages for block in stage.modules() if isinstance(block, MBConv)]
    for number, block in enumerate(blocks):
        for name, part in block.named_children():
            conv_name, norm_name = LAYERS[name]
            pairs.append((part, f"_blocks.{number}.{conv_name}", f"_blocks.{number}.{norm_name}"))
    pairs.append((list(made.stages[-1].children())[-1], "_conv_head", "_bn1"))
    for module, conv_name, norm_name in pairs:
        for layer in module.children():
            name = conv_name if isinstance(layer, SameConv) else norm_name
            for key, value in layer.state_dict().items():
                value.copy_(weights[f"{name}.{key}"])


def normalisation(
    backbone: str, mean: tuple[float, float, float], std: tuple[float, float, float]
) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Return mean and deviation that images are normalised by: those of published weights, or else the data set's."""
    if not backbone.startswith(FAMILY) or backbone.endswith(UNTRAINED):
        return mean, std
    about = PUBLISHED[parsed(backbone)[0]]
    return about.mean, about.std


def published_side(backbone: str) -> int | None:
    """Return the side of images that suits a backbone's published weights: in its name, or that of their training."""
    if not backbone.startswith(FAMILY) or backbone.endswith(UNTRAINED):
        return None
    net, side, _ = parsed(backbone)
    return side or PUBLISHED[net].size
