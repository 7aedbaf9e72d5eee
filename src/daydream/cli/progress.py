"""What a person sees while something trains: a live line in a terminal, plain lines elsewhere, or nothing."""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from daydream.engine.display import Display, Place, StopSwitch
from daydream.engine.loop import EpochReport
from daydream.stages.stage import Stage

PLAIN_SECONDS = 10.0  # between two lines about a stage when the output is not a terminal


class Plain(Display):
    """Lines for a log file."""

    def __init__(self, switch: StopSwitch, console: Console) -> None:
        super().__init__(switch)
        self.console = console
        self.spoke = 0.0

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def begins(self, headline: str, ahead: Sequence[tuple[Place, Stage]]) -> None:
        if headline:
            self.say(headline)

    def counts(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if not done:
            self.began, self.spoke = now, now - PLAIN_SECONDS  # the first are told at once
        elif done < total and now - self.spoke >= PLAIN_SECONDS:
            self.spoke = now
            left = (now - self.began) / done * (total - done)
            self.say(f"{done:,} of {total:,} {what}, about {left:.0f} s left")

    def stage_begins(self, place: Place, stage: Stage, from_epoch: int) -> None:
        self.spoke = time.monotonic()

    def epoch_ends(self, place: Place, stage: Stage, report: EpochReport) -> None:
        last = report.epoch + 1 == report.epochs
        if last or time.monotonic() - self.spoke > PLAIN_SECONDS:
            self.spoke = time.monotonic()
            where = f"{place}{stage.name} epoch {report.epoch + 1}/{report.epochs}"
            self.say(f"{where}: {loss_text(report)}, {speed_text(report)}")

    def task_ends(self, line: str) -> None:
        self.say(line)


class Live(Plain):
    """One live line: task, stage, epoch, losses, images per second, time left."""

    def begins(self, headline: str, ahead: Sequence[tuple[Place, Stage]]) -> None:
        super().begins(headline, ahead)
        self.work = [(place, stage.name, stage.epochs * stage.steps) for place, stage in ahead]
        self.starts("starting", sum(steps for _, _, steps in self.work))

    def counts(self, what: str, done: int, total: int) -> None:
        if not done:
            self.starts(what, total)
        self.bar.update(self.line, completed=done, note=f"{done:,} of {total:,}")

    def starts(self, what: str, total: int) -> None:
        """Begin a line, in the place of one there is."""
        self.close()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[note]}", style="dim"),
        )
        self.bar = Progress(*columns, console=self.console, transient=True)
        self.line = self.bar.add_task(what, total=total, note="")
        self.bar.start()

    def stage_begins(self, place: Place, stage: Stage, from_epoch: int) -> None:
        here = [(task, name) for task, name, _ in self.work].index((place, stage.name))
        done = sum(steps for _, _, steps in self.work[:here]) + from_epoch * stage.steps
        self.bar.update(self.line, description=f"{place}{stage.name}", completed=done, note="")

    def epoch_ends(self, place: Place, stage: Stage, report: EpochReport) -> None:
        text = f"{place}{stage.name} epoch {report.epoch + 1}/{report.epochs}"
        note = f"{loss_text(report)}, {speed_text(report)}"
        self.bar.update(self.line, description=text, advance=stage.steps, note=note)

    def close(self) -> None:
        if hasattr(self, "bar"):
            self.bar.stop()


class Shared:
    """One display for several runs that train together: it follows whichever run reaches a place first."""

    def __init__(self, shown: Display) -> None:
        self.shown, self.begun = shown, False
        self.place: tuple[object, ...] = ()

    def reached(self, *place: object) -> bool:
        """Say whether a place is news."""
        news, self.place = place != self.place, place
        return news


class Beside(Display):
    """One run's part in a display that several share: what concerns it alone carries its name."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared.shown.switch)
        self.shared, self.shown, self.name = shared, shared.shown, name

    def begins(self, headline: str, ahead: Sequence[tuple[Place, Stage]]) -> None:
        if self.shared.begun:
            self.shown.say(headline)
        else:
            self.shared.begun = True
            self.shown.begins(headline, ahead)

    def stage_begins(self, place: Place, stage: Stage, from_epoch: int) -> None:
        if self.shared.reached(place, stage.name, "from", from_epoch):
            self.shown.stage_begins(place, stage, from_epoch)

    def epoch_ends(self, place: Place, stage: Stage, report: EpochReport) -> None:
        if self.shared.reached(place, stage.name, "after", report.epoch):
            self.shown.epoch_ends(place, stage, report)

    def task_ends(self, line: str) -> None:
        self.shown.say(f"{self.name} {line}")


def make_display(switch: StopSwitch, console: Console, quiet: bool) -> Display:
    """Choose what fits the output."""
    if quiet:
        return Display(switch)
    return Live(switch, console) if console.is_terminal else Plain(switch, console)


def loss_text(report: EpochReport) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in report.losses.items())


def speed_text(report: EpochReport) -> str:
    return f"{report.images / max(report.seconds, 1e-9):,.0f} images/s"
