"""Random numbers by name: a function of seed and names, of nothing else."""

import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daydream.rng import derive, generator, seeded


def draw(seed: int, *names: str | int) -> list[float]:
    return torch.rand(4, generator=generator(seed, *names)).tolist()


def test_the_derivation_is_pinned() -> None:
    """A run resumed by a later version must draw the same numbers: this may never change."""
    digest = hashlib.sha256(b"1/batches/0/base/3").digest()
    assert derive(1, "batches", 0, "base", 3) == int.from_bytes(digest[:8], "little") // 2
    assert derive(1, "batches", 0, "base", 3) == 6777820252348561760


@given(st.integers(0, 2**40), st.lists(st.text("ab", max_size=5) | st.integers(0, 999), max_size=4))
def test_a_seed_fits_and_repeats(seed: int, names: list[str | int]) -> None:
    assert 0 <= derive(seed, *names) < 2**63
    assert derive(seed, *names) == derive(seed, *names)


def test_names_and_seeds_separate() -> None:
    uses = [
        (1, "batches", 0),
        (1, "batches", 1),
        (1, "augment", 0),
        (2, "batches", 0),
        (1, "batches"),
        (1, "batches", 10),
    ]
    assert len({tuple(draw(*use)) for use in uses}) == len(uses)


def test_a_generator_does_not_depend_on_what_was_drawn() -> None:
    first = draw(3, "order")
    torch.rand(10)
    draw(3, "other")
    assert draw(3, "order") == first


def test_seeded_is_a_named_default_generator_inside_and_leaves_no_trace() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with seeded(1, "init"):
        inside = torch.rand(4)
    assert torch.equal(torch.rand(3), expected)
    assert inside.tolist() == draw(1, "init")
    with seeded(1, "init"):
        assert torch.equal(torch.rand(4), inside)


def fail_inside() -> None:
    with seeded(1, "init"):
        torch.rand(1)
        raise ValueError("inside")


def test_seeded_restores_after_an_error() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with pytest.raises(ValueError, match="inside"):
        fail_inside()
    assert torch.equal(torch.rand(3), expected)
