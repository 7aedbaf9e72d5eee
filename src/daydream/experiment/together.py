"""Several runs of one configuration, which differ in class order or seed: one after the other, or together.

Each has its own folder, state and random numbers, and does by itself whatever is not training (herding, mining,
evaluation, checkpoints). Together, runs that have come to the same stage take its steps side by side
(`engine.Lockstep`); one that is behind the others catches up with them first.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from daydream.engine import Display, Lockstep, Training
from daydream.errors import UserError
from daydream.experiment.config import Config, check_unchanged, completed
from daydream.experiment.experiment import DEFAULT_ORDERS, Experiment
from daydream.experiment.session import Course
from daydream.protocol.stream import PAPER_ORDERS
from daydream.settings import require
from daydream.storage.run_folder import RunFolder


@dataclass(frozen=True)
class Member:
    """One of several runs."""

    name: str
    folder: Path
    experiment: Experiment

    def check_folder(self) -> None:
        """Refuse a folder that holds a run of other settings."""
        if (self.folder / "config.json").exists():
            now = self.experiment.identity()
            stored = completed(RunFolder(self.folder).config)
            check_unchanged({key: stored.get(key) for key in now}, now, str(self.folder))

    def course(self, display: Display) -> Course:
        """Run from the beginning, or what is left."""
        if (self.folder / "config.json").exists():
            return self.experiment.resuming(RunFolder(self.folder), display)
        return self.experiment.starting(self.folder, display)


@dataclass(frozen=True)
class Ended:
    """How a run ended: with a result, or with the line that says what went wrong."""

    result: dict[str, Any] | None
    error: str = ""


def first_orders(data: str, count: int, part: bool = False) -> tuple[str, ...]:
    """Name the first class orders of a data set: its paper's, or else its default and then seed:1, seed:2, ...

    Of a part of its classes the first is their own.
    """
    require(count >= 1, f"--orders {count} must be at least 1")
    if part or data not in PAPER_ORDERS:
        first = "natural" if part else DEFAULT_ORDERS.get(data, "natural")
        return (first, *(f"seed:{number}" for number in range(1, count)))
    known = PAPER_ORDERS[data]
    require(count <= len(known), f"--orders {count} is too many: the paper has {len(known)} class orders of {data}")
    return known[:count]


def make_members(config: Config, orders: Sequence[str], seeds: Sequence[int], folder: Path) -> list[Member]:
    """Make ready a run for each class order and each seed, in FOLDER/order-1, FOLDER/seed-1 or FOLDER/order-1-seed-1.

    Without orders, or without seeds, all take the config's own. They share their images.
    """
    if (folder / "config.json").exists() or (folder.exists() and not folder.is_dir()):
        raise UserError(f"--out {folder} is a run or a file: name the folder that several runs are to lie in")
    members: list[Member] = []
    for (place, order), seed in product(enumerate(orders or [config.run.order], 1), seeds or [config.run.seed]):
        parts = [*([f"order-{place}"] if orders else []), *([f"seed-{seed}"] if seeds else [])]
        own = replace(config, run=replace(config.run, order=order, seed=seed))
        experiment = Experiment(own, like=members[0].experiment if members else None)
        members.append(Member("-".join(parts), folder / "-".join(parts), experiment))
    for member in members:
        member.check_folder()
    return members


def train_members(
    members: Sequence[Member], together: bool, display_of: Callable[[Member], Display]
) -> dict[str, Ended]:
    """Carry out all runs, or what is left of them; one that fails does not stop the others."""
    outcomes: dict[str, Ended] = {}
    for crew in [list(members)] if together else [[member] for member in members]:
        outcomes |= carry_out({member.name: member.course(display_of(member)) for member in crew})
    return outcomes


def carry_out(courses: Mapping[str, Course]) -> dict[str, Ended]:
    """Carry out runs side by side; return how each ended."""
    outcomes: dict[str, Ended] = {}
    waiting: dict[str, Training] = {}
    with contextlib.ExitStack() as stack:
        for course in courses.values():
            stack.enter_context(contextlib.closing(course))
        while True:
            for name in [name for name in courses if name not in outcomes and name not in waiting]:
                try:
                    waiting[name] = next(courses[name])
                except StopIteration as end:
                    outcomes[name] = Ended(end.value)
                except UserError as error:
                    outcomes[name] = Ended(None, str(error))
            if not waiting:
                return {name: outcomes[name] for name in courses}
            waiting = {name: waiting[name] for name in courses if name in waiting}
            Lockstep([waiting.pop(name) for name in side_by_side(waiting)]).train()


def side_by_side(waiting: Mapping[str, Training]) -> list[str]:
    """Name the runs to train next: the one that is furthest behind, and those that stand where it stands."""
    behind = min(waiting.values(), key=_progress)
    return [name for name, training in waiting.items() if _stands(training) == _stands(behind)]


def _progress(training: Training) -> tuple[int, ...]:
    return (*map(int, training.place), training.start.epoch, training.start.step)


def _stands(training: Training) -> tuple[Any, ...]:
    stage = training.loop.stage
    return (_progress(training), stage.name, stage.epochs, stage.steps)
