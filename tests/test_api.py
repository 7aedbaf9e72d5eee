"""Experiments from Python: the settings, errors and folders of the command, and arrays of one's own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_runs import StopIn, without_times

import daydream
from daydream.cli.main import main
from daydream.data.sources import arrays
from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

TINY: dict[str, Any] = {
    "backbone": "resnet10", "base": 2, "steps": 2, "memory": 12, "base_epochs": 1, "epochs": 1, "batch_size": 8,
}  # fmt: skip
SHAPES: dict[str, Any] = {"classes": 6, "train_per_class": 12, "test_per_class": 6, "image_size": 16}


def pictures(count: int, seed: int, last: bool = True) -> tuple[Any, Any]:
    """Return images of six classes by colour, and their labels as words."""
    draws = np.random.default_rng(seed)
    labels = np.arange(count) % 6
    images = draws.integers(0, 40, (count, 16, 16, 3)) + 36 * labels[:, None, None, None]
    words = np.array(["ant", "bee", "cat", "dog", "eel", "fox"])[labels]
    return (images if last else images.transpose(0, 3, 1, 2)).astype(np.uint8), words


def test_a_run_is_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = daydream.run(data="shapes", method="replay", blend=0.5, out=tmp_path / "python", **TINY, **SHAPES)
    words = [f"--{key.replace('_', '-')}={value}" for key, value in {**TINY, **SHAPES, "blend": 0.5}.items()]
    with pytest.raises(SystemExit) as stop:
        main(["run", *words, "--out", str(tmp_path / "command"), "--quiet"])
    assert stop.value.code == 0
    theirs = RunFolder.open(tmp_path / "command")
    assert without_times(run.result["tasks"]) == without_times((theirs.result or {})["tasks"])
    assert {**run.config, "seed": 0} == {**theirs.config, "seed": 0}
    assert run.average_nme == theirs.result["average_nme"]  # type: ignore[index]
    assert [row["classes"] for row in run.tasks] == [2, 4, 6]
    assert f"{run.average_cnn:.2f}" in run.table()
    assert "replay on shapes, finished" in repr(run)
    assert "<html" in run.report(tmp_path / "page.html").read_text(encoding="utf-8")[:500]


@pytest.mark.parametrize("last", [True, False])
def test_arrays_of_ones_own(tmp_path: Path, last: bool) -> None:
    data = (*pictures(72, 1, last), *pictures(36, 2, last))
    run = daydream.run(data=data, out=tmp_path / "run", **TINY)
    assert run.config["run"]["data"] == "arrays"
    assert run.tasks[-1]["classes"] == 6
    set_ = arrays.dataset(*data)
    assert set_.class_names == ("ant", "bee", "cat", "dog", "eel", "fox")
    assert set_.train.pixels.shape == (72, 3, 16, 16)
    rows = pictures(72, 1)[0]
    assert set_.mean == pytest.approx(tuple(rows.reshape(-1, 3).mean(0) / 255))
    assert set_.std == pytest.approx(tuple(rows.reshape(-1, 3).std(0) / 255))


def test_a_run_on_arrays_goes_on_with_them(tmp_path: Path) -> None:
    data = (*pictures(72, 1), *pictures(36, 2))
    whole = daydream.run(data=data, out=tmp_path / "whole", **TINY)
    with pytest.raises(Interrupted):
        daydream.run(data=data, out=tmp_path / "run", display=StopIn(1, "train"), **TINY)
    stopped = daydream.Run(tmp_path / "run")
    assert not stopped.finished
    with pytest.raises(UserError, match=r"is not finished: go on with daydream\.resume"):
        _ = stopped.average_nme
    with pytest.raises(UserError, match="given from Python"):
        daydream.resume(tmp_path / "run")
    with pytest.raises(UserError, match="the images or their classes"):
        daydream.resume(tmp_path / "run", data=(*pictures(72, 3), *pictures(36, 2)))
    result = daydream.resume(tmp_path / "run", data=data).result
    assert without_times(result["tasks"]) == without_times(whole.result["tasks"])


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"epoch": 3}, "unknown setting 'epoch'; did you mean 'epochs'"),
        ({"method": "rplay"}, "unknown method 'rplay'"),
        ({"lr": -1.0}, "--lr -1.0 must be above 0"),
        ({"data": "nothing"}, "unknown data set 'nothing'"),
        ({"data": "arrays"}, "given from Python"),
    ],
)
def test_mistakes_are_the_commands(settings: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=complaint):
        daydream.run(out=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


IMAGES, LABELS = pictures(12, 1)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ((IMAGES, LABELS), "takes a name or"),
        ((IMAGES.astype(float), LABELS, IMAGES, LABELS), "the training images are float64 of shape"),
        ((IMAGES[..., :2], LABELS, IMAGES, LABELS), "must be uint8"),
        ((IMAGES[:, :12], LABELS, IMAGES, LABELS), "must be square"),
        ((IMAGES[:, :4, :4], LABELS, IMAGES, LABELS), "must be square, of side 8 or more"),
        ((IMAGES, LABELS, IMAGES[:, :8, :8], LABELS), "training images are 16x16 pixels, test images 8x8"),
        ((IMAGES, LABELS[:5], IMAGES, LABELS), "there are 12 training images, but labels of shape"),
        ((IMAGES, LABELS, IMAGES, np.array(["gnu"] * 12)), "names? class .*'gnu'"),
        ((IMAGES[:1], LABELS[:1], IMAGES[:1], LABELS[:1]), "name one class"),
        ((IMAGES[:0], LABELS[:0], IMAGES, LABELS), "are 0 of 16x16"),
    ],
)
def test_arrays_that_cannot_be_learnt_from(data: Any, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        daydream.run(data=data)


def test_what_is_not_asked_for_is_not_imported() -> None:
    assert set(daydream.__all__) == {"ExactLearner", "Learner", "Run", "__version__", "load", "resume", "run"}
    with pytest.raises(AttributeError, match="no attribute 'train'"):
        _ = daydream.train
