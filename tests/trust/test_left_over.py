"""What a killed process leaves blocks nobody and does not stay; what goes wrong is called by its name."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import TINY, call
from hostile import changed, stopped
from own_images import TINY_LESSON, TINY_MODEL, write_classes

from daydream import Learner
from daydream.storage.run_folder import RunFolder


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopped(tmp_path_factory.mktemp("half") / "run")


@pytest.fixture
def run(half: Path, tmp_path: Path) -> Path:
    shutil.copytree(half, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    learner = Learner.create(**TINY_MODEL)
    learner.learn(write_classes(folder / "photos", range(2), 6), **TINY_LESSON)
    learner.save(folder / "m.daydream")
    return folder / "m.daydream"


def left(path: Path) -> Path:
    """Leave what a process leaves that is killed while it writes a file."""
    part = path.with_name(f".{path.name}.0a1b2c3d.part")
    part.write_bytes(b"half of it")
    return part


def test_a_folder_killed_before_it_was_a_run_takes_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    parts = [left(folder / "config.json")]
    (folder / ".lock").touch()
    code, _, err = call(capsys, "run", *TINY, "--tasks=1", "--quiet", "--out", str(folder))
    assert code == 0, err
    assert not [part for part in parts if part.exists()]


def test_a_resumed_run_clears_what_was_left(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    names = ("config.json", "metrics.jsonl", "result.json", "checkpoint/latest.json", "checkpoint/memory.safetensors")
    parts = [left(run / name) for name in names]
    own = run / ".notes.txt.0a1b2c3d.part"
    own.write_text("mine")
    code, _, err = call(capsys, "resume", str(run), "--quiet")
    assert code == 0, err
    assert [part.name for part in parts if part.exists()] == []
    assert own.exists()


def test_a_lesson_clears_what_was_left_of_its_model(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path
) -> None:
    """A whole copy of someone's pictures, maybe."""
    shutil.copy(model, tmp_path / "m.daydream")
    part, other = left(tmp_path / "m.daydream"), left(tmp_path / "other.daydream")
    more = write_classes(tmp_path / "more", range(2, 3), 6)
    code, _, err = call(capsys, "learn", str(tmp_path / "m.daydream"), str(more), "--epochs=1", "--quiet")
    assert code == 0, err
    assert not part.exists()
    assert other.exists()


def test_a_page_clears_what_was_left_of_it_long_ago(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    old, new = left(run / "report.html"), run / ".report.html.9z9z9z9z.part"
    new.write_text("being written by another process")
    os.utime(old, (0, 0))
    code, _, err = call(capsys, "report", str(run))
    assert code == 0, err
    assert (old.exists(), new.exists()) == (False, True)


def test_a_folder_in_the_checkpoint_is_nothing_to_a_run(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    (run / "checkpoint" / "@eaDir").mkdir()
    code, _, err = call(capsys, "resume", str(run), "--quiet")
    assert code == 0, err
    assert (run / "checkpoint" / "@eaDir").is_dir()


def test_a_disk_without_locks_is_no_other_process(
    capsys: pytest.CaptureFixture[str], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    code, _, err = call(capsys, "resume", str(run), "--quiet")
    assert "another process; wait" not in err
    assert code == 0, err
    assert "cannot be locked (No locks available)" in err


def test_a_folder_that_was_deleted_is_not_called_intact(
    capsys: pytest.CaptureFixture[str], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = RunFolder.append

    def append(self: RunFolder, row: Any) -> None:
        shutil.rmtree(run, ignore_errors=True)
        inner(self, row)

    monkeypatch.setattr(RunFolder, "append", append)
    code, _, err = call(capsys, "resume", str(run), "--quiet")
    assert code == 2
    assert "intact" not in err
    assert f"{run} is gone" in err


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_weights_that_are_no_numbers_give_no_nan(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path, value: float
) -> None:
    def spoil(about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        for name in tensors:
            if name.startswith("net.net/head.weights"):
                tensors[name].fill_(value)
            if value == 3e38 and name.endswith(".weight"):
                tensors[name].fill_(value)

    path = changed(model, tmp_path / "m.daydream", spoil)
    picture = next((model.parent / "photos").glob("*/*.png"))
    for form in ((), ("--json",)):
        code, out, err = call(capsys, "predict", str(path), str(picture), "--device=cpu", *form)
        assert "nan" not in out.lower()
        assert (code, err.count("\n")) == (2, 1)
