"""The numbers that tell a working generator from a broken one, against loops."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from daydream.components.quality import Gathered, measure


def unit(count: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(count, 5, generator=torch.Generator().manual_seed(seed)), dim=1)


def gathered(classes: tuple[int, ...]) -> Gathered:
    labels = torch.tensor(classes)
    real, held, made = labels.repeat_interleave(6), labels.repeat_interleave(2), labels.repeat_interleave(4)
    scores = torch.randn(len(made), 9, generator=torch.Generator().manual_seed(4))
    return Gathered(unit(len(real), 1), unit(len(held), 2), unit(len(made), 3), real, held, made, scores)


def test_numbers_against_loops() -> None:
    found = gathered((2, 4, 7))  # with classes between them that nobody gathered
    centre = {c: found.real[found.real_labels == c].double().mean(0) for c in (2, 4, 7)}
    own = {c: found.imagined[found.imagined_labels == c].double().mean(0) for c in (2, 4, 7)}
    distance, spread, right, home = 0.0, 0.0, 0, 0
    for z, label, score in zip(found.imagined.double(), found.imagined_labels.tolist(), found.scores, strict=True):
        distance += float((z - centre[label]).norm()) / 12
        spread += float((z - own[label]).norm()) / 12
        right += int(score.argmax()) == label
        home += max(centre, key=lambda c: float(z @ centre[c] / centre[c].norm())) == label
    numbers = measure(found)
    assert numbers["distance"] == pytest.approx(distance, abs=1e-4)
    assert numbers["spread"] == pytest.approx(spread, abs=1e-4)
    assert numbers["accuracy"] == pytest.approx(100 * right / 12, abs=0.01)
    assert numbers["nearest"] == pytest.approx(100 * home / 12, abs=0.01)


def test_a_single_class_has_no_nearest() -> None:
    assert "nearest" not in measure(gathered((3,)))
