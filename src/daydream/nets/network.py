"""The network: two halves and a head. `lower(x) -> h` (the paper's f1), `upper(h) -> z` (f2), `head(z) -> scores`."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from daydream.errors import UserError, unknown
from daydream.nets.efficientnet_lite import FAMILY, SCALES, check_efficientnet, efficientnet_lite, without_weights
from daydream.nets.frozen import FROZEN, HUB, frozen, frozen_architecture
from daydream.nets.heads import HEADS, Head
from daydream.nets.norm import Hosting
from daydream.nets.resnet import BACKBONES, Backbone, pooled, to_channels_last
from daydream.nets.side_streams import Beside
from daydream.nets.timm_backbone import PREFIX, check_timm, check_timm_image_size, timm_backbone
from daydream.nets.timm_backbone import architecture as timm_architecture

STAGES = ("stage1", "stage2", "stage3", "stage4")


def check_backbone(backbone: str, cut: str) -> None:
    """Raise the user's mistake if there is no such backbone, or no such place to cut it."""
    if backbone.startswith(PREFIX):
        check_timm(backbone)
    elif backbone.startswith(FAMILY):
        check_efficientnet(backbone)
    elif backbone.startswith(HUB):
        raise UserError(f"backbone {backbone} has no maps to cut or imagine: only `learn` without --method can use it")
    elif backbone not in BACKBONES:
        raise unknown("backbone", backbone, [*BACKBONES, *SCALES, f"{PREFIX}NAME", f"{HUB}OWNER/NAME"])
    if cut not in STAGES[:-1]:
        raise UserError(f"--cut {cut} is not a stage to cut after; take one of {', '.join(STAGES[:-1])}")


def check_image_size(backbone: str, size: int) -> None:
    """Raise the user's mistake if a backbone cannot be built for images of this size; ours take every size."""
    if backbone.startswith(PREFIX):
        check_timm_image_size(backbone, size)


def make_backbone(backbone: str) -> Backbone:
    """Build a backbone by its name."""
    if backbone.startswith(FAMILY):
        return efficientnet_lite(backbone)
    if backbone.startswith(FROZEN):
        return frozen(backbone)
    return timm_backbone(backbone) if backbone.startswith(PREFIX) else BACKBONES[backbone]()


def is_pretrained(backbone: str) -> bool:
    """Say whether a backbone starts from published weights."""
    return architecture(backbone) != backbone


def architecture(backbone: str) -> str:
    """Return a backbone's name without its starting weights: all that is needed to load other weights into it."""
    if backbone.startswith(FROZEN + PREFIX):
        return frozen_architecture(backbone)
    return without_weights(backbone) if backbone.startswith(FAMILY) else timm_architecture(backbone)


class Pool(nn.Module):
    """Average a map over its pixels: [B, C, h, w] -> [B, C]."""

    def forward(self, maps: Tensor) -> Tensor:
        return pooled(maps)


def call(module: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = module(x)
    return y


class Half(Hosting, nn.Sequential):
    """Some stages of a backbone, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = False
        """Whether passes under autocast run by our own kernels (`kernel_stages.py`), which need a GPU."""
        self.compiled: set[tuple[object, ...]] = set()
        """The passes whose kernels are compiled."""
        self.fixed = False
        """Whether it stays as it is, statistics of batch norm too, whatever trains."""

    def train(self, mode: bool = True) -> Self:
        return super().train(mode and not self.fixed)

    @contextlib.contextmanager
    def hosting(self, hosts: int | None) -> Iterator[None]:
        """Run the passes inside with only the first `hosts` of a batch in the statistics of batch norm, or all."""
        self._host(hosts)
        try:
            yield
        finally:
            self._host(None)

    def _host(self, hosts: int | None) -> None:
        for module in self.modules():
            if isinstance(module, Hosting):
                module.hosts = hosts

    def use_kernels(self) -> bool:
        """Run by our own kernels from now on, if they fit all stages; say whether they do."""
        from daydream.nets.kernel_stages import stack_of  # needs triton

        self.kernels = all(stack_of(module) for module in self.children() if not isinstance(module, Pool))
        return self.kernels

    def forward(self, x: Tensor, every: bool = False) -> Any:
        """Return what the last of them gives, or with `every` a list of the maps of all stages."""
        run = self.by_kernels(x) if self.kernels and torch.is_autocast_enabled(x.device.type) else call
        if self.fixed and torch.is_grad_enabled():
            with torch.no_grad():
                return self(x, every)
        found = []
        for name, module in self.named_children():
            x = call(module, x) if isinstance(module, Pool) else run(module, x)
            if name in STAGES:
                found.append(x)
        return found if every else x

    def by_kernels(self, x: Tensor) -> Callable[[nn.Module, Tensor], Tensor]:
        """Return what passes maps through a stage by our kernels, compiled ahead for the first x of a kind."""
        from daydream.nets import kernel_stages

        back = kernel_stages.trained_on(self, x)
        key = (x.shape, x.dtype, self.training, back, self.hosts)
        if key not in self.compiled:
            kernel_stages.compile_ahead([module for module in self.children() if not isinstance(module, Pool)], x, back)
            self.compiled.add(key)
        return functools.partial(kernel_stages.run, hosts=self.hosts)


@dataclass
class Company:
    """What passes along with a network's next batch, normalised by its statistics and not entering them."""

    images: Tensor | None = None
    """Images [V, 3, H, W], for both halves."""
    maps: Callable[[], tuple[Tensor, Beside]] | None = None
    """What makes maps [M, c, h, w] for the upper half: asked before the batch passes, awaited where they join it."""
    features: Tensor | None = None
    """What came of the maps and then of the images [M + V, D], after the pass."""
    hosts: int = 0
    """How many images they passed along with."""


class Network(nn.Module):
    """A backbone cut after a named stage, and a head.

    `config()` is all that is needed to build its like again: a checkpoint stores it beside the weights.
    """

    lower: Half
    upper: Half
    head: Head

    def __init__(self, backbone: str, head: str, sizes: tuple[int, ...] = (), cut: str = "stage3") -> None:
        super().__init__()
        if not backbone.startswith(FROZEN):
            check_backbone(backbone, cut)
        parts = make_backbone(backbone)
        named = [("stem", parts.stem), *zip(STAGES, parts.stages, strict=True)]
        at = STAGES.index(cut) + 2
        self.lower, self.upper = Half(), Half()
        for i, (name, module) in enumerate(named):
            (self.lower if i < at else self.upper).add_module(name, module)
        self.upper.add_module("pool", Pool())
        self.head = HEADS[head](parts.channels[-1])
        for size in sizes:
            self.head.grow(size)
        own = frozen_architecture(backbone, parts) if backbone.startswith(FROZEN) else architecture(backbone)
        self.kinds = (own, head, cut)
        self.map_channels = parts.channels[STAGES.index(cut)]
        self.width = parts.channels[-1]
        self.company: Company | None = None
        to_channels_last(self)

    def config(self) -> dict[str, Any]:
        backbone, head, cut = self.kinds
        return {"backbone": backbone, "head": head, "sizes": self.head.sizes, "cut": cut}

    def features(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] -> z [B, D]."""
        z: Tensor = self.upper(self.lower(x)) if self.company is None else pooled(self.accompanied(x)[-1])
        return z

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] -> scores [B, C]."""
        scores: Tensor = self.head(self.features(x))
        return scores

    def maps(self, x: Tensor) -> list[Tensor]:
        """Return the map of every stage, before any ReLU, stage 1 first."""
        if self.company is not None:
            return self.accompanied(x)
        lower: list[Tensor] = self.lower(x, every=True)
        return [*lower, *self.upper(lower[-1], every=True)]

    @contextlib.contextmanager
    def joined_by(self, company: Company) -> Iterator[None]:
        """Let others pass along with the next batch that passes inside."""
        self.company = company
        try:
            yield
        finally:
            self.company = None

    def accompanied(self, x: Tensor) -> list[Tensor]:
        """Return the map of every stage, of x alone; the company gets its features."""
        company, self.company = self.company, None
        assert company is not None
        count = len(x)
        made = [company.maps()] if company.maps else []
        with self.lower.hosting(None if company.images is None else count):
            lower = self.lower(x if company.images is None else torch.cat([x, company.images]), every=True)
        hosts, guests = (list(part) for part in zip(*(parted(maps, count) for maps in lower), strict=True))
        for _, beside in made:
            beside.join()
        joining = [hosts[-1], *(maps for maps, _ in made), guests[-1]]
        with self.upper.hosting(count):
            upper = self.upper(torch.cat([maps.to(hosts[-1].dtype) for maps in joining]), every=True)
        ends = [parted(maps, count) for maps in upper]
        company.features, company.hosts = pooled(ends[-1][1]), count
        return [*hosts, *(maps for maps, _ in ends)]

    def compiled_parts(self) -> list[nn.Module]:
        """Name what the engine may compile: the halves, whose shapes do not change as classes arrive."""
        return [self.lower, self.upper]

    def frozen_copy(self) -> "Network":
        """Return an equal network in evaluation mode whose weights do not train."""
        twin = type(self)(**self.config())
        twin.load_state_dict(self.state_dict())
        return twin.to(next(self.parameters()).device).eval().requires_grad_(False)


def fix_lower_halves(module: nn.Module) -> None:
    """Keep the lower half of every network in a module as it is from now on."""
    for net in module.modules():
        if isinstance(net, Network):
            net.lower.fixed = True
            net.lower.eval()


def parted(maps: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the first `count` samples, and the others."""
    first, others = maps.split([count, len(maps) - count])
    return first, others


@contextlib.contextmanager
def in_mode(module: nn.Module, training: bool) -> Iterator[None]:
    """Run the passes inside with the module in train or evaluation mode, whatever its mode outside."""
    before = module.training
    module.train(training)
    try:
        yield
    finally:
        module.train(before)


def mean_weight_norm(head: Head) -> Tensor:
    """Return the mean norm of a head's weight vectors."""
    with torch.no_grad():
        norm: Tensor = head.weight().norm(dim=2).mean()
        return norm
