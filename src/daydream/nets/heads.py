"""Heads: features to class scores. A head grows by blocks of classes, so that old classes can be frozen as they are.

Shapes: B samples, D feature dimensions, C classes, P weight vectors per class (proxies).
"""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from daydream.nets.cosine_ops import nearest_proxies, unit
from daydream.nets.kmeans import by_class, k_means

PROXIES = 10  # per class: PODNet section 3.2, and the paper's released configuration


class Head(nn.Module):
    """Class weights in blocks, one block per growth, each a parameter [classes, P, D]."""

    vectors: ClassVar[int] = 1

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.weights = nn.ParameterList()

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(w) for w in self.weights)

    @property
    def num_classes(self) -> int:
        return sum(self.sizes)

    def grow(self, classes: int, weight: Tensor | None = None) -> None:
        """Add a block of classes, with random weights or the given ones [classes, P, D]."""
        device = self.weights[0].device if len(self.weights) else None
        if weight is None:
            weight = self.random_weight(classes)
        assert weight.shape == (classes, self.vectors, self.dim), weight.shape
        self.weights.append(nn.Parameter(weight.detach().clone().to(device)))

    def random_weight(self, classes: int) -> Tensor:
        """Return random weights [classes, P, D]."""
        return torch.randn(classes, self.vectors, self.dim) / math.sqrt(self.dim)

    def widen(self, classes: int) -> None:
        """Add classes with random weights to the last block."""
        known = self.weights[-1].detach()
        self.weights[-1] = nn.Parameter(torch.cat([known, self.random_weight(classes).to(known)]))

    def narrow(self, classes: int) -> None:
        """Keep the first `classes` of the last block."""
        self.weights[-1] = nn.Parameter(self.weights[-1].detach()[:classes].clone())

    def weight(self) -> Tensor:
        """Return the weights of all classes [C, P, D]."""
        return torch.cat(list(self.weights))

    def block(self, index: int) -> list[nn.Parameter]:
        """Return the parameters of one block of classes."""
        return [self.weights[index]]

    def shared(self) -> list[nn.Parameter]:
        """Return the parameters that belong to no single block."""
        return []


class LinearHead(Head):
    """scores = W z + b."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.biases = nn.ParameterList()

    def grow(self, classes: int, weight: Tensor | None = None) -> None:
        super().grow(classes, weight)
        self.biases.append(nn.Parameter(torch.zeros(classes, device=self.weights[-1].device)))

    def widen(self, classes: int) -> None:
        super().widen(classes)
        known = self.biases[-1].detach()
        self.biases[-1] = nn.Parameter(torch.cat([known, known.new_zeros(classes)]))

    def narrow(self, classes: int) -> None:
        super().narrow(classes)
        self.biases[-1] = nn.Parameter(self.biases[-1].detach()[:classes].clone())

    def block(self, index: int) -> list[nn.Parameter]:
        return [self.weights[index], self.biases[index]]

    @torch.no_grad()
    def rescale(self, index: int, alpha: Tensor, beta: Tensor) -> None:
        """Turn the scores s of a block into alpha s + beta, by its weights and biases."""
        self.weights[index].mul_(alpha)
        self.biases[index].mul_(alpha).add_(beta)

    def forward(self, z: Tensor) -> Tensor:
        return F.linear(z, self.weight().squeeze(1), torch.cat(list(self.biases)))


class PlainHead(Head):
    """scores = W z: a linear head without bias."""

    def forward(self, z: Tensor) -> Tensor:
        return F.linear(z, self.weight().squeeze(1))


class CosineHead(Head):
    """scores = sigma cos(z, w), with one learnable scale sigma, 1 at the start (UCIR, section 3.2)."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.scale = nn.Parameter(torch.ones(()))

    def shared(self) -> list[nn.Parameter]:
        return [self.scale]

    def cosines(self, z: Tensor) -> Tensor:
        """Return cos(z, w) [B, C]."""
        return unit(z) @ unit(self.weight().squeeze(1)).T

    def forward(self, z: Tensor) -> Tensor:
        return self.scale * self.cosines(z)


class FoldedCosineHead(CosineHead):
    """scores = sigma z^ . v, the class weights v as they are: for a cosine head whose weights have been changed."""

    def cosines(self, z: Tensor) -> Tensor:
        """Return z^ . v [B, C]."""
        return unit(z) @ self.weight().squeeze(1).T


class ProxyHead(Head):
    """Local similarity classifier (PODNet, section 3.2), with the scale of the paper's released configuration.

    s_cp = -|a z^ - a w^_cp|^2 = -2 a^2 (1 - cos(z, w_cp)) and score_c = sum_p softmax_p(s_c) s_cp, with a = 3.
    """

    vectors = PROXIES
    a: ClassVar[float] = 3.0

    def forward(self, z: Tensor) -> Tensor:
        cosines = unit(z) @ unit(self.weight()).flatten(0, 1).T
        return nearest_proxies(cosines, self.vectors, 2 * self.a**2)


class ScaledProxyHead(ProxyHead):
    """The same with a = 1, its scores times one learnable scale eta, 1 at the start (PODNet's CNN configuration)."""

    a = 1.0

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.scale = nn.Parameter(torch.ones(()))

    def shared(self) -> list[nn.Parameter]:
        return [self.scale]

    def forward(self, z: Tensor) -> Tensor:
        return self.scale * super().forward(z)


class UnitHead(LinearHead):
    """scores = W z^ + b, features at unit length: ridge regression as the exact learner fits it."""

    def forward(self, z: Tensor) -> Tensor:
        return super().forward(F.normalize(z, dim=1))


class ProjectedHead(LinearHead):
    """scores = W max(0, z^ P) / sqrt(M) + b, with a projection P [D, M] that stays as it is."""

    width: ClassVar[int] = 4096

    def __init__(self, dim: int) -> None:
        super().__init__(self.width)
        self.projection = nn.Parameter(torch.zeros(dim, self.width), requires_grad=False)

    def shared(self) -> list[nn.Parameter]:
        return [self.projection]

    def forward(self, z: Tensor) -> Tensor:
        wide = F.relu(F.normalize(z, dim=1) @ self.projection) / math.sqrt(self.width)
        return super().forward(wide)


HEADS: dict[str, type[Head]] = {
    "linear": LinearHead,
    "plain": PlainHead,
    "cosine": CosineHead,
    "folded-cosine": FoldedCosineHead,
    "proxy": ProxyHead,
    "scaled-proxy": ScaledProxyHead,
    "unit": UnitHead,
    "projected": ProjectedHead,
}


def imprint(features: Tensor, labels: Tensor, vectors: int, norm: Tensor, generator: torch.Generator) -> Tensor:
    """Return weights [C, P, D] for new classes: k-means centres of each class's normalised features, scaled.

    features [N, D], labels [N] of C consecutive classes; `norm` is the mean norm of the weights already there. One
    vector per class is the class mean (UCIR's imprinting); more are k-means centres (PODNet's).
    """
    phi, real = by_class(F.normalize(features.float(), dim=1), labels)
    if vectors == 1:
        mean = phi.sum(1) / real.sum(1, keepdim=True)
        return F.normalize(mean, dim=1)[:, None] * norm
    return k_means(phi, real, vectors, generator) * norm
