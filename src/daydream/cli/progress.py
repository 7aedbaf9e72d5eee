"""What a person sees while a run trains: a live line in a terminal, plain lines elsewhere, or nothing."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from daydream.experiment.progress import Silent, StopSwitch

if TYPE_CHECKING:
    from daydream.engine import EpochReport
    from daydream.experiment.experiment import Experiment
    from daydream.protocol.stream import Task
    from daydream.stages.stage import Stage

PLAIN_SECONDS = 10.0  # between two lines about a stage when the output is not a terminal


class Plain(Silent):
    """Lines for a log file."""

    def __init__(self, switch: StopSwitch, console: Console) -> None:
        super().__init__(switch)
        self.console = console
        self.spoke = 0.0

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def run_begins(self, experiment: "Experiment", folder: Path, resumed: bool) -> None:
        self.say(opening(experiment, folder, resumed))

    def stage_begins(self, task: "Task", stage: "Stage", from_epoch: int) -> None:
        self.spoke = time.monotonic()

    def epoch_ends(self, task: "Task", stage: "Stage", report: "EpochReport") -> None:
        last = report.epoch + 1 == report.epochs
        if last or time.monotonic() - self.spoke > PLAIN_SECONDS:
            self.spoke = time.monotonic()
            where = f"task {task.index + 1}/{task.num_tasks} {stage.name} epoch {report.epoch + 1}/{report.epochs}"
            self.say(f"{where}: {loss_text(report)}, {speed_text(report)}")

    def task_ends(self, row: Mapping[str, Any]) -> None:
        self.say(task_text(row))


class Live(Plain):
    """One live line per run: task, stage, epoch, losses, images per second, time left."""

    def run_begins(self, experiment: "Experiment", folder: Path, resumed: bool) -> None:
        super().run_begins(experiment, folder, resumed)
        self.tasks = len(experiment.stream)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[note]}", style="dim"),
        )
        self.work = [{stage.name: stage.epochs * stage.steps for stage in row.stages} for row in experiment.plan()]
        total = sum(sum(steps.values()) for steps in self.work)
        self.bar = Progress(*columns, console=self.console, transient=True)
        self.line = self.bar.add_task("starting", total=total, note="")
        self.bar.start()

    def stage_begins(self, task: "Task", stage: "Stage", from_epoch: int) -> None:
        names = list(self.work[task.index])
        before = [*self.work[: task.index], {n: self.work[task.index][n] for n in names[: names.index(stage.name)]}]
        done = sum(sum(steps.values()) for steps in before) + from_epoch * stage.steps
        text = f"task {task.index + 1}/{self.tasks} {stage.name}"
        self.bar.update(self.line, description=text, completed=done, note="")

    def epoch_ends(self, task: "Task", stage: "Stage", report: "EpochReport") -> None:
        text = f"task {task.index + 1}/{self.tasks} {stage.name} epoch {report.epoch + 1}/{report.epochs}"
        note = f"{loss_text(report)}, {speed_text(report)}"
        self.bar.update(self.line, description=text, advance=stage.steps, note=note)

    def close(self) -> None:
        if hasattr(self, "bar"):
            self.bar.stop()


class Shared:
    """One progress for several runs that train together: it follows whichever run reaches a place first."""

    def __init__(self, shown: Silent) -> None:
        self.shown, self.begun = shown, False
        self.place: tuple[str | int, ...] = ()

    def reached(self, *place: str | int) -> bool:
        """Say whether a place is news."""
        news, self.place = place != self.place, place
        return news


class Beside(Silent):
    """One run's part in a progress that several share: what concerns it alone carries its name."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared.shown.switch)
        self.shared, self.shown, self.name = shared, shared.shown, name

    def run_begins(self, experiment: "Experiment", folder: Path, resumed: bool) -> None:
        if self.shared.begun:
            self.shown.say(opening(experiment, folder, resumed))
        else:
            self.shared.begun = True
            self.shown.run_begins(experiment, folder, resumed)

    def stage_begins(self, task: "Task", stage: "Stage", from_epoch: int) -> None:
        if self.shared.reached(task.index, stage.name, "from", from_epoch):
            self.shown.stage_begins(task, stage, from_epoch)

    def epoch_ends(self, task: "Task", stage: "Stage", report: "EpochReport") -> None:
        if self.shared.reached(task.index, stage.name, "after", report.epoch):
            self.shown.epoch_ends(task, stage, report)

    def task_ends(self, row: Mapping[str, Any]) -> None:
        self.shown.say(f"{self.name} {task_text(row)}")


def make_progress(switch: StopSwitch, console: Console, quiet: bool) -> Silent:
    """Choose what fits the output."""
    if quiet:
        return Silent(switch)
    return Live(switch, console) if console.is_terminal else Plain(switch, console)


def opening(experiment: "Experiment", folder: Path, resumed: bool) -> str:
    """Say that a run begins or goes on."""
    return f"{'resuming' if resumed else 'running'} {headline(experiment)} in {folder}"


def headline(experiment: "Experiment") -> str:
    """Name a run by what a reader must know to compare it."""
    run, sizes = experiment.config.run, experiment.stream.sizes
    tasks = f"{sizes[0]} classes" + (f" + {len(sizes) - 1} x {sizes[1]}" if len(sizes) > 1 else "")
    memory = f"memory {experiment.budget}" if experiment.method.keeps_exemplars else "no memory"
    method = Path(run.method).name if ".py:" in run.method else run.method
    note = f" ({experiment.data.note})" if experiment.data.note else ""
    return f"{method} on {run.data}{note}, {tasks}, order {run.order}, {memory}, {run.backbone}, seed {run.seed}"


def loss_text(report: "EpochReport") -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in report.losses.items())


def speed_text(report: "EpochReport") -> str:
    return f"{report.images / max(report.seconds, 1e-9):,.0f} images/s"


def task_text(row: Mapping[str, Any]) -> str:
    parts = [f"task {row['task'] + 1}: {row['classes']} classes"]
    for kind in ("cnn", "nme"):
        if row[kind] is not None:
            old = "" if row[kind]["old"] is None else f", old {row[kind]['old']:.1f}"
            parts.append(f"{kind.upper()} {row[kind]['top1']:.2f} (new {row[kind]['new']:.1f}{old})")
    return ", ".join(parts)
