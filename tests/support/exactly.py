"""Pictures for the exact learner, as features and digests, without pictures."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from daydream.learner import exact
from daydream.learner.exact import ExactModel


@dataclass(frozen=True)
class Pictures:
    """Labelled features with digests."""

    names: tuple[str, ...]
    labels: Tensor
    digests: Tensor
    features: Tensor

    def where(self, index: Tensor) -> "Pictures":
        return Pictures(self.names, self.labels[index], self.digests[index], self.features[index])

    def of(self, *names: str) -> "Pictures":
        return self.where(torch.isin(self.labels, torch.tensor([self.names.index(name) for name in names])))

    def taught(self, before: ExactModel | None = None, **settings: bool) -> ExactModel:
        return exact.learn(before, "net", self.names, self.labels, self.digests, self.features, **settings)


def pictures(
    counts: Sequence[int] = (12, 9, 10, 11), dim: int = 24, apart: float = 1.0, seed: int = 0, draw: int = 0
) -> Pictures:
    """Return pictures of classes a, b, c, … around means that the seed decides."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    means = apart * torch.randn(len(counts), dim, generator=torch.Generator().manual_seed(seed))
    draws = torch.Generator().manual_seed(1000 + draw)
    features = means[labels] + torch.randn(len(labels), dim, generator=draws)
    digests = torch.randint(-(2**62), 2**62, (len(labels),), generator=draws)
    return Pictures(tuple("abcdefgh"[: len(counts)]), labels, digests, features)


def by_name(model: ExactModel, features: Tensor) -> Tensor:
    """Return probabilities with classes in alphabetical order."""
    order = sorted(range(len(model.names)), key=model.names.__getitem__)
    return exact.probabilities(model, features)[:, order]
