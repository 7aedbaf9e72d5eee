"""Runs that share everything but seed and class order as one line: mean and standard deviation."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from daydream.report.beside_paper import paper_cell
from daydream.report.gather import Run
from daydream.reproduce.paper import PaperCell

MEASURES = {
    "average_nme": "average NME",
    "average_cnn": "average CNN",
    "last_nme": "last NME",
    "last_cnn": "last CNN",
    "forgetting_nme": "forgetting NME",
    "forgetting_cnn": "forgetting CNN",
}
NEUTRAL = {"seed", "order", "root", "base_from", "device", "compile", "capture", "checkpoint_every", "tensorboard"}
"""Settings of a run that runs of one line may differ in: what is averaged over, and what says where and how it ran."""


@dataclass(frozen=True)
class Spread:
    """A mean over runs and their standard deviation (of a sample: n - 1), None for a single run."""

    mean: float
    deviation: float | None

    def text(self, between: str = " ± ", places: int = 2) -> str:
        tail = "" if self.deviation is None else f"{between}{self.deviation:.{places}f}"
        return f"{self.mean:.{places}f}{tail}"


@dataclass(frozen=True)
class Line:
    """Finished runs that share everything but seed and class order."""

    runs: tuple[Run, ...]

    def value(self, measure: str) -> Spread | None:
        """Return a value of result.json over the runs; None where one of them has none."""
        found = [run.result[measure] for run in self.runs if run.result is not None]
        return None if None in found else spread(found)

    @property
    def paper(self) -> PaperCell | None:
        return paper_cell(self.runs[0])

    @property
    def reports(self) -> str:
        """Name the accuracy to hold against the paper: the paper's where it says which, else the method's own."""
        result = self.runs[0].result
        assert result is not None
        return str((self.paper and self.paper.reports) or result["reports"])

    @property
    def difference(self) -> float | None:
        """Return our average less the paper's, where both keep their memory by the same rule."""
        ours, cell = self.value(f"average_{self.reports}"), self.paper
        if ours is None or cell is None or cell.accuracy is None or cell.budget == "unstated":
            return None
        return ours.mean - cell.accuracy

    @property
    def protocol(self) -> str:
        return self.runs[0].protocol.rpartition(", order ")[0]

    @property
    def averaged_over(self) -> str:
        """Name the seeds and orders behind a line."""
        seeds = ", ".join(dict.fromkeys(str(run.settings["seed"]) for run in self.runs))
        orders = ", ".join(dict.fromkeys(str(run.settings["order"]) for run in self.runs))
        return f"seed {seeds}; order {orders}"


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def lines_of(runs: Sequence[Run]) -> list[Line]:
    """Gather finished runs into lines, in order of first appearance; unfinished runs have no averages."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.finished:
            groups.setdefault(_shared(run), []).append(run)
    return [Line(tuple(group)) for group in groups.values()]


def _shared(run: Run) -> str:
    kept = {key: value for key, value in run.settings.items() if key not in NEUTRAL}
    return json.dumps([kept, run.config.get("fingerprint"), run.components], sort_keys=True)
