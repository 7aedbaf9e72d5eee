"""Paired differences: Student's t against an integral, standard errors by hand, and what a verdict says."""

import math
import statistics

import pytest

from daydream.protocol.paired import difference, quantile, within


def density(t: float, freedom: int) -> float:
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    return math.exp(scale) * (1 + t * t / freedom) ** (-(freedom + 1) / 2)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 8, 31])
@pytest.mark.parametrize("t", [0.3, 2.5])
def test_the_probability_against_an_integral(freedom: int, t: float) -> None:
    count = 2000
    heights = [density(t * i / count, freedom) for i in range(count + 1)]
    area = t / count * (sum(heights) - (heights[0] + heights[-1]) / 2)
    assert within(t, freedom) == pytest.approx(2 * area, abs=1e-6)


def test_the_quantile_against_printed_tables() -> None:
    assert [round(quantile(freedom), 3) for freedom in (1, 2, 3, 10, 30)] == [12.706, 4.303, 3.182, 2.228, 2.042]


def test_the_standard_error_is_over_replicates_and_a_shared_base_task_counts_once() -> None:
    found = difference([[1.0, 3.0], [1.0], [2.4]])
    means = [2.0, 1.0, 2.4]
    assert (found.pairs, found.replicates) == (4, 3)
    assert found.mean == pytest.approx(statistics.fmean(means))
    assert found.error == pytest.approx(statistics.stdev(means) / math.sqrt(3))
    assert "over 4 pairs of 3 class orders" in found.verdict("NME")


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ([1.0, 2.0, 1.5, 1.9], "B is better by 1.60 ± 0.23 NME over 4 pairs"),
        ([-1.0, -2.0, -1.5, -1.9], "A is better by 1.60 ± 0.23 NME over 4 pairs"),
        ([3.0], "not decided: +3.00 NME over 1 pair; at least 2 more pairs would be needed"),
        ([3.0, 3.1], "not decided: +3.05 ± 0.05 NME over 2 pairs; about 1 more pair would be needed"),
        ([0.0, 0.0, 0.0], "not decided: +0.00 ± 0.00 NME over 3 pairs; more than 1,000 more pairs would be needed"),
        ([2.0, -1.0, 1.5], "not decided: +0.83 ± 0.93 NME over 3 pairs; about 14 more pairs would be needed"),
    ],
)
def test_verdicts(gains: list[float], verdict: str) -> None:
    found = difference([[gain] for gain in gains])
    assert found.verdict("NME") == verdict
    assert found.decided == (" is better " in verdict)


def test_seeds_of_one_order_decide_nothing_and_other_orders_are_asked_for() -> None:
    said = difference([[4.5, 4.6, 4.7]]).verdict("CNN")
    assert said == "not decided: +4.60 CNN over 3 pairs of 1 class order; at least 2 more class orders would be needed"


def test_the_interval_holds_zero_where_nothing_is_decided_and_needs_as_many_replicates_as_a_verdict() -> None:
    found = difference([[2.0], [-1.0], [1.5]])
    assert found.interval is not None
    reach = 4.303 * statistics.stdev([2.0, -1.0, 1.5]) / math.sqrt(3)  # t of two degrees of freedom, from a table
    assert found.interval == pytest.approx((2.5 / 3 - reach, 2.5 / 3 + reach), abs=1e-3)
    low, high = difference([[1.0], [2.0], [1.5], [1.9]]).interval or (0.0, 0.0)
    assert 0 < low < 1.6 < high
    assert difference([[3.0], [3.1]]).interval is None
    assert difference([[3.0]]).interval is None


def test_as_many_more_pairs_as_it_says_would_decide_and_one_fewer_would_not() -> None:
    gains = [2.0, -1.0, 1.5]
    mean, deviation = statistics.fmean(gains), statistics.stdev(gains)
    more = difference([[gain] for gain in gains]).more
    assert more is not None
    for count, decides in ((3 + more, True), (2 + more, False)):
        assert (mean > quantile(count - 1) * deviation / math.sqrt(count)) == decides
