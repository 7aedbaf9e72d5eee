"""MPS for the time of a grid, by a program that only notes how it was called."""

import contextlib
import os
from pathlib import Path

import pytest

from daydream.reproduce.executors import mps

NONE = ["no MPS: runs on one GPU take turns"]


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control program, alone on PATH; the file has a line for each call of it."""
    notes, program = tmp_path / "notes", tmp_path / "bin" / mps.PROGRAM
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        "read -r said\n"
        f'echo "[$*] [$said] [$CUDA_VISIBLE_DEVICES] $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY" >> {notes}\n'
        'test -d "$CUDA_MPS_PIPE_DIRECTORY" && test -d "$CUDA_MPS_LOG_DIRECTORY" && exit "${MPS_EXITS:-0}"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}/bin")
    monkeypatch.setattr(mps, "PLACES", "")
    monkeypatch.delenv(mps.PIPES, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    return notes


def test_it_is_started_and_ended_with_folders_of_its_own(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, said = [], list[str]()
    monkeypatch.setattr(mps, "works", lambda *given: asked.append(given) or True)
    with contextlib.suppress(KeyError), mps.shared_gpu("cuda:0", said.append) as variables:
        assert notes.read_text() == f"[-d] [] [] {variables[mps.PIPES]} {variables[mps.LOGS]}\n"
        assert asked == [("cuda:0", variables)]
        raise KeyError  # what goes wrong inside ends it too
    assert notes.read_text().splitlines()[1:] == [f"[] [quit] [] {variables[mps.PIPES]} {variables[mps.LOGS]}"]
    assert not Path(variables[mps.PIPES]).parent.exists()
    assert mps.PIPES not in os.environ
    assert said == []


def test_one_that_is_there_is_used_and_left_alone(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mps.PIPES, "/elsewhere")
    said = list[str]()
    with mps.shared_gpu("cuda", said.append) as variables:
        assert variables == {}
    assert said == []
    assert not notes.exists()


def test_a_cpu_needs_none(notes: Path) -> None:
    said = list[str]()
    with mps.shared_gpu("cpu", said.append) as variables:
        assert variables == {}
    assert said == []
    assert not notes.exists()


def test_without_the_program_one_line_is_said(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    said = list[str]()
    with mps.shared_gpu("cuda", said.append) as variables:
        assert variables == {}
    assert said == NONE


def test_a_program_that_fails_is_not_used(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPS_EXITS", "1")
    said = list[str]()
    with mps.shared_gpu("cuda", said.append) as variables:
        assert variables == {}
    assert said == NONE
    assert notes.read_text().count("\n") == 1


def test_a_server_no_process_can_use_is_ended(notes: Path) -> None:
    said = list[str]()
    with mps.shared_gpu("cuda:99", said.append) as variables:  # no machine has so many
        assert variables == {}
    assert said == NONE
    assert "[quit]" in notes.read_text()
