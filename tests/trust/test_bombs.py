"""A small file may not take the machine's memory or time; what is no file is not waited for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import call
from hostile import alone, changed, edited, stopped, within
from own_images import TINY_LESSON, TINY_MODEL, write_classes, write_pile
from png import png
from written_runs import write_run

from daydream import Learner

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two classes with generators."""
    folder = tmp_path_factory.mktemp("model")
    learner = Learner.create(**TINY_MODEL)
    learner.learn(write_classes(folder / "photos", range(2), 6), write_pile(folder / "pile", 20), **TINY_LESSON)
    learner.save(folder / "m.daydream")
    return folder / "m.daydream"


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopped(tmp_path_factory.mktemp("half") / "run")


def deep(about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    about["networks"]["generators"]["config"]["depth"] = 10**7
    tensors["net.generators/more"] = torch.zeros(10**7, 0)


def long(about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    about["networks"]["net"]["config"]["sizes"] = [1] * 10**6


@pytest.mark.parametrize("bomb", [deep, long])
def test_a_model_that_asks_for_more_than_it_holds(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path, bomb: Any
) -> None:
    path = changed(model, tmp_path / "m.daydream", bomb)
    with within(5):
        code, _, err = call(capsys, "classes", str(path))
    assert (code, err.count("\n")) == (2, 1), err
    assert "does not fit its weights" in err


def test_a_run_that_asks_for_more_than_it_holds(capsys: pytest.CaptureFixture[str], half: Path, tmp_path: Path) -> None:
    shutil.copytree(half, tmp_path / "run")
    edited(
        tmp_path / "run" / "checkpoint" / "latest.json",
        lambda info: info["state"]["nets"]["net"]["config"].update(sizes=[1] * 10**6),
    )
    with within(5):
        code, _, err = call(capsys, "export", str(tmp_path / "run"))
    assert (code, err.count("\n")) == (2, 1), err
    assert "does not fit its weights" in err


def test_a_small_file_that_is_a_large_picture(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = png(tmp_path / "bomb.png", 9000, 9000, 16)
    assert picture.stat().st_size < 1_000_000
    code, _, err = call(capsys, "predict", str(model), str(picture), "--device=cpu")
    assert code == 2
    assert "81,000,000 pixels" in err
    assert "--max-pixels" in err
    monkeypatch.setenv("DAYDREAM_MAX_PIXELS", "100")  # to be put back when this test ends
    small = png(tmp_path / "small.png", 20, 20, 8)
    assert call(capsys, "predict", str(model), str(small), "--device=cpu")[0] == 2
    assert call(capsys, "predict", str(model), str(small), "--device=cpu", "--max-pixels=400")[0] == 0


# --- what is no file -------------------------------------------------------------------------------------------------


def no_file(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "result.json"])
def test_a_run_of_no_files_hides_no_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, name: str
) -> None:
    write_run(tmp_path / "good")
    no_file(write_run(tmp_path / "odd") / name, kind)
    with within(3):
        code, out, err = call(capsys, "list", str(tmp_path))
    assert code == 0, err
    assert str(tmp_path / "good") in out
    with within(3):
        code, _, err = call(capsys, "show", str(tmp_path / "odd"))
    assert (code, err.count("\n")) == (2, 1), err


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "checkpoint/latest.json", "memory", ".lock"])
def test_resume_waits_for_no_pipe(
    capsys: pytest.CaptureFixture[str], half: Path, tmp_path: Path, kind: str, name: str
) -> None:
    shutil.copytree(half, tmp_path / "run")
    path = tmp_path / "run" / name
    if name == "memory":
        (path,) = (tmp_path / "run" / "checkpoint").glob("memory-*")
    no_file(path, kind)
    with within(5):
        code, _, err = call(capsys, "resume", str(tmp_path / "run"), "--quiet")
    assert (code, err.count("\n")) == (2, 1), err


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_predict_waits_for_no_pipe(capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path, kind: str) -> None:
    picture = png(tmp_path / "good.png", 20, 20, 8)
    no_file(tmp_path / "odd.png", kind)
    with within(5):
        code, _, err = call(capsys, "predict", str(model), str(picture), str(tmp_path / "odd.png"), "--device=cpu")
    assert code == 0
    assert "skipped 1 of 2 images that cannot be decoded" in err


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_model_that_is_no_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    picture = png(tmp_path / "good.png", 20, 20, 8)
    no_file(tmp_path / "m.daydream", kind)
    code, err = alone("predict", str(tmp_path / "m.daydream"), str(picture), "--device=cpu")
    assert (code, err.count("\n")) == (2, 1), err
    assert "is not a model file but a folder or a device" in err


@pytest.mark.parametrize("reader", ["daydream.ExactLearner.load", "daydream.export.load_exported"])
def test_python_waits_for_no_pipe_either(tmp_path: Path, reader: str) -> None:
    pipe = tmp_path / "m.daydream"
    no_file(pipe, "pipe")
    asked = f"import sys, pathlib, daydream, daydream.export\n{reader}(pathlib.Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", asked, str(pipe)], capture_output=True, text=True, check=False, timeout=60
    )
    assert "but a folder or a device" in done.stderr.splitlines()[-1]
