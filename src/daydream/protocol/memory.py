"""Exemplars: which images of a class are kept, how many, and the class means they stand for.

Shapes: C classes, N images, D feature dimensions, M exemplars.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream.data.images import ImageSet, Resident
from daydream.errors import UserError
from daydream.protocol.stream import places_in_class

BudgetRule = Literal["total", "per_class"]
Choose = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""(features [N, D], labels [N], quota) -> index of the exemplars, sorted by class and rank, and their ranks: `herd`."""
HERDING_LIMIT = 1000  # iterations, as in iCaRL's code
FIRST_HELD, EVERY_HELD = 1, 10  # ranks that a method holds out: a tenth, and one of as few as two exemplars


@dataclass(frozen=True)
class Budget:
    """How many exemplars may be kept: `size` in `total`, shared by the classes seen, or `size` `per_class`."""

    rule: BudgetRule
    size: int

    def quota(self, num_seen: int) -> int:
        """Return the exemplars per class once `num_seen` classes are known."""
        return self.size // num_seen if self.rule == "total" else self.size

    def held(self, num_seen: int) -> int:
        """Return the exemplars kept in all once `num_seen` classes are known."""
        return self.quota(num_seen) * num_seen if num_seen else 0

    def __str__(self) -> str:
        return f"{self.size} in total" if self.rule == "total" else f"{self.size} per class"

    def check(self, train: ImageSet, sizes: tuple[int, ...]) -> None:
        """Raise the user's mistake if a quota is 0 or a class has fewer images than its quota on arrival."""
        seen = 0
        for size in sizes:
            quota = self.quota(seen + size)
            if quota < 1:
                raise UserError(
                    f"--memory {self.size} with --budget {self.rule} leaves no exemplar per class once {seen + size} "
                    "classes are seen; raise --memory"
                )
            counts = train.counts()[seen : seen + size]
            if counts.min() < quota:
                label = seen + int(counts.argmin())
                raise UserError(
                    f"class '{train.class_names[label]}' has {int(counts.min())} training images, fewer than the "
                    f"{quota} exemplars per class that --memory {self.size} --budget {self.rule} asks for: lower it"
                )
            seen += size


@dataclass(frozen=True)
class Memory:
    """The exemplars, sorted by class and, within a class, by herding rank: shrinking a class truncates it."""

    budget: Budget
    images: Tensor
    """[M, 3, H, W] uint8."""
    labels: Tensor
    """[M] int64, on the CPU."""
    ranks: Tensor
    """[M] int64, on the CPU; 0 is the first exemplar herded."""

    @classmethod
    def empty(cls, budget: Budget) -> Self:
        none = torch.zeros(0, dtype=torch.int64)
        return cls(budget, torch.zeros(0, 3, 1, 1, dtype=torch.uint8), none, none)

    def __len__(self) -> int:
        return len(self.labels)

    def as_set(
        self, class_names: tuple[str, ...], ranks: Tensor | None = None, without: Tensor | None = None
    ) -> ImageSet:
        """Return the exemplars as images: all, those of some ranks, or those of all ranks but some."""
        keep = torch.ones_like(self.ranks, dtype=torch.bool)
        if ranks is not None:
            keep &= torch.isin(self.ranks, ranks)
        if without is not None:
            keep &= ~torch.isin(self.ranks, without)
        whole = ImageSet(Resident(self.images), self.labels, class_names)
        return whole if bool(keep.all()) else whole.select(keep.nonzero().squeeze(1))

    def shrunk(self, quota: int) -> Self:
        """Keep the first `quota` exemplars of each class."""
        keep = self.ranks < quota
        return replace(
            self, images=self.images[keep.to(self.images.device)], labels=self.labels[keep], ranks=self.ranks[keep]
        )

    def updated(self, train: ImageSet, features: Tensor, num_seen: int, choose: Choose | None = None) -> Self:
        """Shrink the old classes to the new quota and choose of `train`, by its `features` [N, D], as herding does."""
        return self.extended(train, *(choose or herd)(features, train.labels, self.budget.quota(num_seen)), num_seen)

    def extended(self, train: ImageSet, chosen: Tensor, ranks: Tensor, num_seen: int) -> Self:
        """Shrink the old classes to the new quota and hold the images of an index, by class and by their ranks."""
        kept, images = self.shrunk(self.budget.quota(num_seen)), train.pixels.fetch(chosen)
        old = kept.images.to(images.device) if len(kept) else images[:0]
        return replace(
            self,
            images=torch.cat([old, images]),
            labels=torch.cat([kept.labels, train.labels[chosen]]),
            ranks=torch.cat([kept.ranks, ranks]),
        )

    def joined(self, more: ImageSet) -> Self:
        """Hold further images of known classes too, each class's after its exemplars."""
        images = more.pixels.fetch(torch.arange(len(more)))
        labels = torch.cat([self.labels, more.labels])
        order = labels.sort(stable=True).indices
        counts = torch.bincount(labels)
        ranks = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[order]]
        both = torch.cat([self.images.to(images.device), images])
        return replace(self, images=both[order.to(both.device)], labels=labels[order], ranks=ranks)

    def balanced_with(self, new: ImageSet, draws: torch.Generator, class_names: tuple[str, ...]) -> ImageSet:
        """Return exemplars and images of further classes, drawn at random, as many of each class as the rarest has."""
        labels = (self.labels, new.labels)
        fewest = min(int(part.unique(return_counts=True)[1].min()) for part in labels)
        orders = [torch.randperm(len(part), generator=draws) for part in labels]
        places = [order[places_in_class(part[order]) < fewest] for part, order in zip(labels, orders, strict=True)]
        images = new.pixels.fetch(places[1])
        both = torch.cat([self.images[places[0].to(self.images.device)].to(images.device), images])
        return ImageSet(Resident(both), torch.cat([self.labels[places[0]], new.labels[places[1]]]), class_names)

    def rechosen(self, images: ImageSet, features: Tensor, num_seen: int, choose: Choose | None = None) -> Self:
        """Choose the exemplars of the classes of `images` again, out of those images, by their `features` [N, D]."""
        other = ~torch.isin(self.labels, images.labels)
        rest = replace(
            self, images=self.images[other.to(self.images.device)], labels=self.labels[other], ranks=self.ranks[other]
        )
        whole = rest.updated(images, features, num_seen, choose)
        order = whole.labels.sort(stable=True).indices
        pixels = whole.images[order.to(whole.images.device)]
        return replace(whole, images=pixels, labels=whole.labels[order], ranks=whole.ranks[order])


def at_random(labels: Tensor, quota: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Choose `quota` random images per class: index, sorted by class and rank, and ranks. Fewer ranks are a subset."""
    order = torch.randperm(len(labels), generator=generator)
    order = order[labels[order].sort(stable=True).indices]
    ranks = places_in_class(labels[order])
    return order[ranks < quota], ranks[ranks < quota]


def herd(features: Tensor, labels: Tensor, quota: int) -> tuple[Tensor, Tensor]:
    """Choose `quota` images per class whose running feature mean follows the class mean (iCaRL, Algorithm 4).

    With phi the L2-normalised features of a class, mu their mean and w = mu: pick argmax <w, phi>; a new pick takes the
    next rank; w += mu - phi[pick] either way; until `quota` picks or 1,000 rounds. Classes too stubborn for that are
    filled with their unpicked images nearest to mu. All classes advance together. A class with fewer images than
    `quota` gives all it has.

    features [N, D], labels [N] -> index of the exemplars [C * quota at most], sorted by class and rank; their ranks.
    """
    labels = labels.to(features.device)
    counts = labels.unique(return_counts=True)[1]
    positions = labels.sort(stable=True).indices
    longest = int(counts.max())
    first = counts.cumsum(0) - counts
    column = torch.arange(longest, device=features.device)
    real = column < counts[:, None]
    padded = positions[(first[:, None] + column).clamp(max=len(labels) - 1)]
    phi = F.normalize(features.float(), dim=1)[padded] * real[..., None]
    mean = phi.sum(1) / counts[:, None]
    quotas = counts.clamp(max=quota)
    rank = _herding_ranks(phi, mean, real, quotas)
    order = rank.sort(dim=1, stable=True).indices[:, :quota]
    kept = torch.arange(order.shape[1], device=features.device) < quotas[:, None]
    ranks = torch.arange(order.shape[1]).expand(len(order), -1)[kept.cpu()]
    return padded.gather(1, order)[kept].cpu(), ranks


def _herding_ranks(phi: Tensor, mean: Tensor, real: Tensor, quotas: Tensor) -> Tensor:
    """Return the rank [C, N] of each image in its class; images beyond its quota [C] rank after it."""
    unpicked = phi.shape[1] + HERDING_LIMIT
    rank = torch.full(phi.shape[:2], unpicked, device=phi.device)
    taken = torch.zeros(len(phi), dtype=torch.int64, device=phi.device)
    rows = torch.arange(len(phi), device=phi.device)
    target = mean.clone()
    for round in range(HERDING_LIMIT):
        score = torch.einsum("cd,cnd->cn", target, phi).masked_fill(~real, -torch.inf)
        pick = score.argmax(1)
        fresh = (rank[rows, pick] == unpicked) & (taken < quotas)
        rank[rows, pick] = torch.where(fresh, taken, rank[rows, pick])
        taken += fresh
        target += mean - phi[rows, pick]
        if round % 32 == 31 and bool((taken >= quotas).all()):
            break
    nearness = torch.einsum("cd,cnd->cn", mean, phi).argsort(dim=1, descending=True).argsort(dim=1)
    rank = torch.where(rank == unpicked, phi.shape[1] + nearness, rank)
    return torch.where(real, rank, 2 * unpicked)


def class_means(features: Tensor, mirrored: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Return the normalised mean [C, D] of each class's exemplars and their mirror images.

    m_c = normalise( (mean of normalised features + mean of normalised features of the mirrored images) / 2 )
    """
    both = (F.normalize(features.float(), dim=1) + F.normalize(mirrored.float(), dim=1)) / 2
    labels = labels.to(both.device)
    total = torch.zeros(num_classes, both.shape[1], device=both.device).index_add_(0, labels, both)
    counts = torch.bincount(labels, minlength=num_classes).clamp(min=1)
    return F.normalize(total / counts[:, None], dim=1)
