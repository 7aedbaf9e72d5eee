"""Carry out a plan: wave after wave, what is done skipped, what fails noted and passed by."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from daydream import atomic
from daydream.reproduce.grids import Scale
from daydream.reproduce.jobs import Executor, Outcome
from daydream.reproduce.plan import Plan
from daydream.reproduce.results import document


@dataclass
class Tally:
    """How far a grid has come."""

    jobs: int
    done: int = 0
    failures: dict[str, Outcome] = field(default_factory=dict)
    """By folder."""


def carry_out(plan: Plan, executor: Executor, tell: Callable[[Outcome, Tally], None]) -> Tally:
    """Run the jobs of a plan that are left; return what failed."""
    tally = Tally(len(plan.pending))
    for wave in plan.waves:
        for outcome in executor.run([entry.job for entry in wave]):
            tally.done += 1
            if outcome.result is None:
                tally.failures[outcome.job.folder] = outcome
            tell(outcome, tally)
    return tally


def write_results(plan: Plan, scale: Scale, tally: Tally) -> dict[str, Any]:
    """Write results.json in the grid's folder; return what it holds."""
    found = document(plan, scale, tally.failures)
    folder = plan.out / plan.grid
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_json(folder / "results.json", found)
    return found
