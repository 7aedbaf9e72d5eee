"""What a grid will cost, from a short trial of each kind of run on this machine.

A trial is a real run of the first two tasks in a temporary folder, with two short epochs to a stage. The second gives
the seconds of a step, the first less the second what a stage costs once in a run (compilation), and the rest what it
costs each time (herding, mining, evaluation, checkpoints). What a trial gave is kept with the grid's runs.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daydream import atomic
from daydream.engine import Display, EpochReport, Place
from daydream.errors import UserError
from daydream.experiment.config import make_config
from daydream.experiment.experiment import Experiment
from daydream.protocol.stream import Task
from daydream.reproduce.plan import Plan, Planned
from daydream.reproduce.protocols import Values
from daydream.stages.stage import Stage
from daydream.storage.run_folder import read_json

if TYPE_CHECKING:
    from daydream.engine.display import StopSwitch

TRIALS = "trials.json"
STEPS = 5  # in an epoch of a trial
SHAPING = ("counterparts", "counterparts_from", "generator_depth", "generator_width", "generator_losses")
"""Settings of imagination that a step's time depends on."""


@dataclass
class Pace:
    """The seconds that one stage costs: for a step, once in a run, and each time."""

    step: float = 0.0
    once: float = 0.0
    each: float = 0.0


@dataclass
class Trial:
    """What a trial of one kind of run gave: the start, and a pace by 'base' or 'increment' and the stage's name."""

    start: float
    paces: dict[str, Pace] = field(default_factory=dict)

    def seconds(self, planned: Planned, given_base: bool) -> float:
        """Return how long a job will take; with a base task from elsewhere, that is spared."""
        stretches = [entry for entry in planned.stretches if not (given_base and entry.shared)]
        total, met = self.start, set[str]()
        for entry in stretches:
            key = _key(entry.task, entry.stage)
            pace = self.paces.get(key, Pace())
            total += entry.steps * pace.step + pace.each + (0.0 if key in met else pace.once)
            met.add(key)
        return total


@dataclass(frozen=True)
class Cost:
    """Seconds by a job's folder, the trials they come from, and why a kind of run could not be timed."""

    seconds: Mapping[str, float]
    trials: Mapping[str, Trial]
    failed: Mapping[str, str]

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def keep(self, out: Path) -> None:
        """Write the trials beside the runs: the next grid there need not repeat them."""
        atomic.write_json(out / TRIALS, {key: asdict(trial) for key, trial in self.trials.items()})


def estimate(plan: Plan, announce: Callable[[str], None], switch: "StopSwitch | None" = None) -> Cost:
    """Return what the jobs of a plan will cost, after a trial of each kind that has had none on this machine."""
    file = plan.out / TRIALS
    trials = {key: _trial(row) for key, row in read_json(file).items()} if file.exists() else {}
    kinds = {entry.job.folder: kind_of(entry.job.values) for entry in plan.pending}
    failed = dict[str, str]()
    for entry in plan.pending:
        kind = kinds[entry.job.folder]
        if kind not in trials and kind not in failed:
            announce(f"timing a few steps of {kind}")
            try:
                trials[kind] = try_out(entry.job.values, switch)
            except UserError as error:
                failed[kind] = str(error)
    seconds = {
        entry.job.folder: trials[kinds[entry.job.folder]].seconds(entry, given_base=number > 0)
        for number, wave in enumerate(plan.waves)
        for entry in wave
        if kinds[entry.job.folder] in trials
    }
    return Cost(seconds, trials, failed)


def kind_of(values: Values) -> str:
    """Name what a step's time depends on: the machine, the data, the network, the method, its generators and parts."""
    from daydream.components.imagination_settings import ImaginationSettings
    from daydream.engine import Hardware

    config = make_config(**values)
    run, parts = config.run, config.parts
    hardware = Hardware.choose(run.device, run.precision, run.compile, None)
    usual, own = ImaginationSettings(), config.imagination or ImaginationSettings()
    generators = [f"{key} {getattr(own, key)}" for key in SHAPING if getattr(own, key) != getattr(usual, key)]
    wanted = parts.wanted if parts else {}
    shaping = [f"{name} {wanted[name]}" for name in ("rotations", "augment") if name in wanted]
    piled = ["taught on the pile"] if config.carried.teaches_on_pile else []
    return ", ".join([f"{run.method} on {run.data}", run.backbone, hardware.describe(), *generators, *shaping, *piled])


def try_out(values: Values, switch: "StopSwitch | None" = None) -> Trial:
    """Run the beginning of a job in a temporary folder and time it."""
    began = time.perf_counter()
    short = {**values, "run": {**values["run"], "tasks": 2}}
    experiment = Shortened(make_config(**short))
    timing = Timing(Trial(time.perf_counter() - began), switch)
    with tempfile.TemporaryDirectory() as folder:
        experiment.start(Path(folder) / "trial", timing)
    return timing.trial


class Shortened(Experiment):
    """An experiment whose stages have two epochs of a few steps, at a learning rate of 0: they take the time of real
    ones, and what is built on a network of so few cannot diverge."""

    def stages(self, task: Task) -> list[Stage]:
        return [
            replace(stage, epochs=2, steps=min(stage.steps, STEPS), schedule=lambda *_: 0.0) if stage.epochs else stage
            for stage in super().stages(task)
        ]


class Timing(Display):
    """Shows nothing and times stages."""

    def __init__(self, trial: Trial, switch: "StopSwitch | None") -> None:
        super().__init__(switch)
        self.trial = trial
        self.key, self.began, self.reports = "", 0.0, list[EpochReport]()
        self.steps = 1

    def stage_begins(self, place: Place, stage: Stage, from_epoch: int) -> None:
        self.stage_ends()
        self.key, self.began, self.steps = _key(place.task, stage.name), time.perf_counter(), max(1, stage.steps)
        self.reports = []

    def epoch_ends(self, place: Place, stage: Stage, report: EpochReport) -> None:
        self.reports.append(report)

    def task_ends(self, line: str) -> None:
        self.stage_ends()
        self.key = ""

    def stage_ends(self) -> None:
        """Note what the stage that ends here has cost; the last of a task has its evaluation in it."""
        if not self.key:
            return
        seconds = time.perf_counter() - self.began
        first, second = (report.seconds for report in self.reports) if self.reports else (0.0, 0.0)
        self.trial.paces[self.key] = Pace(second / self.steps, max(0.0, first - second), seconds - first - second)


def _key(task: int, stage: str) -> str:
    return f"{'increment' if task else 'base'} {stage}"


def _trial(row: Mapping[str, Any]) -> Trial:
    return Trial(row["start"], {key: Pace(**pace) for key, pace in row["paces"].items()})
