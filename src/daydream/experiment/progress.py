"""Who watches a run, and how a person asks it to stop."""

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daydream.engine import EpochReport
    from daydream.experiment.experiment import Experiment
    from daydream.protocol.stream import Task
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


class Silent:
    """Shows nothing, and is the base of what shows something."""

    def __init__(self, switch: StopSwitch) -> None:
        self.switch = switch

    def run_begins(self, experiment: "Experiment", folder: Path, resumed: bool) -> None: ...

    def task_begins(self, task: "Task", stages: "list[Stage]") -> None: ...

    def stage_begins(self, task: "Task", stage: "Stage", from_epoch: int) -> None: ...

    def epoch_ends(self, task: "Task", stage: "Stage", report: "EpochReport") -> None: ...

    def task_ends(self, row: Mapping[str, Any]) -> None: ...

    def say(self, line: str) -> None: ...

    def stop_asked(self) -> bool:
        return self.switch.asked

    def close(self) -> None: ...
