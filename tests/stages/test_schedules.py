"""Schedules against their formulas."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daydream.stages.schedules import cosine, step_down
from daydream.stages.stage import constant


def test_the_cosine_of_the_papers_160_epochs() -> None:
    assert cosine(0, 160) == 1.0
    assert cosine(40, 160) == pytest.approx((1 + math.sqrt(0.5)) / 2)
    assert cosine(80, 160) == pytest.approx(0.5)
    assert 0 < cosine(159, 160) < 1e-4


@given(st.integers(1, 500))
def test_the_cosine_falls_all_the_way(epochs: int) -> None:
    factors = [cosine(e, epochs) for e in range(epochs)]
    assert factors[0] == 1.0
    assert all(a > b > 0 for a, b in itertools.pairwise(factors))


def test_steps_down_at_the_milestones() -> None:
    schedule = step_down((20, 30, 35))
    found = [schedule(e, 40) for e in (0, 19, 20, 29, 30, 34, 35, 39)]
    assert found == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def test_milestones_of_another_length_move_with_it() -> None:
    schedule = step_down((49, 63), factor=0.2, of=70)
    assert [e for e in range(1, 70) if schedule(e, 70) != schedule(e - 1, 70)] == [49, 63]
    assert [e for e in range(1, 140) if schedule(e, 140) != schedule(e - 1, 140)] == [98, 126]
    assert [schedule(e, 10) for e in range(10)] == pytest.approx([1] * 7 + [0.2] * 2 + [0.04])
    assert schedule(0, 1) == 1.0


@given(st.lists(st.integers(0, 50), max_size=4), st.floats(0.05, 0.9), st.integers(0, 60))
def test_step_down_is_a_product(milestones: list[int], factor: float, epoch: int) -> None:
    expected = 1.0
    for milestone in milestones:
        if epoch >= milestone:
            expected *= factor
    assert step_down(milestones, factor)(epoch, 60) == pytest.approx(expected)


def test_constant() -> None:
    assert [constant(e, 10) for e in (0, 5, 9)] == [1.0, 1.0, 1.0]
