"""What a stranger's files did once, by the command line alone: one test for each thing that broke.

Each can be held against an earlier commit, to see it fail:
`DAYDREAM_TREE=FOLDER python -m pytest tests/trust/test_by_command.py`.
"""

import json
import os
import shutil
import signal
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tree import begun, command, ended, in_a_line, stopped_when

pytestmark = pytest.mark.slow

TINY = (
    "--classes=4", "--train-per-class=12", "--test-per-class=4", "--image-size=16", "--backbone=resnet10", "--base=2",
    "--steps=1", "--memory=8", "--base-epochs=400", "--epochs=1", "--batch-size=8", "--quiet",
)  # fmt: skip
LEARN = ("--method=replay", "--image-size=16", "--backbone=resnet10", "--device=cpu", "--quiet")
EVIL = "\x1b[2Jcat"


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run stopped in its first task, under a umask that leaves files to their owner."""
    run = tmp_path_factory.mktemp("half") / "run"
    before = os.umask(0o077)
    process = begun("run", *TINY, "--out", run)
    os.umask(before)
    code, _, err = stopped_when(process, (run / "metrics.jsonl").exists)
    assert code == 143, err
    return run


@pytest.fixture
def run(half: Path, tmp_path: Path) -> Path:
    shutil.copytree(half, tmp_path / "runs" / "run")
    return tmp_path / "runs" / "run"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two classes, one of them by a name that is a command to a terminal."""
    from own_images import write_classes

    folder = tmp_path_factory.mktemp("model")
    photos = write_classes(folder / "photos", range(3), 6)
    first, _, third = sorted(photos.iterdir())
    first.rename(photos / EVIL)
    shutil.copytree(third, folder / "more" / third.name)
    shutil.rmtree(third)
    code, _, err = command("learn", folder / "m.daydream", photos, "--epochs=1", *LEARN)
    assert code == 0, err
    return folder / "m.daydream"


def edited(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def test_1_a_report_runs_no_code_from_a_run(run: Path, tmp_path: Path) -> None:
    evil = tmp_path / "ev" / "e.py"
    evil.parent.mkdir()
    evil.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    edited(run / "config.json", lambda c: c["run"].update(method=f"{evil}:X"))
    edited(run / "config.json", lambda c: c.update(imagination={**(c["imagination"] or {}), "imagine": True}))
    command("report", run, "--out", tmp_path / "page.html")
    assert not (tmp_path / "ran").exists()


def test_2_a_checkpoint_that_is_a_link_deletes_nothing(run: Path, tmp_path: Path) -> None:
    (run / "checkpoint").rename(tmp_path / "theirs")
    (tmp_path / "theirs" / "thesis.tex").write_text("years of work")
    (run / "checkpoint").symlink_to(tmp_path / "theirs")
    edited(run / "config.json", lambda c: None)
    process = begun("resume", run, "--quiet")
    stopped_when(process, lambda: not (tmp_path / "theirs" / "thesis.tex").exists())
    assert (tmp_path / "theirs" / "thesis.tex").exists()


def test_3_pictures_are_their_owners_alone(half: Path, model: Path) -> None:
    pictures = [*(half / "checkpoint").glob("memory-*"), half / "config.json", model]
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in pictures} == {
        path.name: "0o600" for path in pictures
    }


def test_4_json_of_a_wrong_shape_is_named_and_hides_no_other_run(run: Path) -> None:
    shutil.copytree(run, run.parent / "bad")
    edited(run.parent / "bad" / "config.json", lambda c: c["run"].pop("order"))
    code, out, err = command("list", run.parent)
    assert "Traceback" not in err
    assert code == 0
    assert str(run) in out


def test_6_a_small_model_file_does_not_take_the_machine(model: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(model) as before, zipfile.ZipFile(tmp_path / "m.daydream", "w") as after:
        for name in before.namelist():
            raw = before.read(name)
            if name == "model.json":
                about = json.loads(raw)
                about["networks"]["net"]["config"]["sizes"] = [1] * 10**6
                raw = json.dumps(about).encode()
            after.writestr(name, raw)
    code, _, err = command("classes", tmp_path / "m.daydream", seconds=15)
    assert in_a_line(code, err), err


def test_6_a_pipe_is_not_waited_for(run: Path) -> None:
    (run.parent / "odd").mkdir()
    os.mkfifo(run.parent / "odd" / "config.json")
    code, out, err = command("list", run.parent, seconds=15)
    assert code == 0, err
    assert str(run) in out


def test_7_a_class_name_says_nothing_to_the_terminal(model: Path) -> None:
    code, out, err = command("classes", model)
    assert code == 0, err
    assert "\x1b" not in out


KILLED = """
import os, signal
def never(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
os.replace = os.link = never
"""


def test_8_a_run_killed_while_it_writes_its_config_leaves_its_folder_free(tmp_path: Path) -> None:
    code, _, _ = ended(begun("run", *TINY, "--out", tmp_path / "run", before=KILLED))
    assert code == -signal.SIGKILL
    process = begun("run", *TINY, "--out", tmp_path / "run")
    code, _, err = stopped_when(process, (tmp_path / "run" / "config.json").exists)
    assert "exists and is not empty" not in err
    assert code == 143, err


def test_10_a_lesson_is_stopped_politely(model: Path, tmp_path: Path) -> None:
    """It keeps the old model and says so; what was learnt of it is kept beside the model."""
    own, mark = shutil.copy(model, tmp_path / "m.daydream"), tmp_path / "trains"
    trains = (
        "import torch\nstep = torch.optim.SGD.step\n"
        f"def marked(*a, **k): open({str(mark)!r}, 'w'); return step(*a, **k)\ntorch.optim.SGD.step = marked\n"
    )
    learn = begun("learn", own, model.parent / "more", "--epochs=1000", "--device=cpu", "--quiet", before=trains)
    code, _, err = stopped_when(learn, mark.exists, signal.SIGINT)
    assert (code, own.read_bytes()) == (130, model.read_bytes()), err
    assert "is as it was before" in err
    assert "goes on with the lesson" in err
