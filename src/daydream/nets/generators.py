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
from collections.abc import Callable
from typing import Any, Self

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
        self.kernels = False
        """Whether passes under autocast run by our own kernels where they fit (`bank_conv.py`), which need a GPU."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or cast, as torch asks for it, and lie in memory as the device then wants it: no pass need turn it."""
        super()._apply(fn, recurse)
        self.weight.data = laid(self.weight.data, channels_last=self.weight.is_cuda)
        return self

    def forward(self, x: Tensor, which: Tensor | None) -> Tensor:
        """[N, G * in, h, w] -> [N, G * out, h, w]: group g by the weights of class `which[g]`, or of class g."""
        trains = torch.is_grad_enabled() and self.weight.requires_grad
        if self.kernels and torch.is_autocast_enabled(x.device.type):
            from daydream.kernels import bank_conv  # needs triton

            if which is None and trains:
                return bank_conv.convolved(x, self.weight)
            if which is not None and not self.weight.requires_grad and not x.requires_grad:
                return bank_conv.of_classes(x, self.for_kernels(x.dtype), which)
        weight = self.laid_out() if which is None else self.as_gathered(x.dtype)[which]
        flat = weight.flatten(0, 1)
        if flat.is_cuda:
            flat = flat.contiguous().permute(0, 3, 1, 2)  # a copy only of what `extended` laid out as named
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

    def for_kernels(self, dtype: torch.dtype) -> Tensor:
        """Return frozen weights with channels last, whatever the device wants: an interpreted kernel runs on a CPU."""
        weight = self.as_gathered(dtype)
        return (weight if weight.is_cuda else weight.permute(0, 1, 3, 4, 2)).contiguous()


def laid(weight: Tensor, channels_last: bool) -> Tensor:
    """Return equal weights [C, out, in, size, size] that lie in memory as C x out x size x size x in, or as named."""
    return weight.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3) if channels_last else weight.contiguous()


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
        self.kernels = False
        """Whether passes under autocast run by our own kernels (`bank_norm.py`), which need a GPU."""

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

    def rectified(self, x: Tensor, side: Tensor | None, which: Tensor | None, track: bool) -> Tensor:
        """Return relu(norm(x)), or relu(norm(x) + side)."""
        if (
            self.kernels
            and torch.is_autocast_enabled(x.device.type)
            and (self.training or not self.trained_on(x, side))
        ):
            from daydream.kernels import bank_norm  # needs triton

            norm = bank_norm.Norm(self.running_mean, self.running_var, self.weight, self.bias)
            return bank_norm.rectified(x, side, norm, which, self.training, track)
        y = self(x, which, track)
        return F.relu(y if side is None else y + side)

    def trained_on(self, *maps: Tensor | None) -> bool:
        """Say whether a pass of maps will be followed by one back."""
        tensors = (*maps, self.weight, self.bias)
        return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


class ClassBlock(nn.Module):
    """A residual block per class: two 3x3 convolutions, a sum, a ReLU (as the released code's)."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = ClassConv(classes, width, width, 3), ClassNorm(classes, width)
        self.conv2, self.norm2 = ClassConv(classes, width, width, 3), ClassNorm(classes, width)

    def forward(self, x: Tensor, which: Tensor | None, track: bool = True) -> Tensor:
        y = self.norm1.rectified(self.conv1(x, which), None, which, track)
        return self.norm2.rectified(self.conv2(y, which), x, which, track)


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

    def use_kernels(self) -> None:
        """Run by our own kernels from now on, under autocast: batch norms, convolutions back and those of samples."""
        for module in self.modules():
            if isinstance(module, ClassNorm | ClassConv):
                module.kernels = True

    def forward(self, exemplar: Tensor, unlabelled: Tensor, which: Tensor | None = None, track: bool = True) -> Tensor:
        """Mix maps [G, N, c, h, w] of exemplars and unlabelled images into counterparts [G, N, c, h, w].

        Group g is mixed by the generator of class `which[g]`; without `which`, by that of class g. Without `track` the
        running statistics of batch norm are left alone in train mode.
        """
        groups, samples, _, height, width = exemplar.shape
        x = side_by_side(exemplar, unlabelled, channels_last=exemplar.is_cuda)
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


def side_by_side(exemplar: Tensor, unlabelled: Tensor, channels_last: bool) -> Tensor:
    """Return two maps [G, N, c, h, w] as one [N, G * 2c, h, w]: each group's channels of the one, then of the other.

    They come channels last in one copy, in autocast's type; a CPU gathers and convolves faster with channels first.
    """
    if not channels_last:
        return torch.cat([exemplar, unlabelled], dim=2).transpose(0, 1).flatten(1, 2)
    kind = exemplar.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else exemplar.dtype
    turned = [maps.to(dtype).permute(1, 3, 4, 0, 2) for maps in (exemplar, unlabelled)]
    return torch.cat(turned, dim=4).flatten(3).permute(0, 3, 1, 2)
