"""Ridge regression on frozen features: a function of sums over pictures, so nothing is forgotten.

For features z_i (unit length), one-hot labels y_i and weights w_i, equal in total for every class, W and b minimise

    sum_i w_i |y_i - W z_i - b|^2 + lambda |W|^2.

Which lambda of a fixed grid follows from pictures left out in turn. That needs no second fit: with the centred,
weighted features A = sqrt(w) (z - mean) and targets B, H = A (A'A + lambda)^-1 A' + sqrt(w) sqrt(w)' / sum w, the
residual of a picture that was left out is (B - H B)_i / (1 - H_ii). Without the features, from sums alone, generalised
cross-validation puts the mean of H_ii in the place of each.

Scores of pictures left out are judged after the one factor a >= 0 that serves them best, since a temperature will scale
them anyway and a large lambda only shortens them. With t_i = y_i - 1 / C and s_i the score less 1 / C,

    error = sum_i w_i |t_i - a s_i|^2,   a = max(0, sum_i w_i t_i . s_i / sum_i w_i |s_i|^2).

The largest lambda is taken whose error is not two standard errors above the least: few pictures tell so little of it
that the least alone is often at the grid's end, where the classifier runs through every picture. The only picture of a
class does not count there: its error without it is the same whatever lambda, and heavy, so that the largest of all was
taken. The others tell nothing of such a class, so that it is not lost among them lambda stays above a bound.

Everything is computed in float64.

Shapes: N pictures, D features, C classes, L strengths of the grid, R rank.
"""

import contextlib
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream import rng
from daydream.nets.threads import one_each

GRID = tuple(10 ** (k / 2) for k in range(-8, 9))
"""Strengths lambda, in units of the mean squared length of the centred features."""
LONELY = 10.0
"""The least strength beside a class of one picture, whose own error tells nothing: without it the class is unknown."""
CLOSE = 1e-9  # errors nearer than this share of the least are equal, and the larger strength is taken
SURE = 2.0  # standard errors of the difference by which a larger strength must be worse for it not to be taken
RANK = 1e-12  # eigenvalues below this share of the largest are rounding
WIDEST = 4096
ROWS = 4096  # pictures judged at once: bounds the memory that takes
SCORES = 4 * 10**6  # scores computed for each strength: of more, every so many pictures in their order are judged
SMALL = 5000  # pictures up to which one thread fits them soonest
PROJECTED = 2000  # pictures up to which a projection is tried: above, its eigenvectors take minutes


def normalised(features: Tensor) -> Tensor:
    """Return features [N, D] at unit length, in float64."""
    return F.normalize(features.double(), dim=1)


def balanced(labels: Tensor, classes: int) -> Tensor:
    """Return weights w_i = N / (C n_c) [N] by which each of the C classes that has pictures counts as much."""
    counts = torch.bincount(labels, minlength=classes).double()
    weights: Tensor = len(labels) / (counts > 0).sum() / counts
    return weights[labels]


@dataclass(frozen=True)
class Projection:
    """A random projection and a ReLU, z -> max(0, z P) / sqrt(M), P [D, M] with standard normal entries."""

    width: int
    seed: int = 0

    def matrix(self, dim: int) -> Tensor:
        """Return P, float32."""
        draws = rng.generator(self.seed, "projection", dim, self.width)
        return torch.randn(dim, self.width, generator=draws, dtype=torch.float32)

    def __call__(self, z: Tensor) -> Tensor:
        return F.relu(z @ _drawn(self, z.shape[1], z.dtype, z.device)) / math.sqrt(self.width)


@functools.lru_cache(maxsize=2)
def _drawn(projection: Projection, dim: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a projection's matrix, drawn once: that takes longer than a prediction."""
    return projection.matrix(dim).to(device, dtype)


@dataclass(frozen=True)
class Ridge:
    """A fitted classifier."""

    weight: Tensor
    """[C, D], or [C, M] on projected features."""
    bias: Tensor
    """[C]."""
    strength: float
    """lambda, in units of the grid."""
    projection: Projection | None = None

    def scores(self, features: Tensor) -> Tensor:
        """Return scores [N, C] of features [N, D]: near 1 for a picture's class, near 0 for the others."""
        z = normalised(features).to(self.weight.device)
        z = z if self.projection is None else self.projection(z)
        return z @ self.weight.T + self.bias


@dataclass(frozen=True)
class Fit:
    """A classifier, and what each picture scores under one fitted without it."""

    ridge: Ridge
    left_out: Tensor
    """[N, C]."""
    errors: Tensor
    """[L] weighted mean squared error on pictures left out, their scores scaled."""
    losses: Tensor
    """[N] weighted squared error of each at the strength of the least error; of very many pictures, of some."""


@dataclass(frozen=True)
class _Spectrum:
    """Centred features A = P V' with P'P = diag(values), and what was taken away."""

    basis: Tensor
    """V [D, R]."""
    places: Tensor
    """P [N, R]."""
    values: Tensor
    """[R]."""
    mean: Tensor
    """[D]."""
    unit: float
    """Mean squared length."""


def _spectrum(z: Tensor, weights: Tensor) -> _Spectrum:
    """Decompose the weighted, centred features by whichever of A A' and A'A is smaller."""
    mean = weights @ z / weights.sum()
    a = weights.sqrt()[:, None] * (z - mean)
    if len(z) <= z.shape[1]:
        values, u = torch.linalg.eigh(a @ a.T)
        values, u = _above_rounding(values, u)
        places = u * values.sqrt()
        basis = a.T @ (u / values.sqrt())
    else:
        values, basis = torch.linalg.eigh(a.T @ a)
        values, basis = _above_rounding(values, basis)
        places = a @ basis
    return _Spectrum(basis, places, values, mean, _unit(values.sum() / weights.sum()))


def _above_rounding(values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    kept = values > RANK * values.max().clamp(min=RANK)
    return values[kept], vectors[:, kept]


def _unit(length: Tensor) -> float:
    """Return the grid's unit; pictures that are all alike have none, and any will do."""
    return float(length) if float(length) > RANK else 1.0


def fit(
    features: Tensor,
    labels: Tensor,
    classes: int,
    *,
    grid: Sequence[float] = GRID,
    weights: Tensor | None = None,
    projection: Projection | None = None,
) -> Fit:
    """Fit features [N, D] with labels [N]; the strength by leave-one-out, the largest that is not clearly worse.

    Of very many pictures the strength is chosen by a part, which depends on their order: whoever wants the same fit of
    the same pictures gives them in the same order.
    """
    w = balanced(labels, classes) if weights is None else weights.double()
    with one_each() if len(labels) <= SMALL else contextlib.nullcontext():
        return _fitted(features, labels, classes, grid, w, projection)


def _fitted(
    features: Tensor, labels: Tensor, classes: int, grid: Sequence[float], w: Tensor, projection: Projection | None
) -> Fit:
    root, share = w.sqrt()[:, None], w / w.sum()
    s = _spectrum(normalised(features) if projection is None else projection(normalised(features)), w)
    shift = torch.zeros(classes, dtype=torch.float64, device=w.device).index_add_(0, labels, share)
    portions = torch.arange(len(labels), device=labels.device).split(ROWS)  # no [N, C] but the result is ever held
    turned = torch.zeros(classes, len(s.values), dtype=torch.float64, device=w.device)
    for rows in portions:
        turned.index_add_(0, labels[rows], root[rows] * s.places[rows])
    turned = turned.T - torch.outer(s.places.T @ root[:, 0], shift)

    def missed(strength: float, rows: Tensor) -> Tensor:
        """Return y - score [B, C] of some pictures, each under the classifier fitted without it."""
        shrunk = 1 / (s.values + strength * s.unit)
        places = s.places[rows]
        leverage = places**2 @ shrunk + share[rows]
        fitted = places @ (shrunk[:, None] * turned)
        target = root[rows] * (F.one_hot(labels[rows], classes) - shift)
        return (target - fitted) / root[rows] / (1 - leverage).clamp(min=RANK)[:, None]

    every = max(1, math.ceil(len(labels) * classes / SCORES))
    some = (torch.bincount(labels)[labels] > 1).nonzero().squeeze(1)[::every]
    if bool((torch.bincount(labels) == 1).any()):
        grid = [strength for strength in grid if strength >= LONELY] or grid[-1:]

    def losses_of(strength: float) -> Tensor:
        """Return the weighted squared error of some pictures, all their scores scaled by one number."""
        parts = [_products(labels[rows], missed(strength, rows)) for rows in some.split(ROWS)]
        product, square = torch.cat(parts).T
        weight = share[some] / share[some].mean()
        scale = (weight @ product / (weight @ square).clamp(min=RANK)).clamp(min=0)
        found: Tensor = weight * (1 - 1 / classes - 2 * scale * product + scale**2 * square)
        return found

    tried = torch.stack([losses_of(strength) for strength in grid])
    chosen = _largest(tried) if len(some) else 0
    left_out = torch.empty(len(labels), classes, dtype=torch.float64, device=w.device)
    for rows in portions:
        left_out[rows] = F.one_hot(labels[rows], classes) - missed(grid[chosen], rows)
    weight = s.basis @ (turned / (s.values + grid[chosen] * s.unit)[:, None])
    ridge = Ridge(weight.T.contiguous(), shift - s.mean @ weight, grid[chosen], projection)
    errors = tried.mean(1)
    return Fit(ridge, left_out, errors, tried[errors.argmin()])


def _products(labels: Tensor, gap: Tensor) -> Tensor:
    """Return [B, 2]: scores less 1 / C, times the target less 1 / C and times themselves; gap [B, C] is y - score."""
    classes = gap.shape[1]
    y = F.one_hot(labels, classes) - 1 / classes
    s = y - gap
    return torch.stack([(y * s).sum(1), (s * s).sum(1)], 1)


def _largest(losses: Tensor) -> int:
    """Return the place of the largest strength whose losses [L, N] are not clearly worse than the least."""
    errors = losses.mean(1)
    worse = losses - losses[errors.argmin()]
    doubt = SURE * worse.std(1, correction=0) / losses.shape[1] ** 0.5
    near = worse.mean(1) <= doubt + CLOSE * errors.min()
    return int(near.nonzero().max())


def fit_best(features: Tensor, labels: Tensor, classes: int, *, widest: int = WIDEST) -> Fit:
    """Fit features, and projected ones where leaving out prefers them: by two standard errors of the difference."""
    plain = fit(features, labels, classes)
    if not 2 * classes < len(labels) <= PROJECTED or classes < 2 or widest < 1:  # one picture a class says nothing
        return plain
    wide = fit(features, labels, classes, projection=Projection(min(widest, WIDEST)))
    gain = plain.losses - wide.losses
    return wide if float(gain.mean()) > 2 * float(gain.std() / len(gain) ** 0.5) else plain


def _least(errors: Tensor) -> int:
    """Return the place of the least error, the last of those that are equal."""
    near = errors <= errors.min() * (1 + CLOSE)
    return int(near.nonzero().max())


@dataclass(frozen=True)
class Sums:
    """All that ridge regression needs of pictures: their second moment, and sum and number of each class."""

    second: Tensor
    """[D, D]: sum_i z_i z_i'."""
    sums: Tensor
    """[C, D]."""
    counts: Tensor
    """[C]."""

    @classmethod
    def empty(cls, dim: int, device: torch.device | None = None) -> Self:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.float64, device=device)

        return cls(zeros(dim, dim), zeros(0, dim), zeros(0))

    @classmethod
    def of(cls, z: Tensor, labels: Tensor, classes: int) -> Self:
        """Add up features [N, D] as they are."""
        z, labels = z.double(), labels.to(z.device)
        sums = torch.zeros(classes, z.shape[1], dtype=torch.float64, device=z.device).index_add_(0, labels, z)
        return cls(z.T @ z, sums, torch.bincount(labels, minlength=classes).double())

    def widened(self, classes: int) -> Self:
        """Return the same sums with room for more classes."""
        more = classes - len(self.counts)
        return replace(self, sums=F.pad(self.sums, (0, 0, 0, more)), counts=F.pad(self.counts, (0, more)))

    def __add__(self, other: "Sums") -> Self:
        classes = max(len(self.counts), len(other.counts))
        ours, theirs = self.widened(classes), other.widened(classes)
        return replace(
            self, second=ours.second + theirs.second, sums=ours.sums + theirs.sums, counts=ours.counts + theirs.counts
        )

    def __sub__(self, other: "Sums") -> Self:
        return self + replace(other, second=-other.second, sums=-other.sums, counts=-other.counts)

    @property
    def means(self) -> Tensor:
        """Return each class's mean [C, D]; of a class without pictures, zero."""
        return self.sums / self.counts.clamp(min=1)[:, None]


def fit_sums(sums: Sums, *, grid: Sequence[float] = GRID, projection: Projection | None = None) -> Ridge:
    """Fit from sums alone; the strength by generalised cross-validation, ties to the larger.

    Where classes differ in number, weights per picture would need a second moment of each class. In their place the
    scatter within classes is pooled as it came, and class means count alike:

        A'A = S - sum_c n_c m_c m_c' + N / C sum_c (m_c - m) (m_c - m)',   A'B = N / C sum_c (m_c - m) (e_c - 1 / C)'.

    With equal numbers that is the weighted fit itself. Scores left out are S = (H B - h B) / (1 - h), h = trace H / N,
    and their error, after the factor that serves them best, is |B|^2 - (B . S)^2 / |S|^2.
    """
    present = sums.counts > 0
    means, counts = sums.means[present], sums.counts[present]
    classes, total = len(counts), float(counts.sum())
    mean = means.mean(0)
    apart = (means - mean) * (total / classes) ** 0.5
    within = sums.second - (means * counts[:, None]).T @ means
    with one_each():
        values, basis = torch.linalg.eigh(within + apart.T @ apart)
    values, basis = _above_rounding(values, basis)
    unit = _unit(values.sum() / total)
    ideal = (torch.eye(classes, dtype=torch.float64, device=means.device) - 1 / classes) * (total / classes) ** 0.5
    cross = basis.T @ (apart.T @ ideal)
    length = (ideal**2).sum()

    def error(strength: float) -> Tensor:
        shrunk = 1 / (values + strength * unit)
        leverage = ((values * shrunk).sum() + 1) / total
        free = (1 - leverage).clamp(min=RANK)
        hit, size = (shrunk[:, None] * cross**2).sum(), ((values * shrunk**2)[:, None] * cross**2).sum()
        product = ((hit - leverage * length) / free).clamp(min=0)
        square = (size - 2 * leverage * hit + leverage**2 * length) / free**2
        rest: Tensor = length - product**2 / square.clamp(min=RANK)
        return rest

    chosen = _least(torch.stack([error(strength) for strength in grid]))
    weight = basis @ (cross / (values + grid[chosen] * unit)[:, None])
    whole = torch.zeros(len(present), weight.shape[0], dtype=torch.float64, device=weight.device)
    bias = torch.full((len(present),), -torch.inf, dtype=torch.float64, device=weight.device)
    whole[present], bias[present] = weight.T, 1 / classes - mean @ weight
    return Ridge(whole, bias, grid[chosen], projection)
