"""k-means of all classes at once: against scikit-learn's, against loops in double precision, and at its edges."""

import math
from typing import Any

import pytest
import torch
from claimed_device import claimed_device
from sklearn.cluster import KMeans
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from daydream.nets.kmeans import by_class, k_means, lloyd, spread_start

SIZES = (60, 7, 31, 90)


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def clustered(seed: int, sizes: tuple[int, ...] = SIZES, dim: int = 6) -> tuple[Tensor, Tensor]:
    """Return features around 8 modes a class, classes mixed, and their labels, which begin at 20."""
    generator = drawn(seed)
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    modes = torch.randn(len(sizes), 8, dim, generator=generator)
    features = modes[labels, torch.randint(8, labels.shape, generator=generator)]
    features = features + 0.4 * torch.randn(len(labels), dim, generator=generator)
    mixed = torch.randperm(len(labels), generator=generator)
    return features[mixed], labels[mixed] + 20


def inertia(points: Tensor, centres: Tensor) -> float:
    return float(torch.cdist(points.double(), centres.double()).square().min(1).values.sum())


def slow_lloyd(points: list[list[float]], centres: list[list[float]]) -> tuple[list[list[float]], float]:
    """Move the centres of one class from one start until no point changes its centre; also return J."""
    owners: list[int] = []
    while True:
        squares = [[math.dist(x, m) ** 2 for m in centres] for x in points]
        found = [row.index(min(row)) for row in squares]
        if found == owners:
            return centres, sum(map(min, squares))
        owners = found
        for k in range(len(centres)):
            mine = [x for x, owner in zip(points, owners, strict=True) if owner == k]
            if mine:
                centres = [*centres[:k], [sum(v) / len(mine) for v in zip(*mine, strict=True)], *centres[k + 1 :]]


def test_features_are_sorted_into_classes_in_their_order() -> None:
    features, labels = clustered(0)
    points, real = by_class(features, labels)
    assert points.shape == (4, 90, 6)
    for c, size in enumerate(SIZES):
        assert real[c].tolist() == [True] * size + [False] * (90 - size)
        assert torch.equal(points[c, :size], features[labels == 20 + c])
        assert not points[c, size:].any()


@pytest.mark.parametrize("dim", [6, 64])
@pytest.mark.parametrize("seed", range(4))
def test_as_good_as_scikit_learns(seed: int, dim: int) -> None:
    features, labels = clustered(seed, (200, 100, 300), dim)
    points, real = by_class(features, labels)
    centres = k_means(points, real, 10, drawn(seed))
    for c in range(3):
        mine = points[c, real[c]]
        theirs = KMeans(10, n_init=10, random_state=seed).fit(mine.double().numpy()).inertia_
        assert inertia(mine, centres[c]) <= 1.02 * theirs


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("seed", range(3))
def test_centres_move_as_in_a_loop(seed: int, dtype: torch.dtype) -> None:
    features, labels = clustered(seed)
    points, real = by_class(features.to(dtype), labels)
    start = spread_start(points, real, 5, drawn(seed))
    start[0, 0, 4] = 100.0  # a centre that no point is nearest to
    centres, spread = lloyd(points, real, start)
    for c in range(len(SIZES)):
        mine = points[c, real[c]].double()
        for r in range(3):
            expected, total = slow_lloyd(mine.tolist(), start[c, r].tolist())
            torch.testing.assert_close(centres[c, r], torch.tensor(expected, dtype=dtype), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(float(spread[c, r]), total - float(mine.square().sum()), rtol=1e-4, atol=1e-3)
    assert (centres[0, 0, 4] == 100).all()


def test_the_best_restart_is_taken() -> None:
    points, real = by_class(*clustered(1))
    restarts = lloyd(points, real, spread_start(points, real, 5, drawn(3)))[0]
    found = k_means(points, real, 5, drawn(3))
    for c in range(len(SIZES)):
        totals = [inertia(points[c, real[c]], m) for m in restarts[c]]
        assert max(totals) > 1.001 * min(totals) or SIZES[c] < 10
        assert inertia(points[c, real[c]], found[c]) == pytest.approx(min(totals), rel=1e-5)


def test_starts_are_different_points_of_the_class_and_restarts_differ() -> None:
    points, real = by_class(*clustered(2))
    start = spread_start(points, real, 7, drawn(0))
    for c in range(len(SIZES)):
        picks = (start[c].flatten(0, 1)[:, None] - points[c, real[c]]).abs().sum(2).min(1)
        assert not picks.values.any()
        tens = picks.indices.view(10, 7).tolist()
        assert all(len(set(row)) == 7 for row in tens)
        assert len({tuple(row) for row in tens}) > 5


def test_padding_is_no_point() -> None:
    points, real = by_class(*clustered(3))
    other = points.masked_fill(~real[..., None], 0.5)
    start = spread_start(points, real, 10, drawn(1))
    assert torch.equal(spread_start(other, real, 10, drawn(1)), start)
    for found, expected in zip(lloyd(other, real, start), lloyd(points, real, start), strict=True):
        assert torch.equal(found, expected)
    # Of three points fewer are left than are tried at a time; the 0 of padding, amid them, would be the best second.
    features = torch.cat([torch.tensor([10.0, -1.0, 1.0]), torch.randn(30, generator=drawn(0))])[:, None]
    points, real = by_class(features, torch.tensor([0] * 3 + [1] * 30))
    start = spread_start(points, real, 8, drawn(2))
    assert start[0, :, :3, 0].sort().values.tolist() == [[-1, 1, 10]] * 10


def test_points_are_drawn_by_their_squared_distance() -> None:
    """The second of two centres is the better of two drawn: how often each point is it, by all pairs in turn."""
    values = [0.0, 1.0, 2.5, 4.5]
    points = torch.tensor(values)[:, None].expand(1200, 4, 1)
    start = spread_start(points, torch.ones(1200, 4, dtype=torch.bool), 2, drawn(0)).flatten(0, 1).squeeze(2)
    for first in values:
        seconds = start[start[:, 0] == first, 1]
        assert len(seconds) / len(start) == pytest.approx(1 / 4, abs=0.02)
        weight = {x: (x - first) ** 2 for x in values}
        total = sum(weight.values())
        left = {x: sum(min(weight[y], (y - x) ** 2) for y in values) for x in values}
        expected = dict.fromkeys(values, 0.0)
        for x in values:
            for y in values:
                if len({first, x, y}) == 3:
                    chance = weight[x] / total * weight[y] / (total - weight[x])
                    expected[x if left[x] <= left[y] else y] += chance
        for x in values:
            assert float((seconds == x).float().mean()) == pytest.approx(expected[x], abs=0.04)


def test_a_class_is_clustered_as_if_it_were_alone() -> None:
    features, labels = clustered(5)
    points, real = by_class(features, labels)
    start = spread_start(points, real, 6, drawn(0))
    together = lloyd(points, real, start)[0]
    for c in range(len(SIZES)):
        alone, all_real = by_class(features[labels == 20 + c], labels[labels == 20 + c])
        torch.testing.assert_close(together[c], lloyd(alone, all_real, start[c : c + 1])[0][0])


def test_a_seed_gives_its_centres_again_and_another_seed_other_ones() -> None:
    points, real = by_class(*clustered(6))
    found = k_means(points, real, 10, drawn(1))
    assert torch.equal(found, k_means(points, real, 10, drawn(1)))
    assert not torch.equal(found, k_means(points, real, 10, drawn(2)))


@pytest.mark.parametrize("few", [1, 2, 9])
def test_fewer_points_than_centres_are_taken_in_turn(few: int) -> None:
    features, labels = clustered(7, (few, 40))
    points, real = by_class(features, labels)
    found = k_means(points, real, 10, drawn(0))
    distance = torch.cdist(found[0], points[0, :few], compute_mode="donot_use_mm_for_euclid_dist")
    assert distance.min(1).values.max() < 1e-5
    times = distance.argmin(1).bincount(minlength=few)
    assert times.min() >= 10 // few
    assert times.max() <= math.ceil(10 / few)
    assert len(found[1].unique(dim=0)) == 10


def test_equal_points_are_their_own_centres() -> None:
    same, other = torch.tensor([0.1, -0.7, 0.3]), torch.tensor([0.5, 0.5, 0.5])
    features = torch.cat([same.expand(20, 3), same.expand(10, 3), other.expand(15, 3)])
    points, real = by_class(features, torch.tensor([0] * 20 + [1] * 25))
    found = k_means(points, real, 10, drawn(0))
    torch.testing.assert_close(found[0], same.expand(10, 3))
    distance = torch.stack([(found[1] - x).norm(dim=1) for x in (same, other)])
    assert distance.min(0).values.max() < 1e-6
    assert set(distance.argmin(0).tolist()) == {0, 1}


def test_a_device_gets_what_the_cpu_gets() -> None:
    features, labels = clustered(8)
    expected = k_means(*by_class(features, labels), 10, drawn(0))
    with claimed_device() as device:
        found = k_means(*by_class(features.to(device), labels), 10, drawn(0))
        assert found.device == device
        assert torch.equal(found.cpu(), expected)


def test_products_are_whole_inside_and_what_they_were_after() -> None:
    rounded: list[bool] = []

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "bmm" in str(func):
                rounded.append(torch.backends.cuda.matmul.allow_tf32)
            return func(*args, **(kwargs or {}))

    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        with Products():
            k_means(*by_class(*clustered(9)), 3, drawn(0))
        assert torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert rounded
    assert not any(rounded)
