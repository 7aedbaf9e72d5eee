"""Feature generators, one per class, held as one bank of weights on a class axis (the paper's section 3.3, Figure 2).

G_c(h, u) = fuse( d residual blocks ( [h; u] ) ): the maps of an exemplar and of an unlabelled image side by side on the
channel axis, an optional 1x1 reduction to `width` channels, d residual blocks, and a 1x1 convolution back to the map's
channels. With `skip` (ours, not the paper's) the exemplar's map is added at the end, and the last convolution starts at
zero: an untrained generator gives the exemplar, and learns what to add to it.

Classes side by side are one network with grouped convolutions: no Python loop runs over classes.

Shapes: C classes in the bank, G classes or samples side by side (groups), N samples per group, c channels of a map,
k channels inside a generator, h x w pixels.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MOMENTUM = 0.1  # of the running statistics, as torch's batch norm


class ClassConv(nn.Module):
    """A convolution per class: weight [C, out, in, size, size]."""

    def __init__(self, classes: int, channels_in: int, channels_out: int, size: int) -> None:
        super().__init__()
        self.size = size
        spread = math.sqrt(2 / (channels_out * size * size))  # He's, by fan out, as the backbones'
        self.weight = nn.Parameter(spread * torch.randn(classes, channels_out, channels_in, size, size))
        self.ready: tuple[object, Tensor] | None = None

    def forward(self, x: Tensor, which: Tensor | None) -> Tensor:
        """[N, G * in, h, w] -> [N, G * out, h, w]: group g by the weights of class `which[g]`, or of class g."""
        weight = self.laid_out() if which is None else self.as_gathered(x.dtype)[which]
        flat = weight.flatten(0, 1)
        if flat.is_cuda:
            flat = flat.contiguous().permute(0, 3, 1, 2)  # out x in x size x size, channels last
        return F.conv2d(x, flat, padding=self.size // 2, groups=len(weight))

    def laid_out(self) -> Tensor:
        """Return the weights as the device wants them: with channels last [C, out, size, size, in] on a GPU."""
        return self.weight.permute(0, 1, 3, 4, 2) if self.weight.is_cuda else self.weight

    def as_gathered(self, dtype: torch.dtype) -> Tensor:
        """Return the weights, as laid out, to be gathered for maps of this type.

        Frozen ones are cast once, not in every step: a gather then moves half the bytes, and nothing is cast after it.
        """
        weight = self.weight
        if weight.requires_grad or weight.dtype == dtype:
            return self.laid_out()
        key = (weight.data_ptr(), weight._version, dtype)
        if self.ready is None or self.ready[0] != key:
            self.ready = (key, self.laid_out().detach().to(dtype).contiguous())
        return self.ready[1]


class ClassNorm(nn.Module):
    """A batch norm per class: over a group's own samples in train mode, by its class's running statistics otherwise."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(classes, channels))
        self.bias = nn.Parameter(torch.zeros(classes, channels))
        self.register_buffer("running_mean", torch.zeros(classes, channels))
        self.register_buffer("running_var", torch.ones(classes, channels))

    def forward(self, x: Tensor, which: Tensor | None, track: bool = True) -> Tensor:
        """[N, G * k, h, w] -> the same shape. In train mode the groups are all classes of the bank, in order.

        Without `track` a pass in train mode leaves the running statistics alone.
        """
        if self.training:
            assert which is None, "a bank trains all of its classes side by side"
            mean, var = (self.running_mean.view(-1), self.running_var.view(-1)) if track else (None, None)
            return F.batch_norm(x, mean, var, self.weight.flatten(), self.bias.flatten(), True, MOMENTUM)
        rows = (self.running_mean, self.running_var, self.weight, self.bias)
        mean, var, weight, bias = ((row if which is None else row[which]).flatten() for row in rows)
        return F.batch_norm(x, mean, var, weight, bias, False)


class ClassBlock(nn.Module):
    """A residual block per class: two 3x3 convolutions, a sum, a ReLU (as the released code's)."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = ClassConv(classes, width, width, 3), ClassNorm(classes, width)
        self.conv2, self.norm2 = ClassConv(classes, width, width, 3), ClassNorm(classes, width)

    def forward(self, x: Tensor, which: Tensor | None, track: bool = True) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x, which), which, track))
        return F.relu(self.norm2(self.conv2(y, which), which, track) + x)


class GeneratorBank(nn.Module):
    """The generators of `classes` classes. `config()` and the state dict are all that is needed to build it again."""

    def __init__(self, classes: int, channels: int, depth: int = 2, width: int = 0, skip: bool = False) -> None:
        super().__init__()
        self.shape = (classes, channels, depth, width, skip)
        inner = width or 2 * channels
        self.reduce = ClassConv(classes, 2 * channels, inner, 1) if width else None
        self.blocks = nn.ModuleList(ClassBlock(classes, inner) for _ in range(depth))
        self.fuse = ClassConv(classes, inner, channels, 1)
        self.skip = skip
        if skip:
            nn.init.zeros_(self.fuse.weight)

    @property
    def classes(self) -> int:
        return self.shape[0]

    def config(self) -> dict[str, Any]:
        return dict(zip(("classes", "channels", "depth", "width", "skip"), self.shape, strict=True))

    def forward(self, exemplar: Tensor, unlabelled: Tensor, which: Tensor | None = None, track: bool = True) -> Tensor:
        """Mix maps [G, N, c, h, w] of exemplars and unlabelled images into counterparts [G, N, c, h, w].

        Group g is mixed by the generator of class `which[g]`; without `which`, by that of class g. Without `track` the
        running statistics of batch norm are left alone in train mode.
        """
        groups, samples, _, height, width = exemplar.shape
        both = torch.cat([exemplar, unlabelled], dim=2)
        x = both.transpose(0, 1).reshape(samples, -1, height, width)
        if x.is_cuda:  # a CPU gathers and convolves faster with channels first
            x = x.contiguous(memory_format=torch.channels_last)
        if self.reduce is not None:
            x = self.reduce(x, which)
        for block in self.blocks:
            x = block(x, which, track)
        mixed: Tensor = self.fuse(x, which)
        mixed = mixed.reshape(samples, groups, -1, height, width).transpose(0, 1)
        return mixed + exemplar if self.skip else mixed

    def extended(self, more: "GeneratorBank") -> "GeneratorBank":
        """Return a bank that holds these generators and then `more`."""
        assert self.shape[1:] == more.shape[1:], (self.shape, more.shape)
        with torch.device("meta"):  # random weights for all classes would take longer than anything else here
            whole = GeneratorBank(self.classes + more.classes, *self.shape[1:])
        mine, theirs = self.state_dict(), more.state_dict()
        whole.load_state_dict({name: torch.cat([mine[name], theirs[name]]) for name in mine}, assign=True)
        return whole.eval().requires_grad_(False)
