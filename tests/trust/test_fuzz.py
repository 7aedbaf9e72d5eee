"""Run folders and model files changed at random: a command says in a line what is wrong, or does what it should.

`make fuzz` tries two thousand of each; here are some hundred commands. A failure names its number, to be tried again
with FUZZ=1 and FUZZ_FROM=NUMBER.
"""

import os
import random
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzzing import Watched, changed_exact, changed_kept, changed_model, changed_run, copied, outcome, picture
from hostile import method_file, ran, stopped
from own_images import TINY_LESSON, TINY_MODEL, write_classes, write_pile
from tiny_runs import Watch, tiny_experiment

from daydream import Learner
from daydream.engine import Interrupted
from daydream.learner.exact_learner import ExactLearner
from daydream.learner.lesson_checkpoint import folder_of
from daydream.learner.settings import LessonSettings
from daydream.settings import as_words, from_dict

pytestmark = pytest.mark.slow

CASES, FIRST = int(os.environ.get("FUZZ", "80")), int(os.environ.get("FUZZ_FROM", "0"))
SECONDS = float(os.environ.get("FUZZ_SECONDS", "20"))
"""After which a command counts as one that has no end."""
QUICK: tuple[Callable[[Path], list[str]], ...] = (
    lambda run: ["list", str(run.parent)],
    lambda run: ["show", str(run)],
    lambda run: ["report", str(run), "--format", "csv"],
)
SLOWER: tuple[Callable[[Path], list[str]], ...] = (
    lambda run: ["list", str(run.parent), "--json"],
    lambda run: ["show", str(run), "--json"],
    lambda run: ["report", str(run), "--format", "md"],
    lambda run: ["report", str(run), "--format", "latex", "--out", str(run / "table.tex")],
    lambda run: ["report", str(run)],
    lambda run: ["export", str(run)],
    lambda run: ["resume", str(run), "--quiet"],
    lambda run: ["resume", str(run), "--json"],
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A run that is finished, and one stopped in its second task."""
    folder = tmp_path_factory.mktemp("runs")
    tiny_experiment().start(folder / "whole", Watch())
    return [folder / "whole", stopped(folder / "half")]


def complaint(code: Any, out: str, err: str, watched: Watched, code_ran: bool) -> str:
    """Say what is wrong with what a command did."""
    if isinstance(code, BaseException):
        return "".join(traceback.format_exception(code))[-1500:]
    lines = [line for line in err.splitlines() if line.startswith("daydream: ")]
    return (
        (f"it ended with {code}" if code not in (0, 2) else "")
        or ("it said more than a line, or none" if code == 2 and len(lines) != 1 else "")
        or ("code ran" if code_ran else "")
        or ("an escape came through" if "\x1b" in out + err else "")
        or "; ".join(watched.events)
    )


def test_changed_run_folders(runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = method_file(tmp_path / "case" / "ev")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "letter").write_text("{}")
    case, watched, found = tmp_path / "case", Watched(tmp_path / "case"), []
    monkeypatch.chdir(case)  # where a relative name in a config would lead to code
    refused = 0
    for number in range(FIRST, FIRST + CASES):
        dice = random.Random(number)
        run = copied(dice.choice(runs), case / "runs" / "run")
        changed_run(run, dice)
        for command in (*QUICK, dice.choice(SLOWER)):
            words = command(run)
            with watched.watching():
                code, out, err = outcome(words, SECONDS)
            refused += code == 2
            if wrong := complaint(code, out, err, watched, ran(evil)):
                found.append(f"{number}: {words[0]}: {wrong}")
        assert (tmp_path / "outside" / "letter").read_text() == "{}", number
    assert not found, "\n\n".join(found[:20]) + f"\n{len(found)} of {CASES}"
    assert refused > CASES / 10


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two lessons, with generators."""
    folder = tmp_path_factory.mktemp("model")
    learner = Learner.create(**TINY_MODEL)
    learner.learn(write_classes(folder / "a", range(2), 6), write_pile(folder / "pile", 20), **TINY_LESSON)
    learner.learn(write_classes(folder / "b", range(2, 4), 6), **TINY_LESSON)
    learner.save(folder / "m.daydream")
    return folder / "m.daydream"


def tried(tmp_path: Path, change: Callable[[Path, random.Random], list[list[str]]]) -> None:
    """Change a case and run commands on it, as often as is asked for."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "letter").write_text("{}")
    watched, found, refused = Watched(tmp_path / "case"), [], 0
    for number in range(FIRST, FIRST + CASES):
        for words in change(tmp_path / "case", random.Random(number)):
            with watched.watching():
                code, out, err = outcome(words, SECONDS)
            refused += code == 2
            if wrong := complaint(code, out, err, watched, False) or ("nan" in out.lower() and "it says nan"):
                found.append(f"{number}: {words[0]}: {wrong}")
    assert not found, "\n\n".join(found[:20]) + f"\n{len(found)} of {CASES}"
    assert refused > CASES / 10
    assert (tmp_path / "outside" / "letter").read_text() == "{}"


def fresh(model: Path, case: Path) -> Path:
    """Return a copy of a model, in the place of what the last case left."""
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir()
    return shutil.copy(model, case / model.name)


def test_changed_model_files(model: Path, tmp_path: Path) -> None:
    image = str(next((model.parent / "a").glob("*/*.png")))

    def change(case: Path, dice: random.Random) -> list[list[str]]:
        path = fresh(model, case)
        changed_model(path, dice)
        slower = (["export", str(path), "--out", str(case / "net")], ["test", str(path), str(model.parent / "a")])
        usual = [["classes", str(path), "--json"], ["predict", str(path), image, "--device=cpu", "--json"]]
        return [*usual, dice.choice(slower)]

    tried(tmp_path, change)


def test_changed_pictures(model: Path, tmp_path: Path) -> None:
    def change(case: Path, dice: random.Random) -> list[list[str]]:
        path = case / "picture.png"
        shutil.rmtree(case, ignore_errors=True)
        case.mkdir()
        picture(path, dice)
        return [["predict", str(model), str(path), "--device=cpu", "--csv"]]

    tried(tmp_path, change)


@pytest.mark.parametrize("keep", [True, False])
def test_changed_exact_models(model: Path, tmp_path: Path, keep: bool) -> None:
    learner = ExactLearner.create("resnet10", keep_features=keep)
    for folder in ("a", "b"):
        learner.learn(model.parent / folder)
    learner.save(tmp_path / "m.exact")
    learner.make_ready()  # where onnxruntime is there, predict goes its own way to the file
    image = str(next((model.parent / "a").glob("*/*.png")))

    def change(case: Path, dice: random.Random) -> list[list[str]]:
        path = fresh(tmp_path / "m.exact", case)
        changed_exact(path, dice)
        return [["asked", str(path), image], ["classes", str(path)], ["predict", str(path), image, "--device=cpu"]]

    tried(tmp_path, change)


def test_changed_lessons_under_way(model: Path, tmp_path: Path) -> None:
    kept, folder = model.parent / "kept", model.parent / "b"
    learner = Learner.load(model, device="cpu")
    settings = {**TINY_LESSON, "epochs": 2}
    lesson, _ = learner.prepare(folder, None, None, from_dict(LessonSettings, settings))
    kept.mkdir()
    with pytest.raises(Interrupted):
        learner.take(lesson, Watch(stop_at=3), kept / model.name)
    flags = [word for key, value in settings.items() for word in as_words(key, value)]

    def change(case: Path, dice: random.Random) -> list[list[str]]:
        path = fresh(model, case)
        changed_kept(copied(folder_of(kept / model.name), folder_of(path)), dice)
        return [["learn", str(path), str(folder), *flags, "--device=cpu", "--quiet"]]

    tried(tmp_path, change)
