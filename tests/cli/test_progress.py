"""The live line: it only moves forward, and is full at the end."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from tiny_runs import tiny_experiment

from daydream.cli.progress import Live, Plain
from daydream.engine.display import StopSwitch


class Recorded(Live):
    """A live line whose position is noted after each stage begins and each epoch ends."""

    places: list[float]

    def stage_begins(self, task, stage, from_epoch) -> None:
        super().stage_begins(task, stage, from_epoch)
        self.places.append(self.bar.tasks[0].completed)

    def epoch_ends(self, task, stage, report) -> None:
        super().epoch_ends(task, stage, report)
        self.places.append(self.bar.tasks[0].completed)


def test_the_bar_moves_forward_through_all_stages_to_its_end(tmp_path: Path) -> None:
    shown = Recorded(StopSwitch(), Console(file=io.StringIO(), force_terminal=True, width=120))
    shown.places = []
    tiny_experiment("imagine").start(tmp_path / "run", shown)
    shown.close()
    assert shown.places == sorted(shown.places)
    assert shown.places[-1] == shown.bar.tasks[0].total


def test_plain_lines_name_what_a_reader_must_know(tmp_path: Path) -> None:
    out = io.StringIO()
    tiny_experiment().start(tmp_path / "run", Plain(StopSwitch(), Console(file=out, width=200)))
    lines = out.getvalue().splitlines()
    assert "memory 12 in total" in lines[0]
    assert "resnet10" in lines[0]
    assert [line.split(":")[0] for line in lines if " classes, CNN " in line] == ["task 1", "task 2", "task 3"]


def test_counted_work_tells_the_time_left_from_its_first_part_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 2.0, 4.0, 14.0, 20.0])
    monkeypatch.setattr("daydream.cli.progress.time.monotonic", lambda: next(clock))
    out = io.StringIO()
    plain = Plain(StopSwitch(), Console(file=out, width=200))
    for done in (0, 32, 64, 192, 320):
        plain.counts("pictures", done, 320)
    assert out.getvalue().splitlines() == [
        "32 of 320 pictures, about 18 s left",
        "192 of 320 pictures, about 9 s left",
    ]


def test_counted_work_moves_the_live_line() -> None:
    shown = Live(StopSwitch(), Console(file=io.StringIO(), force_terminal=True, width=120))
    for done in (0, 32, 40):
        shown.counts("pictures", done, 40)
    shown.close()
    assert shown.bar.tasks[0].completed == shown.bar.tasks[0].total == 40
