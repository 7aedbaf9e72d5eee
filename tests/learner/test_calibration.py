"""Temperature, calibration error and rejection, against loops and grids."""

import math
import random

import pytest
import torch
from torch import Tensor

from daydream.errors import UserError
from daydream.learner.calibration import expected_calibration_error, fit_temperature, rejection_threshold


def sample(count: int, classes: int, scale: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw labels from softmax(z) and return `scale` z with them: their true temperature is `scale`."""
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    return scale * z, torch.multinomial(z.softmax(1), 1, generator=generator)[:, 0]


def loss(logits: Tensor, labels: Tensor, temperature: float) -> float:
    """Cross-entropy of softmax(z / T) with the smoothed labels, by loops."""
    count, classes = logits.shape
    total = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        log_sum = math.log(sum(math.exp((z - max(row)) / temperature) for z in row)) + max(row) / temperature
        for c in range(classes):
            target = (count / (count + 1)) * (c == label) + 1 / (count + 1) / classes
            total -= target * (row[c] / temperature - log_sum)
    return total / count


@pytest.mark.parametrize(("count", "classes", "scale"), [(40, 3, 1.0), (25, 5, 4.0), (30, 2, 0.3), (7, 4, 1.5)])
def test_temperature_is_the_best_of_a_grid(count: int, classes: int, scale: float) -> None:
    logits, labels = sample(count, classes, scale)
    found = fit_temperature(logits, labels)
    grid = [0.05 * 400 ** (i / 400) for i in range(401)]
    best = min(grid, key=lambda t: loss(logits, labels, t))
    assert 1 / 1.016 < found / best < 1.016  # one step of the grid
    assert all(loss(logits, labels, found) <= loss(logits, labels, t) + 1e-12 for t in grid)


@pytest.mark.parametrize("scale", [0.25, 1.0, 3.0])
def test_many_images_give_back_the_temperature_their_labels_were_drawn_at(scale: float) -> None:
    logits, labels = sample(20_000, 5, scale)
    assert fit_temperature(logits.float(), labels) == pytest.approx(scale, rel=0.05)


@pytest.mark.parametrize("count", [1, 8, 50])
def test_images_that_are_all_right_leave_some_doubt(count: int) -> None:
    labels = torch.arange(count) % 3
    logits = 4 * torch.nn.functional.one_hot(labels, 3).double()
    confidence = float((logits / fit_temperature(logits, labels)).softmax(1).max(1).values.mean())
    # With equal logits the best probability is the smoothed label's own.
    assert confidence == pytest.approx(count / (count + 1) + 1 / (count + 1) / 3, abs=1e-6)


def test_temperature_stays_within_bounds() -> None:
    labels = torch.arange(60) % 3
    wrong = 9 * torch.nn.functional.one_hot((labels + 1) % 3, 3).double()
    assert fit_temperature(wrong, labels) == pytest.approx(20)
    tiny = 1e-3 * torch.nn.functional.one_hot(labels, 3).double()
    assert fit_temperature(tiny, labels) == pytest.approx(0.05)


@pytest.mark.parametrize(
    "logits", [torch.randn(5, 1), torch.full((5, 4), 0.1), torch.empty(0, 3), torch.full((5, 3), torch.nan)]
)
def test_temperature_is_one_where_it_changes_nothing(logits: Tensor) -> None:
    assert fit_temperature(logits, torch.zeros(len(logits), dtype=torch.int64)) == 1.0


@pytest.mark.parametrize(("count", "bins"), [(200, 15), (37, 4), (1, 15), (50, 1)])
def test_calibration_error_against_loops(count: int, bins: int) -> None:
    logits, labels = sample(count, 4, 2.0, seed=count)
    probabilities = logits.softmax(1)
    probabilities[0] = torch.tensor([1.0, 0, 0, 0])
    if count > 1:
        probabilities[1] = torch.tensor([0.5, 0.5, 0, 0])  # on an edge with 4 bins
    expected = 0.0
    for b in range(bins):
        rows = [i for i in range(count) if b / bins < max(probabilities[i].tolist()) <= (b + 1) / bins]
        if rows:
            right = sum(int(probabilities[i].argmax() == labels[i]) for i in rows)
            sure = sum(max(probabilities[i].tolist()) for i in rows)
            expected += len(rows) / count * abs(right / len(rows) - sure / len(rows))
    assert expected_calibration_error(probabilities, labels, bins) == pytest.approx(expected, abs=1e-12)


def test_the_fitted_temperature_lowers_the_calibration_error() -> None:
    logits, labels = sample(5_000, 5, 3.0)
    before = expected_calibration_error(logits.softmax(1), labels)
    after = expected_calibration_error((logits / fit_temperature(logits, labels)).softmax(1), labels)
    assert before > 0.1
    assert after < 0.03


@pytest.mark.parametrize("keep", [0.01, 0.07, 0.5, 0.9, 0.95, 1.0])
@pytest.mark.parametrize("count", [1, 10, 100])
def test_the_threshold_is_the_highest_that_keeps_the_share(keep: float, count: int) -> None:
    values = [random.Random(i).randint(0, 30) / 30 for i in range(count)]  # with ties
    confidences = torch.tensor(values, dtype=torch.float64)
    found = rejection_threshold(confidences, keep)

    def kept(threshold: float) -> float:
        return sum(v >= threshold for v in values) / count

    assert kept(found) >= keep - 1e-12
    assert all(kept(v) < keep - 1e-12 for v in values if v > found)


def test_bad_input() -> None:
    for keep in (0.0, -0.1, 1.1, math.nan):
        with pytest.raises(UserError, match=f"keep is {keep}"):
            rejection_threshold(torch.tensor([0.5]), keep)
    with pytest.raises(UserError, match="no held-out images"):
        rejection_threshold(torch.empty(0), 0.9)
