"""Losses against loops in double precision."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from daydream.losses import (
    cosine_distillation,
    cross_entropy,
    gram,
    pooled_contrast,
    pooled_decoupling,
    semantic_contrast,
    semantic_decoupling,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cross_entropy(dtype: torch.dtype) -> None:
    scores = (4 * torch.randn(6, 5)).to(dtype)
    labels = torch.tensor([0, 4, 2, 2, 1, 3])
    total = 0.0
    for row, label in zip(scores.double().tolist(), labels.tolist(), strict=True):
        total -= math.log(math.exp(row[label]) / sum(math.exp(s) for s in row))
    loss = cross_entropy(scores, labels)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(total / 6, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cosine_distillation(dtype: torch.dtype) -> None:
    new, old = torch.randn(6, 5).to(dtype), (3 * torch.randn(6, 5)).to(dtype)
    total = 0.0
    for a, b in zip(new.double().tolist(), old.double().tolist(), strict=True):
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        total += 1 - dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    loss = cosine_distillation(new, old)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(total / 6, rel=1e-5)


def test_cosine_distillation_of_equal_and_opposite_features() -> None:
    z = torch.randn(4, 8)
    assert float(cosine_distillation(2 * z, z)) == pytest.approx(0, abs=1e-6)
    assert float(cosine_distillation(-z, z)) == pytest.approx(2)


# --- the generators' losses ------------------------------------------------------------------------------------------

Grid = list[list[list[float]]]
"""One sample's map [C][H][W]."""


def maps(seed: int, channels: int = 3, height: int = 4, width: int = 5) -> Tensor:
    return 2 * torch.randn(6, channels, height, width, generator=torch.Generator().manual_seed(seed))


def distance(a: list[float], b: list[float]) -> float:
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def unit(values: list[float]) -> list[float]:
    length = math.sqrt(sum(v * v for v in values))
    return [v / length for v in values]


def gram_by_loop(grid: Grid) -> list[float]:
    rows = [[v for line in channel for v in line] for channel in grid]
    return [sum(x * y for x, y in zip(a, b, strict=True)) for a in rows for b in rows]


def unit_channels(grid: Grid) -> Grid:
    return [[unit([v for line in channel for v in line])] for channel in grid]


def averages(grid: Grid) -> list[float]:
    return [sum(map(sum, channel)) / (len(channel) * len(channel[0])) for channel in grid]


def lines(grid: Grid) -> list[float]:
    """Energy along each row and each column of each channel."""
    found = []
    for channel in grid:
        found += [sum(v * v for v in line) for line in channel]
        found += [sum(line[x] ** 2 for line in channel) for x in range(len(channel[0]))]
    return unit(found)


def places(grid: Grid) -> list[float]:
    """Energy at each pixel."""
    return unit([sum(c[y][x] ** 2 for c in grid) for y in range(len(grid[0])) for x in range(len(grid[0][0]))])


def mean_distance(a: Tensor, b: Tensor, of: Callable[[Grid], list[float]]) -> float:
    pairs = zip(a.double().tolist(), b.double().tolist(), strict=True)
    return sum(distance(of(x), of(y)) for x, y in pairs) / len(a)


def test_gram() -> None:
    found = gram(maps(1))
    assert found.shape == (6, 3, 3)
    for i, grid in enumerate(maps(1).double().tolist()):
        assert found[i].flatten().tolist() == pytest.approx(gram_by_loop(grid), rel=1e-4, abs=1e-4)


def test_semantic_contrast() -> None:
    expected = mean_distance(maps(1), maps(2), averages)
    assert float(semantic_contrast(maps(1), maps(2))) == pytest.approx(expected, rel=1e-5)


def test_semantic_decoupling() -> None:
    expected = mean_distance(maps(1), maps(2), gram_by_loop)
    assert float(semantic_decoupling(maps(1), maps(2))) == pytest.approx(expected, rel=1e-5)


def test_pooled_contrast() -> None:
    expected = mean_distance(maps(1), maps(2), lines) + mean_distance(maps(1), maps(2), places)
    assert float(pooled_contrast(maps(1), maps(2))) == pytest.approx(expected, rel=1e-5)


def test_pooled_decoupling() -> None:
    """A mean over samples and over the rows of the Gram matrix."""
    total = 0.0
    for mixed, style in zip(maps(1).double().tolist(), maps(2).double().tolist(), strict=True):
        a, b = gram_by_loop(unit_channels(mixed)), gram_by_loop(unit_channels(style))
        total += sum(distance(a[i : i + 3], b[i : i + 3]) for i in (0, 3, 6)) / 3
    assert float(pooled_decoupling(maps(1), maps(2))) == pytest.approx(total / 6, rel=1e-5)


@pytest.mark.parametrize("loss", [semantic_contrast, semantic_decoupling, pooled_contrast, pooled_decoupling])
def test_equal_maps_cost_nothing_and_low_precision_is_summed_in_high(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    assert float(loss(maps(1), maps(1))) == 0
    low = loss(maps(1).bfloat16(), maps(2).bfloat16())
    assert low.dtype == torch.float32
    assert float(low) == pytest.approx(float(loss(maps(1), maps(2))), rel=0.02)
