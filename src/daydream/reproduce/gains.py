"""What cells of a grid give more than others: paired by class order, with standard errors and verdicts."""

import statistics
from collections.abc import Sequence

from daydream.protocol.paired import Difference, difference
from daydream.reproduce.jobs import Job
from daydream.reproduce.own_grids import CONTRASTS
from daydream.reproduce.plan import Plan


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Return mean and standard deviation; no deviation of one value."""
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None


def averages(jobs: Sequence[Job], beside: Sequence[Job]) -> dict[str, dict[str, float | None]]:
    """Return the average of either accuracy, and its difference to the cell beside over the orders both were run with.

    Differences are taken order by order: what an order does to both is not in their standard error.
    """
    found = {}
    for kind in ("nme", "cnn"):
        ours, gain = list(_by_order(jobs, kind).values()), paired(jobs, beside, kind)
        mean, deviation = spread(ours) if ours else (None, None)
        numbers = {
            "mean": mean,
            "deviation": deviation,
            "difference_mean": gain.mean if gain else None,
            "difference_error": gain.error if gain else None,
        }
        rounded = {name: None if value is None else round(value, 4) for name, value in numbers.items()}
        found[kind] = {**rounded, "pairs": gain.pairs if gain else 0}
    return found


def paired(jobs: Sequence[Job], beside: Sequence[Job], kind: str) -> Difference | None:
    """Return what a cell's runs give more than those of another, order by order; None where no order is in both."""
    ours, theirs = _by_order(jobs, kind), _by_order(beside, kind)
    gains = [[value - theirs[order]] for order, value in ours.items() if order in theirs]
    return difference(gains) if gains else None


def verdicts(plan: Plan) -> list[str]:
    """Say of the pairs of cells that a grid is there for whether the first is better than the second."""
    rows, found = {cell.name: cell.row for cell in plan.cells}, []
    for first, second in CONTRASTS.get(plan.grid, ()):
        for kind in ("nme", "cnn"):
            gain = paired(plan.jobs[first], plan.jobs[second], kind)
            if gain:
                said = gain.verdict(kind.upper(), better="the first", worse="the second")
                found.append(f"{rows[first]} against {rows[second]}: {said}")
    return found


def _by_order(jobs: Sequence[Job], kind: str) -> dict[str, float]:
    averages = ((job.values["run"]["order"], (job.result or {}).get(f"average_{kind}")) for job in jobs)
    return {order: value for order, value in averages if value is not None}
