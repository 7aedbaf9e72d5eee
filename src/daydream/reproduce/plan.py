"""A grid's plan: its jobs, which of them are done, and which must wait for another's base task."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from daydream.data.images import Dataset, ImageSet
from daydream.experiment.config import make_config
from daydream.experiment.experiment import Experiment
from daydream.protocol.stream import class_order
from daydream.reproduce.imported_results import Found, take
from daydream.reproduce.jobs import Job, SharedBase, make_job, with_order
from daydream.reproduce.protocols import Cell


class Sketch(Experiment):
    """An experiment that is planned, not run: its own images stand in for the pile, which no number of steps depends
    on and which may be large."""

    def load_pile(self) -> ImageSet:
        return self.data.train


@dataclass(frozen=True)
class Stretch:
    """The steps of one stage of one task."""

    task: int
    stage: str
    steps: int
    shared: bool
    """Whether a base task trained elsewhere spares it."""


@dataclass(frozen=True)
class Shape:
    """What is the same in all jobs that differ in class order alone."""

    class_names: tuple[str, ...]
    stretches: tuple[Stretch, ...]
    base: SharedBase | None

    @classmethod
    def of(cls, sketch: Sketch) -> "Shape":
        stretches = [
            Stretch(row.task, stage.name, stage.epochs * stage.steps, row.task == 0 and stage.shared_as is not None)
            for row in sketch.plan()
            for stage in row.stages
        ]
        return cls(sketch.data.class_names, tuple(stretches), SharedBase.of(sketch))


@dataclass(frozen=True)
class Planned:
    """A job as planned: what it will do, and the base task it shares, if its method shares one."""

    job: Job
    stretches: tuple[Stretch, ...]
    base: SharedBase | None


@dataclass(frozen=True)
class Plan:
    """The cells of a grid, the jobs of each, an order each, and the jobs that are chosen."""

    grid: str
    out: Path
    orders: tuple[str, ...]
    cells: Sequence[Cell]
    jobs: dict[str, list[Job]]
    """By a cell's name; none for a method that does not exist."""
    chosen: list[Job]
    """Each once, though several cells may need it."""

    @property
    def runs(self) -> Path:
        return self.out / "runs"

    @cached_property
    def pending(self) -> list[Planned]:
        """What is left to do, as it stood when first asked."""
        shapes, images = dict[str, Shape](), dict[str, Dataset]()
        return [_planned(job, shapes, images) for job in self.chosen if job.result is None]

    @cached_property
    def waves(self) -> list[list[Planned]]:
        """The jobs in two waves: first one for each base task that is not trained yet, then those that share it."""
        first, then, known = list[Planned](), list[Planned](), list[SharedBase]()
        for entry in self.pending:
            base = entry.base
            if base is not None and (base in known or base.find(self.runs)):
                then.append(entry)
            else:
                first.append(entry)
                known += [base] if base is not None else []
        return [first, then]


def make_plan(
    grid: str,
    cells: Sequence[Cell],
    chosen: Sequence[Cell],
    orders: Sequence[str],
    out: Path,
    found: Sequence[Found] = (),
) -> Plan:
    """Give every cell a job for each class order; check all settings before anything runs.

    What was found elsewhere counts as done, the first find of a run before those after it.
    """
    jobs: dict[str, list[Job]] = {}
    for cell in cells:
        jobs[cell.name] = [
            make_job(f"{cell.name}, order {order}", with_order(cell.values, order), out / "runs")
            for order in orders
            if cell.values is not None
        ]
        for finds in found:
            jobs[cell.name] = take(jobs[cell.name], finds)
    unique = {job.folder: job for cell in chosen for job in jobs[cell.name]}
    return Plan(grid, out, tuple(orders), cells, jobs, list(unique.values()))


def _planned(job: Job, shapes: dict[str, Shape], images: dict[str, Dataset]) -> Planned:
    """Plan a job; jobs that differ in class order alone are planned by one sketch, and images are read once."""
    key = json.dumps(with_order(job.values, ""), sort_keys=True)
    if key not in shapes:
        config = make_config(**job.values)
        read = json.dumps([config.run.data, config.run.root, asdict(config.data)], sort_keys=True)
        sketch = Sketch(config, data=images.get(read))
        images[read], shapes[key] = sketch.data, Shape.of(sketch)
    names, base = shapes[key].class_names, shapes[key].base
    arriving = [names[i] for i in class_order(job.values["run"]["order"], len(names))]
    return Planned(job, shapes[key].stretches, base and base.with_order(arriving))
