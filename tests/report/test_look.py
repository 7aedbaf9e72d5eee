"""`daydream look`: its numbers, its picture, and one clear line for every mistake."""

import json
import math
from pathlib import Path

import pytest
from PIL import Image
from tiny_runs import Watch, tiny_experiment

from daydream.cli.main import main
from daydream.engine import Interrupted
from daydream.report.look import look_at

MEASURES = {"distance", "spread", "real_spread", "exemplar_spread", "accuracy"}


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["look", *words])
    out, err = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, out, err


@pytest.fixture(scope="module")
def imagined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("look") / "run"
    tiny_experiment("imagine").start(folder, Watch())
    return folder


def test_numbers_and_picture(capsys: pytest.CaptureFixture[str], imagined: Path) -> None:
    code, out, err = call(capsys, str(imagined), "--json")
    assert code == 0, err
    found = json.loads(out)
    names = list(tiny_experiment("imagine").stream.train.class_names)
    assert list(found["classes"]) == names[:2]
    for row in (*found["classes"].values(), found["overall"]):
        assert row.keys() - {"nearest"} == MEASURES
        assert all(math.isfinite(value) for value in row.values())
        assert 0 <= row["distance"] <= 2
        assert 0 <= row["accuracy"] <= 100
    assert 0 <= found["overall"]["nearest"] <= 100
    assert found["stands"] == "after task 3 of 3"
    assert found["picture"] == str(imagined / "look.png")
    with Image.open(found["picture"]) as picture:
        assert picture.format == "PNG"
        assert 500 < picture.width < 2000
        assert 300 < picture.height < 2000
        colours = {colour for _, colour in picture.convert("RGB").getcolors(picture.width * picture.height) or []}
    assert (0x1A, 0x96, 0x41) in colours
    assert not list(imagined.glob(".look*"))


def test_table(capsys: pytest.CaptureFixture[str], imagined: Path, tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    code, out, err = call(capsys, str(imagined), "-o", str(picture), "--task", "2")
    assert code == 0, err
    names = tiny_experiment("imagine").stream.train.class_names
    assert all(name in out for name in (*names[2:4], "overall", "classified as its class"))
    assert names[0] not in out
    assert picture.exists()


def test_a_class_has_the_same_numbers_in_any_company(imagined: Path, tmp_path: Path) -> None:
    names = tiny_experiment("imagine").stream.train.class_names
    one = look_at(imagined, [names[2]], None, tmp_path / "one.png")
    two = look_at(imagined, [names[0], names[2], names[0]], None, tmp_path / "two.png")
    assert list(two["classes"]) == [names[0], names[2]]
    assert one["classes"][names[2]] == two["classes"][names[2]]
    assert one["overall"] == one["classes"][names[2]]


def test_looking_changes_nothing_in_the_run(imagined: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in imagined.rglob("*") if path.is_file() and path.suffix != ".png"}
    look_at(imagined, [], 1, tmp_path / "a.png")
    after = {path: path.read_bytes() for path in imagined.rglob("*") if path.is_file() and path.suffix != ".png"}
    assert before == after


def test_a_stopped_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """In its base task it has no generators yet; in the next it has those of the base task."""
    with pytest.raises(Interrupted):
        tiny_experiment("imagine").start(tmp_path / "early", Watch(stop_at=2))
    code, _, err = call(capsys, str(tmp_path / "early"))
    assert code == 2
    assert "no generators yet" in err
    with pytest.raises(Interrupted):
        tiny_experiment("imagine").start(tmp_path / "later", Watch(stop_at=12))
    code, out, err = call(capsys, str(tmp_path / "later"), "--json")
    assert code == 0, err
    assert json.loads(out)["stands"] == "inside task 2 of 3"
    code, _, err = call(capsys, str(tmp_path / "later"), "--task", "2")
    assert code == 2
    assert "tasks that have: 1 to 1" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--class", "rimg"], "unknown class 'rimg'; did you mean 'ring'?"),
        (["--class", "ring", "--class", "heart"], "class 'heart' has no generator; those that have: "),
        (["--class", "ring", "--task", "1"], "give --class or --task, not both"),
        (["--task", "3"], "--task 3: its classes have no generators; tasks that have: 1 to 2"),
        (["--task", "0"], "--task 0 must lie between 1 and the run's 3 tasks"),
        (["-o", "a.pdf"], "must end in .png"),
        (["-o", "nowhere/a.png"], "there is no folder nowhere"),
    ],
)
def test_mistakes(
    capsys: pytest.CaptureFixture[str],
    imagined: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, str(imagined), *words)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert says in err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = call(capsys, str(tmp_path / "nowhere"))
    assert code == 2
    assert "nowhere is not a run" in err


def test_a_run_without_generators(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(tiny_experiment("replay").identity()))
    code, out, err = call(capsys, str(tmp_path))
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert "has no generators: its method 'replay' ran without them" in err


def test_a_run_without_a_checkpoint(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(tiny_experiment("imagine").identity()))
    code, out, err = call(capsys, str(tmp_path))
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert "has no checkpoint yet" in err


def test_without_matplotlib(
    capsys: pytest.CaptureFixture[str], imagined: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, err = call(capsys, str(imagined))
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert "pip install 'daydream[plots]'" in err
