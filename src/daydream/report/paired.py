"""Verdicts in a report: each line of runs against the first of its protocol, where several of their runs are pairs."""

from collections.abc import Sequence

from daydream.report.compare import Finished, compare
from daydream.report.gather import KINDS
from daydream.report.summary import Line

FEWEST = 2
"""Pairs below which a report says nothing: of one pair there is no standard error."""
HEADING = "Differences, paired by class order and seed; ± is the standard error over class orders"


def verdicts(lines: Sequence[Line]) -> list[str]:
    """Say of every line whether it is better than the first of its protocol."""
    first: dict[tuple[str, float], Line] = {}
    found = []
    for line in lines:
        baseline = first.setdefault((line.protocol, line.runs[0].settings["validation"]), line)
        if line is not baseline and shared(baseline, line) >= FEWEST:
            a, b = baseline.runs[0].variant, line.runs[0].variant
            comparison = compare(finished(baseline), finished(line))
            found += [
                f"{b} against {a}: {one.verdict(kind.upper(), better=b, worse=a)}"
                for kind in KINDS
                if (one := comparison.found.get(kind))
            ]
    return found


def shared(a: Line, b: Line) -> int:
    """Count the pairs of two lines; none where a line has a run twice, so that it is not clear who is whose partner."""
    keys = [[(run.settings["order"], run.settings["seed"]) for run in line.runs] for line in (a, b)]
    if any(len(set(own)) < len(own) for own in keys):
        return 0
    return len(set(keys[0]) & set(keys[1]))


def finished(line: Line) -> list[Finished]:
    return [Finished(run.path / "result.json", {**(run.result or {}), "config": run.config}) for run in line.runs]
