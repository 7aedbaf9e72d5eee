"""A lesson that was killed or stopped goes on, by its own command, to what it would have come to."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from command_line import call
from hostile import tree
from own_images import TINY_LESSON, taken, tiny_learner, without_clock, write_classes, write_pile
from tiny_runs import Watch

from daydream import Learner
from daydream.engine import Interrupted
from daydream.learner import lesson_checkpoint

pytestmark = pytest.mark.slow

STEPS = 5
TINY = (
    "--method=replay", "--epochs=6", "--batch-size=4", "--generator-epochs=2", "--backbone=resnet10", "--image-size=16",
    "--memory=4", "--generator-width=8", "--device=cpu", "--quiet",
)  # fmt: skip
SCRIPT = """
import sys
from daydream.cli.main import main
from daydream.learner import lesson_checkpoint
lesson_checkpoint.SECONDS = 0.0
main()
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    write_classes(folder / "a", range(2), 6)
    write_classes(folder / "b", range(1, 4), 6, first=6)
    write_classes(folder / "again", range(2), 5, first=20)
    write_pile(folder / "pile", 20)
    return folder


def begun(words: list[str], kept: Path, until: int) -> None:
    """Give a command in a process of its own that keeps its lesson at every epoch; kill it at one of them."""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, "-c", SCRIPT, *words], env=here) as process:
        last = time.monotonic() + 60
        while time.monotonic() < last and process.poll() is None:
            latest = kept / "latest.json"
            stands = json.loads(latest.read_text()) if latest.exists() else {"stage": 0, "partial": None}
            if stands["stage"] * 100 + (stands["partial"] or {"epoch": 0})["epoch"] >= until:
                break
            time.sleep(0.005)
        process.kill()
    assert process.returncode == -signal.SIGKILL, "it was over before it was killed"


def test_a_killed_lesson_goes_on_by_its_command(
    capsys: pytest.CaptureFixture[str], photos: Path, tmp_path: Path
) -> None:
    def words(model: str) -> list[str]:
        return ["learn", str(tmp_path / model), str(photos / "a"), "--unlabeled", str(photos / "pile"), *TINY]

    kept = tmp_path / ".m.daydream.lesson"
    begun(words("m.daydream"), kept, until=100)
    assert not (tmp_path / "m.daydream").exists()
    assert kept.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in kept.glob("*.safetensors")} == {0o600}
    before = json.loads((kept / "latest.json").read_text())
    code, _, err = call(capsys, *words("m.daydream"))
    assert code == 0, err
    code, _, err = call(capsys, *words("straight.daydream"))
    assert code == 0, err
    assert without_clock(tmp_path / "m.daydream") == without_clock(tmp_path / "straight.daydream")
    assert before["stage"] >= 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.daydream", "straight.daydream"]


@pytest.mark.parametrize(
    ("method", "folder"),
    [("imagine", "b"), ("bic", "b"), ("podnet", "again"), ("der", "b"), ("foster", "b"), ("dmc", "b")],
)
def test_a_lesson_stopped_over_and_over_is_one_that_nobody_stopped(
    photos: Path, tmp_path: Path, method: str, folder: str
) -> None:
    settings = {**TINY_LESSON, "batch_size": 4, "epochs": 3}
    learner = tiny_learner(method=method)
    learner.learn(photos / "a", photos / "pile" if method in ("imagine", "dmc") else None, **TINY_LESSON)
    learner.save(tmp_path / "m.daydream")
    straight, counted = Learner.load(tmp_path / "m.daydream", device="cpu"), Watch()
    taken(straight, photos / folder, None, counted, settings)
    steps = max(STEPS, counted.asked // 4)
    stops = (counted.asked - 1) // steps
    assert stops >= 2
    for last in (*(False,) * stops, True):
        resumed = Learner.load(tmp_path / "m.daydream", device="cpu")
        with contextlib.nullcontext() if last else pytest.raises(Interrupted, match="the same command goes on"):
            taken(resumed, photos / folder, tmp_path / "m.daydream", Watch(stop_at=1 + steps), settings)
    for path, which in (("straight", straight), ("resumed", resumed)):
        which.save(tmp_path / path)
    assert without_clock(tmp_path / "straight") == without_clock(tmp_path / "resumed")


@pytest.fixture
def stopped(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose first lesson was stopped by Ctrl-C."""
    epochs = []

    def one_more(*_: object) -> None:
        epochs.append(1)
        if len(epochs) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr("daydream.engine.Display.epoch_ends", one_more)
        code, _, err = call(capsys, "learn", str(tmp_path / "m.daydream"), str(photos / "a"), *TINY)
    assert code == 130
    told = f"stopped; {tmp_path / 'm.daydream'} is as it was before; the same command goes on with the lesson, `rm -r"
    assert f"{told} {tmp_path / '.m.daydream.lesson'}` drops it\n" in err
    return tmp_path / "m.daydream"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--epochs=7",), "--epochs was 6 and is 7"),
        (("--memory=5", "--batch-size=6", "--lr=0.01"), "--memory was 4 and is 5, --batch-size was 4 and is 6, --lr"),
        (("--unlabeled", "pile"), "the unlabelled pictures changed"),
        (("again",), "the pictures changed"),
        (("b",), "the classes and the pictures changed"),
    ],
)
def test_another_lesson_is_refused_in_a_line(
    capsys: pytest.CaptureFixture[str], photos: Path, stopped: Path, change: tuple[str, ...], said: str
) -> None:
    before = tree(stopped.parent)
    folder = photos / change[0] if change[0] in ("b", "again") else photos / "a"
    others = [str(photos / word) if word == "pile" else word for word in change if word not in ("b", "again")]
    code, _, err = call(capsys, "learn", str(stopped), str(folder), *TINY, *others)
    assert (code, err.count("\n")) == (2, 1), err
    assert f"m.daydream has a lesson under way, and {said}" in err
    assert ": give the command as it was, or `rm -r" in err
    assert tree(stopped.parent) == before


def test_a_model_changed_meanwhile_takes_up_no_lesson(
    capsys: pytest.CaptureFixture[str], photos: Path, stopped: Path
) -> None:
    """One that has learnt more has ended that lesson: its process was killed before it could say so."""
    learner = tiny_learner()
    learner.learn(photos / "a", **TINY_LESSON)
    learner.save(stopped)
    code, _, err = call(capsys, "learn", str(stopped), str(photos / "again"), "--epochs=1", "--device=cpu", "--quiet")
    assert code == 0, err
    assert [path.name for path in stopped.parent.iterdir()] == ["m.daydream"]
    assert len(Learner.load(stopped, device="cpu").taught.lessons) == 2


@pytest.mark.parametrize("how", ["cut", "gone", "digit", "other"])
def test_a_damaged_one_is_named_with_the_way_out(
    capsys: pytest.CaptureFixture[str], photos: Path, stopped: Path, how: str
) -> None:
    kept = stopped.parent / ".m.daydream.lesson"
    latest, largest = kept / "latest.json", max(kept.glob("net.*"), key=lambda path: path.stat().st_size)
    if how == "cut":
        largest.write_bytes(largest.read_bytes()[:-1])
    elif how == "gone":
        largest.unlink()
    elif how == "digit":
        latest.write_text(latest.read_text().replace('"stage": 0', '"stage": 1'))
    else:
        latest.write_text("[]")
    code, _, err = call(capsys, "learn", str(stopped), str(photos / "a"), *TINY)
    assert (code, err.count("\n")) == (2, 1), err
    assert f"or `rm -r {kept}` drops it" in err


def test_a_link_in_its_place_is_not_followed(
    capsys: pytest.CaptureFixture[str], photos: Path, stopped: Path, tmp_path: Path
) -> None:
    kept, theirs = stopped.parent / ".m.daydream.lesson", tmp_path / "theirs"
    kept.rename(theirs)
    kept.symlink_to(theirs)
    before = tree(theirs)
    code, _, err = call(capsys, "learn", str(stopped), str(photos / "a"), *TINY)
    assert code == 2
    assert ".m.daydream.lesson is a link" in err
    assert tree(theirs) == before
    lesson_checkpoint.drop(stopped)
    assert tree(theirs) == before


def test_a_short_lesson_writes_nothing_beside_its_model(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    monkeypatch.setattr(Path, "mkdir", lambda path, *_, **__: made.append(path))
    learner = tiny_learner()
    taken(learner, photos / "a", tmp_path / "m.daydream", Watch(), TINY_LESSON)
    assert made == []
    assert torch.is_tensor(learner.taught.seen)


def test_a_file_of_ones_own_in_the_folder_stays(
    capsys: pytest.CaptureFixture[str], photos: Path, stopped: Path
) -> None:
    own = stopped.parent / ".m.daydream.lesson" / "notes.txt"
    own.write_text("on this lesson")
    code, _, err = call(capsys, "learn", str(stopped), str(photos / "a"), *TINY)
    assert code == 0, err
    assert [path.name for path in own.parent.iterdir()] == ["notes.txt"]
