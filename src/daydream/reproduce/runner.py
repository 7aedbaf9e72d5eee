"""Carry out a plan: each job in its turn, what is done skipped, what fails noted and passed by."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daydream import atomic
from daydream.reproduce.jobs import Executor, Job, Outcome
from daydream.reproduce.plan import Plan
from daydream.reproduce.protocols import Scale
from daydream.reproduce.results import document


@dataclass
class Tally:
    """How far a grid has come."""

    jobs: int
    done: int = 0
    failures: dict[str, Outcome] = field(default_factory=dict)
    """By folder."""


class Turns:
    """Says which jobs may start.

    Of the jobs that share a base task the first trains it; the others wait until it has, though it goes on. Should it
    fail before, the next is the first.
    """

    def __init__(self, plan: Plan) -> None:
        first, then = plan.waves
        self.jobs = [entry.job for entry in (*first, *then)]
        self.left = {entry.job.folder: entry.base for entry in (*first, *then)}
        untrained = [entry.base for entry in first]
        self.trained = [entry.base for entry in then if entry.base not in untrained]

    def ready(self, job: Job) -> bool:
        """Say whether a job need not wait, by one look at its trainer's folder at most."""
        base = self.left[job.folder]
        if base is None or base in self.trained:
            return True
        trainer = next(folder for folder, other in self.left.items() if other == base)
        if trainer != job.folder and base.trained_by(Path(trainer)):
            self.trained.append(base)
        return trainer == job.folder or base in self.trained

    def ended(self, job: Job) -> None:
        """Note that a job has ended, well or not."""
        base = self.left.pop(job.folder)
        if base is not None and base not in self.trained and base.trained_by(Path(job.folder)):
            self.trained.append(base)


def carry_out(plan: Plan, executor: Executor, tell: Callable[[Outcome, Tally], None]) -> Tally:
    """Run the jobs of a plan that are left; return what failed."""
    tally, turns = Tally(len(plan.pending)), Turns(plan)
    for outcome in executor.run(turns.jobs, turns.ready):
        turns.ended(outcome.job)
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
