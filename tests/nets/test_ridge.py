"""Ridge regression against slow references: normal equations written out, and really fitting without each picture."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from daydream.nets import ridge
from daydream.nets.ridge import GRID, Projection, Sums, balanced, fit, fit_best, fit_sums, normalised

CLASSES = 4


def pictures(
    counts: tuple[int, ...] = (7, 5, 6, 4), dim: int = 12, seed: int = 0, apart: float = 1.5
) -> tuple[Tensor, Tensor]:
    """Return features of classes around their means, in a shuffled order, with labels."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    means = apart * torch.randn(len(counts), dim, generator=draws)
    order = torch.randperm(len(labels), generator=draws)
    return (means[labels] + torch.randn(len(labels), dim, generator=draws))[order], labels[order]


def solved(z: Tensor, y: Tensor, w: Tensor, penalty: float) -> Tensor:
    """Return [D + 1, C] that minimises sum_i w_i |y_i - (z_i, 1) W|^2 + penalty |W without its last row|^2."""
    z = torch.cat([z, torch.ones(len(z), 1, dtype=torch.float64)], 1)
    left, right = torch.zeros(z.shape[1], z.shape[1], dtype=torch.float64), torch.zeros(z.shape[1], y.shape[1]).double()
    for zi, yi, wi in zip(z, y, w, strict=True):
        left += wi * torch.outer(zi, zi)
        right += wi * torch.outer(zi, yi)
    for place in range(z.shape[1] - 1):
        left[place, place] += penalty
    return torch.linalg.solve(left, right)


def unit_of(z: Tensor, w: Tensor) -> float:
    mean = (w[:, None] * z).sum(0) / w.sum()
    return float((w[:, None] * (z - mean) ** 2).sum() / w.sum())


@pytest.mark.parametrize("dim", [12, 40])  # fewer features than pictures, and more
@pytest.mark.parametrize("strength", [0.01, 1.0])
def test_it_solves_the_weighted_normal_equations(dim: int, strength: float) -> None:
    features, labels = pictures(dim=dim)
    z, w, y = normalised(features), balanced(labels, CLASSES), F.one_hot(labels).double()
    reference = solved(z, y, w, strength * unit_of(z, w))
    found = fit(features, labels, CLASSES, grid=(strength,)).ridge
    assert torch.allclose(found.weight, reference[:-1].T, atol=1e-9)
    assert torch.allclose(found.bias, reference[-1], atol=1e-9)


@pytest.mark.parametrize("dim", [12, 40])
@pytest.mark.parametrize("projection", [None, Projection(30)])
def test_leaving_one_out_is_really_fitting_without_it(dim: int, projection: Projection | None) -> None:
    features, labels = pictures(dim=dim)
    z, w, y = normalised(features), balanced(labels, CLASSES), F.one_hot(labels).double()
    z = z if projection is None else projection(z)
    grid, losses, scores = (0.01, 0.3, 10.0), [], []
    for strength in grid:
        rows, penalty = [], strength * unit_of(z, w)
        for place in range(len(z)):
            rest = torch.arange(len(z)) != place
            weight = solved(z[rest], y[rest], w[rest], penalty)
            rows.append(z[place] @ weight[:-1] + weight[-1])
        scores.append(torch.stack(rows))
        losses.append(scaled_losses(y, scores[-1], w))
    errors = [float(own.mean()) for own in losses]
    found = fit(features, labels, CLASSES, grid=grid, projection=projection)
    assert torch.allclose(found.errors, torch.tensor(errors, dtype=torch.float64), atol=1e-8)
    best = min(range(len(grid)), key=errors.__getitem__)
    for place in range(len(grid)):  # the last that is not clearly worse
        gap = losses[place] - losses[best]
        if float(gap.mean()) <= 2 * float(gap.var(correction=0) / len(gap)) ** 0.5:
            chosen = place
    assert found.ridge.strength == grid[chosen]
    assert torch.allclose(found.left_out, scores[chosen], atol=1e-7)
    assert torch.allclose(found.losses, losses[best], atol=1e-6)


def scaled_losses(y: Tensor, scores: Tensor, w: Tensor) -> Tensor:
    """Return the weighted squared error [N] of scores about 1 / C, all multiplied by the best factor above 0."""
    middle = 1 / y.shape[1]

    def losses(factor: float) -> Tensor:
        return w * (y - middle - factor * (scores - middle)).square().sum(1) * len(w) / w.sum()

    low, high = 0.0, 1e5
    for _ in range(200):  # the error is convex in the factor
        third = (high - low) / 3
        if float(losses(low + third).sum()) < float(losses(high - third).sum()):
            high -= third
        else:
            low += third
    return losses(low)


def test_few_pictures_do_not_drive_the_strength_to_the_ends_of_the_grid() -> None:
    chosen = [fit(*pictures((5,) * 4, dim=200, seed=seed, apart=0.6), 4).ridge.strength for seed in range(8)]
    assert min(chosen) >= 0.1


def test_equal_errors_take_the_larger_strength() -> None:
    alike = torch.ones(6, 5)
    assert fit(alike, torch.tensor([0, 0, 0, 1, 1, 1]), 2, grid=(0.1, 1.0, 10.0)).ridge.strength == 10.0


def test_every_class_weighs_as_much() -> None:
    labels = torch.tensor([0] * 20 + [1] * 2)
    weights = balanced(labels, 3)
    assert float(weights.sum()) == pytest.approx(22)
    assert float(weights[labels == 0].sum()) == pytest.approx(float(weights[labels == 1].sum()))


def test_a_large_class_does_not_swallow_the_others() -> None:
    counts = (200, 10, 10, 10)
    features, labels = pictures(counts, dim=30, apart=0.35)
    test, truth = pictures((50,) * 4, dim=30, apart=0.35)  # of the same means, drawn first from the same seed
    weighted = fit(features, labels, CLASSES).ridge.scores(test).argmax(1)
    even = fit(features, labels, CLASSES, weights=torch.ones(len(labels))).ridge.scores(test).argmax(1)
    pooled = fit_sums(Sums.of(normalised(features), labels, CLASSES)).scores(test).argmax(1)

    def small(predicted: Tensor) -> float:
        return float((predicted == truth)[truth > 0].double().mean())

    assert small(even) < 0.5 < small(weighted)
    assert small(pooled) > 0.5


@pytest.mark.parametrize("dim", [12, 40])
def test_sums_of_equal_classes_give_the_same_classifier(dim: int) -> None:
    features, labels = pictures((6,) * 4, dim=dim)
    for strength in (0.01, 1.0):
        from_sums = fit_sums(Sums.of(normalised(features), labels, CLASSES), grid=(strength,))
        from_features = fit(features, labels, CLASSES, grid=(strength,)).ridge
        assert torch.allclose(from_sums.weight, from_features.weight, atol=1e-9)
        assert torch.allclose(from_sums.bias, from_features.bias, atol=1e-9)


def test_generalised_cross_validation_puts_the_mean_leverage_in_the_place_of_each() -> None:
    features, labels = pictures((6,) * 4)
    z, w, y = normalised(features), balanced(labels, CLASSES), F.one_hot(labels).double()
    grid, errors = (0.01, 0.1, 1.0, 10.0), []
    for strength in grid:
        penalty = strength * unit_of(z, w)
        weight = solved(z, y, w, penalty)
        fitted = z @ weight[:-1] + weight[-1]
        hat = []
        for place in range(len(z)):  # what a picture's own target adds to its score
            raised = y.clone()
            raised[place, 0] += 1
            moved = solved(z, raised, w, penalty) - weight
            hat.append(float((z[place] @ moved[:-1] + moved[-1])[0]))
        leverage = sum(hat) / len(z)
        left_out = (fitted - leverage * y) / (1 - leverage)
        errors.append(float(scaled_losses(y, left_out, w).mean()))
    best = grid[min(range(len(grid)), key=errors.__getitem__)]
    assert fit_sums(Sums.of(z, labels, CLASSES), grid=grid).strength == best


def test_sums_take_pictures_in_any_order_and_give_them_back() -> None:
    features, labels = pictures()
    z = normalised(features)
    whole, parts = Sums.of(z, labels, CLASSES), Sums.empty(z.shape[1])
    for index in torch.randperm(len(z), generator=torch.Generator().manual_seed(3)).split(4):
        parts = parts + Sums.of(z[index], labels[index], int(labels[index].max()) + 1)
    for ours, theirs in ((parts.second, whole.second), (parts.sums, whole.sums), (parts.counts, whole.counts)):
        assert torch.allclose(ours, theirs, atol=1e-12)
    less = whole - Sums.of(z[3:5], labels[3:5], CLASSES)
    rest = torch.tensor([place for place in range(len(z)) if place not in (3, 4)])
    never = Sums.of(z[rest], labels[rest], CLASSES)
    probe = torch.randn(9, z.shape[1])
    assert torch.allclose(fit_sums(less).scores(probe), fit_sums(never).scores(probe), atol=1e-5)


def test_a_class_adds_a_column() -> None:
    features, labels = pictures()
    z = normalised(features)
    three = Sums.of(z[labels < 3], labels[labels < 3], 3)
    both = three + Sums.of(z[labels == 3], labels[labels == 3], 4)
    assert fit_sums(three).weight.shape[0] == 3
    assert torch.allclose(fit_sums(both).weight, fit_sums(Sums.of(z, labels, 4)).weight, atol=1e-9)


def test_a_class_without_pictures_is_never_said() -> None:
    features, labels = pictures()
    z = normalised(features)
    kept = labels != 1
    scores = fit_sums(Sums.of(z[kept], labels[kept], CLASSES)).scores(features)
    assert bool((scores.argmax(1) != 1).all())


def test_the_order_of_pictures_changes_nothing() -> None:
    features, labels = pictures(dim=40)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(5))
    probe = torch.randn(9, 40)
    ours = fit_best(features, labels, CLASSES).ridge.scores(probe)
    theirs = fit_best(features[order], labels[order], CLASSES).ridge.scores(probe)
    assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("labels", [[0], [0, 0, 0], [0, 1]])
def test_one_picture_or_one_class_can_be_fitted(labels: list[int]) -> None:
    given = torch.tensor(labels)
    found = fit_best(torch.randn(len(labels), 8), given, int(given.max()) + 1)
    assert bool(torch.isfinite(found.left_out).all())
    assert bool(torch.isfinite(found.ridge.scores(torch.randn(3, 8))).all())


def ring(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return two classes that no linear classifier tells apart: the sign of a product of two coordinates."""
    features = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return features, (features[:, 0] * features[:, 1] > 0).long()


def test_a_projection_is_taken_where_leaving_out_prefers_it_and_only_there() -> None:
    features, labels = ring(300, 0)
    chosen = fit_best(features, labels, 2, widest=256)
    assert chosen.ridge.projection == Projection(256)
    test, truth = ring(500, 1)
    plain = fit(features, labels, 2).ridge
    assert float((plain.scores(test).argmax(1) == truth).double().mean()) < 0.65
    assert float((chosen.ridge.scores(test).argmax(1) == truth).double().mean()) > 0.85
    flat = torch.randn(200, 40, generator=torch.Generator().manual_seed(2))
    assert fit_best(flat, (flat[:, 0] > 0).long(), 2).ridge.projection is None
    assert ridge.WIDEST == 4096


def test_of_many_pictures_a_part_chooses_the_strength_and_all_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = pictures((60,) * 4, apart=0.4)
    whole = fit(features, labels, CLASSES)
    monkeypatch.setattr(ridge, "SCORES", 240)
    monkeypatch.setattr(ridge, "ROWS", 7)
    part = fit(features, labels, CLASSES)
    every = fit(features, labels, CLASSES, grid=(part.ridge.strength,))
    assert part.left_out.shape == whole.left_out.shape
    assert torch.allclose(part.left_out, every.left_out)
    assert not torch.equal(part.errors, whole.errors)
    assert abs(GRID.index(part.ridge.strength) - GRID.index(whole.ridge.strength)) <= 2
