"""The pictures that an exact model knows, in one order whatever order they came in.

Shapes: N pictures, D features, C classes.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream.nets.ridge import Sums, normalised

CHUNK = 256  # pictures compared with all others at once


@dataclass(frozen=True)
class Known:
    """The pictures a model knows, by class name and then by digest."""

    names: tuple[str, ...]
    """In order of arrival; labels index them."""
    labels: Tensor
    """[N] int64."""
    digests: Tensor
    """[N] int64: of the pixels."""
    features: Tensor | None
    """[N, D] float32; None where only sums are kept."""
    sums: Sums | None = None
    """In place of features: of unit features, classes as in `names`."""

    @property
    def counts(self) -> Tensor:
        """Return the pictures of each class [C]."""
        return torch.bincount(self.labels, minlength=len(self.names))

    def where(self, keep: Tensor) -> "Known":
        """Return the pictures of a mask, without classes that have none left."""
        kept = replace(
            self,
            labels=self.labels[keep],
            digests=self.digests[keep],
            features=None if self.features is None else self.features[keep],
        )
        present = kept.counts > 0
        place = present.cumsum(0) - 1
        names = tuple(name for name, there in zip(self.names, present.tolist(), strict=True) if there)
        sums = None if self.sums is None else replace(
            self.sums, sums=self.sums.sums[present], counts=self.sums.counts[present]
        )  # fmt: skip
        return replace(kept, names=names, labels=place[kept.labels], sums=sums)


def ranks(names: tuple[str, ...]) -> Tensor:
    """Return the place of each name in alphabetical order [C]."""
    place = {name: rank for rank, name in enumerate(sorted(names))}
    return torch.tensor([place[name] for name in names])


def ordered(known: Known) -> Known:
    """Return the pictures by class name and digest, each once."""
    order = known.digests.argsort(stable=True)
    order = order[ranks(known.names)[known.labels[order]].argsort(stable=True)]
    labels, digests = known.labels[order], known.digests[order]
    first = torch.ones(len(order), dtype=torch.bool)
    first[1:] = (labels[1:] != labels[:-1]) | (digests[1:] != digests[:-1])
    features = None if known.features is None else known.features[order][first]
    return replace(known, labels=labels[first], digests=digests[first], features=features)


def joined(known: Known, lesson: Known) -> Known:
    """Return the pictures of both; `lesson` names the classes of both, those of `known` first."""
    features = None
    if known.features is not None and lesson.features is not None:
        features = torch.cat([known.features, lesson.features])
    sums = known.sums + lesson.sums if known.sums is not None and lesson.sums is not None else None
    labels, digests = torch.cat([known.labels, lesson.labels]), torch.cat([known.digests, lesson.digests])
    return ordered(Known(lesson.names, labels, digests, features, sums))


def summed(known: Known) -> Known:
    """Return the pictures with sums in the place of features."""
    assert known.features is not None
    sums = Sums.of(normalised(known.features), known.labels, len(known.names))
    return replace(known, features=None, sums=sums)


def among(labels: Tensor, digests: Tensor, known: Known) -> Tensor:
    """Return which pictures [N] are known under the same class."""
    pairs = set(zip(known.labels.tolist(), known.digests.tolist(), strict=True))
    return torch.tensor(
        [pair in pairs for pair in zip(labels.tolist(), digests.tolist(), strict=True)], dtype=torch.bool
    )


def nearest_other(known: Known, some: Tensor) -> Tensor:
    """Return the cosine [M] of some pictures to the nearest of all others; of a picture alone, -1."""
    assert known.features is not None
    z = F.normalize(known.features, dim=1)
    found = [torch.zeros(0)]
    for rows in some.split(CHUNK):
        cosines = z[rows] @ z.T
        cosines[torch.arange(len(rows)), rows] = -1
        found.append(cosines.amax(1))
    return torch.cat(found).double()
