"""Losses against loops in double precision."""

import math

import pytest
import torch

from daydream.losses import cosine_distillation, cross_entropy


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
