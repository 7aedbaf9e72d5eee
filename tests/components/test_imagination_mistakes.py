"""Imagination that cannot be: piles, settings and methods that do not fit, each told in one line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tiny_runs import TINY_DATA, TINY_RECIPE, TINY_RUN, Watch, tiny_experiment

from daydream.cli.main import main
from daydream.errors import UserError
from daydream.experiment.config import make_config
from daydream.experiment.experiment import Experiment
from daydream.storage.run_folder import RunFolder


def pile_of(values: Mapping[str, Any], run: Mapping[str, Any] = {}, data: Mapping[str, Any] = TINY_DATA) -> Experiment:
    return Experiment(make_config({**TINY_RUN, "method": "imagine", **run}, data, TINY_RECIPE, {}, values))


def test_a_pile_smaller_than_a_batch_is_refused_before_training(tmp_path: Path) -> None:
    small = pile_of({}, data={**TINY_DATA, "pile_size": 9})
    with pytest.raises(UserError, match="the pile holds 9 images, fewer than the 10 of one batch"):
        small.plan()
    with pytest.raises(UserError, match="the pile holds 9 images"):
        small.start(tmp_path / "run", Watch())
    assert RunFolder(tmp_path / "run").metrics() == []


def test_an_unknown_source_of_the_pile() -> None:
    with pytest.raises(UserError, match="imagenet33"):
        pile_of({"unlabeled": "imagenet33:DIR"})


@pytest.fixture
def own_images(tmp_path: Path) -> Path:
    for label in range(4):
        (tmp_path / "own" / f"class{label}").mkdir(parents=True)
        for i in range(8):
            Image.new("RGB", (16, 16), (60 * label, 30 * i, 0)).save(tmp_path / "own" / f"class{label}" / f"{i}.png")
    return tmp_path / "own"


def test_a_data_set_without_a_pile(own_images: Path) -> None:
    run = {"data": "folder", "root": str(own_images), "base": 2, "steps": 1, "memory": 8}
    with pytest.raises(UserError, match="'folder' has no unlabelled images of its own: say where they are with"):
        pile_of({}, run, {"image_size": 16})
    replay = make_config({**TINY_RUN, "method": "replay", **run}, {"image_size": 16}, TINY_RECIPE)
    assert Experiment(replay).carried.imagination is None  # which asks for no pile


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("counterparts", -1),
        ("decoupling", -0.1),
        ("cycle", -0.1),
        ("imagined_weight", -1.0),
        ("generator_depth", 0),
        ("generator_epochs", 0),
        ("generator_updates", 0),
        ("generator_width", 0),
        ("generator_lr", 0.0),
    ],
)
def test_settings_out_of_range(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} {value} must "):
        tiny_experiment("imagine", imagination={name: value})


def test_nothing_to_imagine_without_replay() -> None:
    with pytest.raises(UserError, match="--imagine does not fit method 'finetune': it replays no exemplars"):
        make_config({**TINY_RUN, "method": "finetune"}, TINY_DATA, TINY_RECIPE, {"imagine": True})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--method=imagine", "--pile-size=9"], "the pile holds 9 images"),
        (["--method=imagine", "--unlabeled=imagenet33:DIR"], "imagenet33"),
        (["--method=imagine", "--counterparts=-1"], "--counterparts -1 must not be negative"),
        (["--method=finetune", "--counterparts=2"], "--counterparts"),
        (["--method=finetune", "--unlabeled=cifar10:DIR"], "--unlabeled"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = [f"--{name.replace('_', '-')}={value}" for name, value in {**TINY_DATA, **TINY_RUN}.items()]
    with pytest.raises(SystemExit) as end:
        main(["run", *tiny, *words, "--dry-run"])
    error = capsys.readouterr().err
    assert end.value.code == 2
    assert error.count("\n") == 1
    assert said in error
