"""Who shows training to a person, and how a person asks it to stop."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from daydream.engine.loop import EpochReport
from daydream.stages.stage import Stage


class StopSwitch:
    """Set by the first Ctrl-C or SIGTERM; the second ends the process at once."""

    def __init__(self) -> None:
        self.asked = False
        self.signal = signal.SIGINT

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked, self.signal = True, signal.Signals(number)
        sys.stderr.write("\nstopping: writing a checkpoint (press Ctrl-C again to stop without)\n")


@contextmanager
def stop_switch() -> Iterator[StopSwitch]:
    """Let signals ask a run to stop instead of killing it."""
    switch = StopSwitch()
    before = {number: signal.signal(number, switch) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield switch
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Place(NamedTuple):
    """Which task of how many a stage belongs to; of a lesson, which is one task, there are none."""

    task: int = 0
    tasks: int = 0

    def __str__(self) -> str:
        return f"task {self.task + 1}/{self.tasks} " if self.tasks else ""


class Display:
    """Shows nothing, and is the base of what shows something."""

    def __init__(self, switch: StopSwitch | None = None) -> None:
        self.switch = switch or StopSwitch()

    def begins(self, headline: str, ahead: Sequence[tuple[Place, Stage]]) -> None:
        """Training begins or goes on, with all these stages, those that are done included."""

    def stage_begins(self, place: Place, stage: Stage, from_epoch: int) -> None:
        """A stage begins, or goes on from an epoch."""

    def epoch_ends(self, place: Place, stage: Stage, report: EpochReport) -> None:
        """An epoch of a stage has ended."""

    def counts(self, what: str, done: int, total: int) -> None:
        """So many of all have passed, of work that trains nothing."""

    def task_ends(self, line: str) -> None:
        """A task has ended, with these accuracies."""

    def say(self, line: str) -> None:
        """There is something to be remarked."""

    def stop_asked(self) -> bool:
        return self.switch.asked

    def close(self) -> None:
        """Leave the terminal as it was."""
