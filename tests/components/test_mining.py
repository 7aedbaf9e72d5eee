"""Choosing from the pile, against loops and by what must always hold."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from daydream.components.mining import CERTAIN, PER_CLASS, draw_other_class, entropy, most_certain


def bits(row: list[float]) -> float:
    """Return the entropy of softmax(row) in bits, by a loop in double precision."""
    top = max(row)
    weights = [math.exp(value - top) for value in row]
    shares = [weight / sum(weights) for weight in weights]
    return -sum(share * math.log2(share) for share in shares if share > 0)


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 10.0])
def test_entropy(scale: float) -> None:
    scores = scale * torch.randn(20, 7, generator=torch.Generator().manual_seed(1))
    expected = [bits(row) for row in scores.double().tolist()]
    assert entropy(scores).tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_entropy_at_its_ends() -> None:
    assert float(entropy(torch.zeros(1, 8))) == pytest.approx(3.0)  # eight classes alike: three bits
    assert float(entropy(torch.tensor([[0.0, 0.0, -1e4]]))) == pytest.approx(1.0)
    assert float(entropy(torch.tensor([[1e4, 0.0, 0.0]]))) == 0.0
    assert entropy(torch.zeros(2, 4, dtype=torch.bfloat16)).dtype == torch.float32


@st.composite
def piles(draw: st.DrawFn) -> Tensor:
    images, classes = draw(st.integers(1, 400)), draw(st.integers(2, 6))
    scale, seed = draw(st.floats(0, 20)), draw(st.integers(0, 2**20))
    return scale * torch.randn(images, classes, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=60, deadline=None)
@given(piles(), st.integers(0, 40))
@example(20 * torch.eye(3).repeat_interleave(torch.tensor([150, 100, 5]), dim=0), 0)
def test_most_certain(scores: Tensor, at_least: int) -> None:
    certainty, predicted = entropy(scores), scores.argmax(1)
    certain = {  # class -> its certain images, most certain first
        c: sorted(
            (i for i in range(len(scores)) if predicted[i] == c and certainty[i] < CERTAIN),
            key=lambda i: (float(certainty[i]), i),
        )
        for c in range(scores.shape[1])
    }
    expected = {i for images in certain.values() for i in images[:PER_CLASS]}
    if len(expected) < at_least:
        expected |= set(certainty.argsort(stable=True)[:at_least].tolist())
    index, classes = most_certain(scores, at_least)
    assert set(index.tolist()) == expected
    assert len(index) == len(expected) >= min(at_least, len(scores))
    assert torch.equal(classes, predicted[index])
    assert (classes.diff() >= 0).all()
    for c in classes.unique():
        assert (certainty[index[classes == c]].diff() >= 0).all()  # most certain first


def test_at_most_100_of_a_class_and_none_of_a_bit() -> None:
    generator = torch.Generator().manual_seed(1)
    scores = 4 * torch.randn(3000, 5, generator=generator)
    index, classes = most_certain(scores, at_least=10)
    assert (classes.bincount(minlength=5) == PER_CLASS).all()
    assert (entropy(scores)[index] < CERTAIN).all()


def test_where_nothing_is_certain_the_most_certain_fill_up() -> None:
    scores = 0.1 * torch.randn(50, 8, generator=torch.Generator().manual_seed(1))
    assert (entropy(scores) > CERTAIN).all()
    assert len(most_certain(scores, 0)[0]) == 0
    index, _ = most_certain(scores, 12)
    assert sorted(index.tolist()) == sorted(entropy(scores).argsort()[:12].tolist())


def sorted_classes(*counts: int) -> Tensor:
    """Return the classes of mined images: `counts[c]` of class c."""
    return torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=6).filter(lambda counts: sum(map(bool, counts)) >= 2),
    st.integers(0, 2**20),
)
def test_never_of_the_same_class(counts: list[int], seed: int) -> None:
    mined = sorted_classes(*counts)
    wanted = torch.arange(len(counts) + 2).repeat(3, 40)  # classes without a mined image too
    place = draw_other_class(torch.Generator().manual_seed(seed), mined, wanted)
    assert place.shape == wanted.shape
    assert ((place >= 0) & (place < len(mined))).all()
    assert (mined[place] != wanted).all()


@pytest.mark.parametrize("wanted", [0, 1, 2, 3, 7])
def test_every_other_image_is_as_likely(wanted: int) -> None:
    mined, draws = sorted_classes(3, 5, 0, 2), 20_000
    place = draw_other_class(torch.Generator().manual_seed(1), mined, torch.full((draws,), wanted))
    others = mined != wanted
    seen, expected = place.bincount(minlength=len(mined)).double(), draws / int(others.sum())
    assert (seen[~others] == 0).all()
    chi_square = float(((seen[others] - expected) ** 2 / expected).sum())
    assert chi_square < 30  # at most 9 degrees of freedom: one in 2,000 seeds would exceed it


@pytest.mark.parametrize("wanted", [0, 1])
def test_where_all_are_of_one_class_any_is_drawn(wanted: int) -> None:
    mined = torch.full((4,), 1)
    place = draw_other_class(torch.Generator().manual_seed(1), mined, torch.full((200,), wanted))
    assert set(place.tolist()) == {0, 1, 2, 3}


def test_the_same_generator_draws_the_same() -> None:
    mined, wanted = sorted_classes(3, 5, 2), torch.arange(3).repeat(10)
    first, second = (draw_other_class(torch.Generator().manual_seed(7), mined, wanted) for _ in range(2))
    assert torch.equal(first, second)
