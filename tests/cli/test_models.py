"""The commands on model files: the walk-through as it stands on its page, and one clear line for every mistake."""

import csv
import errno
import io
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import blocks, commands
from own_images import TINY_LESSON, lock_out, names, tiny_learner, with_random_weights, write_classes, write_pile
from PIL import Image

from daydream.cli.main import main
from daydream.nets import pretrained

pytestmark = pytest.mark.slow

PAGE = "docs/own-images.md"
TINY = ["--backbone=resnet10", "--image-size=16", "--memory=4", "--epochs=1", "--batch-size=8", "--device=cpu"]


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, out, err


def done(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    code, out, err = call(capsys, *words)
    assert code == 0, f"{words}\n{out}{err}"
    return out


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    code, out, err = call(capsys, *words)
    assert code == 2, f"{words}\n{out}{err}"
    assert err.count("\n") == 1, err
    assert err.startswith("daydream: ")
    assert out == ""
    return err


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two lessons, a pile, test images and a model of the first lesson."""
    folder = tmp_path_factory.mktemp("models")
    write_classes(folder / "a", range(2), 6)
    write_classes(folder / "b", range(2, 4), 6)
    write_classes(folder / "test", range(2), 4, test=True)
    write_pile(folder / "pile", 20)
    with pytest.raises(SystemExit) as stop:
        main(["learn", f"{folder}/model.daydream", f"{folder}/a", *TINY, "--quiet"])
    assert stop.value.code == 0
    return folder


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_walk_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.process_time()
    if not pretrained.installed("efficientnet-lite0"):
        with_random_weights(monkeypatch)
    monkeypatch.chdir(tmp_path)
    flowers = {"tulip": ("spring", 0), "crocus": ("spring", 1), "rose": ("summer", 2), "poppy": ("summer", 3)}
    for name, (season, label) in flowers.items():
        write_classes(Path("drawn") / season, [label], 10, size=32)
        write_classes(Path("drawn/test"), [label], 4, size=32, test=True)
        for part in (season, "test"):
            folder = Path("photos") / part / name
            folder.parent.mkdir(parents=True, exist_ok=True)
            (Path("drawn") / part / names([label])[0]).rename(folder)
    shutil.rmtree("drawn")
    write_pile(Path("camera-roll"), 12, size=32)
    turned_photo(Path("photo.png"))
    snippets, found, said = iter(blocks(PAGE, "python")), {}, {}
    for words in commands(PAGE):
        if words[0] == "daydream":
            said[" ".join(words[1:])] = done(capsys, *words[1:])
        if words[:2] == ["daydream", "export"]:
            for block in snippets:
                exec(block, found)
            capsys.readouterr()
            [told] = json.loads(done(capsys, "predict", "model.daydream", "photo.png", "--top", "1", "--json"))
    assert "2 classes, 20 new pictures" in said["learn model.daydream photos/spring"]
    assert "% on test pictures" in said["learn model.daydream photos/summer --test photos/test"]
    assert said["classes model.daydream"].count("100 new pictures like these") == 1
    assert len(said["next model.daydream camera-roll --count 5"].splitlines()) == 5
    assert "3 classes, 40 pictures" in said["merge model.daydream rose poppy --into red"]
    assert "2 classes, 20 pictures" in said["forget model.daydream --pictures photos/summer/rose"]
    assert found["probabilities"].max() == pytest.approx(told["classes"][0]["probability"], abs=1e-4)
    assert found["label"] == told["classes"][0]["label"]
    assert found["fresh"].names == ("crocus", "tulip", "poppy", "rose")
    assert "exemplars" in said["learn trained.daydream photos/summer --epochs 12"]
    assert sorted(path.name for path in Path().iterdir()) == [
        "camera-roll", "fresh.daydream", "model.daydream", "model.onnx", "model.safetensors", "photo.png", "photos",
        "trained.daydream",
    ]  # fmt: skip
    assert time.process_time() - began < 2 * 60  # a minute of two cores


def turned_photo(path: Path) -> None:
    """Write a picture that is not square and lies on its side: what is seen depends on how it is prepared."""
    pixels = np.random.default_rng(0).integers(0, 256, (9, 3, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).resize((60, 180), Image.Resampling.BICUBIC).save(path, exif=exif)


def test_the_onnx_snippet_crops_as_predict_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    learner = tiny_learner(image_size=112)
    learner.learn(write_classes(Path("photos"), range(2), 4), **TINY_LESSON)
    learner.export_onnx("model.onnx")
    turned_photo(Path("photo.png"))
    found: dict[str, Any] = {}
    exec(blocks(PAGE, "python")[0], found)
    assert (found["short"], found["side"]) == (128, 112)
    assert found["probabilities"] == pytest.approx(learner.probabilities("photo.png")[0].numpy(), abs=1e-4)


# --- commands --------------------------------------------------------------------------------------------------------


def test_predict_prints_lines_json_and_csv(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, files = place / "model.daydream", sorted((place / "test").rglob("*.png"))
    rows = json.loads(done(capsys, "predict", model, place / "test", "--json", "--top", 2, "--reject", 0.5))
    assert [row["path"] for row in rows] == [str(path) for path in files]
    for row in rows:
        assert [found["label"] for found in row["classes"]] in [names([0, 1]), names([1, 0])]
        assert sum(found["probability"] for found in row["classes"]) == pytest.approx(1, abs=1e-5)
    table = list(csv.DictReader(io.StringIO(done(capsys, "predict", model, *files[:2], "--csv", "--top", 1))))
    assert [row["label"] for row in table] == [row["classes"][0]["label"] for row in rows[:2]]
    assert table[0]["rejected"] == ""
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{files[2]}\n\n{files[3]}\n"))
    lines = done(capsys, "predict", model, "-").splitlines()
    assert [line.split()[0] for line in lines] == [str(files[2]), str(files[3])]
    assert f"{rows[2]['classes'][0]['label']} {100 * rows[2]['classes'][0]['probability']:.1f} %" in lines[0]


def test_reject_marks_what_is_below_the_held_out_share(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", place / "model.daydream", place / "test", "--json", "--reject"]
    few, many = (json.loads(done(capsys, *words, share)) for share in (0.01, 0.99))
    assert sum(row["rejected"] for row in few) <= sum(row["rejected"] for row in many)
    assert any(row["rejected"] for row in many)
    assert "must lie between 0 and 1" in refused(capsys, *words, 1.5)


def test_unreadable_pictures_are_named_and_skipped(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_classes(tmp_path / "more", [2], 4)
    torn = folder / names([2])[0] / "torn.png"
    torn.write_bytes(b"torn")
    good = next(folder.rglob("0*.png"))
    code, out, err = call(capsys, "predict", place / "model.daydream", good, torn)
    assert code == 0
    assert out.count("\n") == 1
    assert f"skipped 1 of 2 images that cannot be decoded: {torn}" in err
    assert "no image to judge" in refused(capsys, "predict", place / "model.daydream", torn)
    copied = tmp_path / "model.daydream"
    copied.write_bytes((place / "model.daydream").read_bytes())
    code, _, err = call(capsys, "learn", copied, folder, *TINY[3:], "--quiet")
    assert code == 0, err
    assert f"skipped 1 of 5 images that cannot be decoded: {torn}" in err


def test_test_shows_classes_and_confusions(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(done(capsys, "test", place / "model.daydream", place / "test", "--json"))
    assert report["images"] == dict.fromkeys(sorted(names(range(2))), 4)
    assert sum(map(sum, (row.values() for row in report["confusion"].values()))) == 8
    shown = done(capsys, "test", place / "model.daydream", place / "test")
    assert f"overall {report['accuracy']:.2f} % of 8 images" in shown


def test_help_and_import_stay_light() -> None:
    program = "import sys, daydream, daydream.cli; sys.exit(str({'torch', 'numpy', 'PIL'} & set(sys.modules) or 0))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "0"


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_a_mistake_is_one_line_and_changes_nothing(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model.daydream"
    raw = (place / "model.daydream").read_bytes()
    model.write_bytes(raw)
    (tmp_path / "text.daydream").write_text("a letter")
    (tmp_path / "cut.daydream").write_bytes(raw[: len(raw) // 2])
    (tmp_path / "newer.daydream").write_bytes(of_a_later_version(model))
    (tmp_path / "empty").mkdir()
    (tmp_path / "hollow" / "class").mkdir(parents=True)
    write_classes(tmp_path / "one", [0], 4)
    (tmp_path / "torn" / "x").mkdir(parents=True)
    (tmp_path / "torn" / "x" / "torn.png").write_bytes(b"torn")
    monkeypatch.chdir(tmp_path)
    before = sorted(path for path in tmp_path.rglob("*"))
    b, unlabeled = place / "b", "--unlabeled"
    cases: list[tuple[list[object], str]] = [
        (["classes", "none.daydream"], "there is no model none.daydream: make one with `daydream learn"),
        (["predict", "none.daydream", "x.png"], "there is no model none.daydream"),
        (["test", "text.daydream", place / "test"], "text.daydream is not a model file"),
        (["learn", "text.daydream", b], "text.daydream is not a model file"),
        (["classes", tmp_path / "empty"], "is not a model file but a folder"),
        (["classes", "newer.daydream"], "was written by daydream 9.9 in format 99"),
        (["classes", "cut.daydream"], "cut.daydream is damaged or cut short"),
        (["learn", "cut.daydream", b], "cut.daydream is damaged or cut short"),
        (["learn", "new.daydream", "empty"], "empty has no folder per class"),
        (["learn", model, "empty"], "found an empty folder"),
        (["learn", "new.daydream", "nowhere"], "nowhere is not there"),
        (["learn", "new.daydream", "text.daydream"], "text.daydream is a file"),
        (["learn", "new.daydream", "hollow"], "class 'class' has no readable image"),
        (["learn", "new.daydream", "one"], "holds one class, 'triangle', and a new model needs two or more"),
        (["learn", model, b, unlabeled, "nowhere"], "--unlabeled nowhere is not a folder"),
        (["learn", model, b, unlabeled, "empty"], "--unlabeled empty holds no readable image"),
        (["learn", model, b, unlabeled, place / "test" / names([0])[0]], "the pile holds 4 images"),
        (["learn", model, b, "--test", place / "test"], "needed"),
        (["learn", model, b, "--image-size", "32"], "was made with 16, which stays"),
        (["learn", model, b, "--method", "finetune"], "--method finetune"),
        (["learn", "new.daydream", b, "--method", "joint"], "upper bound"),
        (["learn", "new.daydream", b, "--method", "imagine"], "needs unlabelled images"),
        (["learn", "new.daydream", b, "--method", "finetune", unlabeled, place / "pile"], "no use for unlabelled"),
        (["learn", "new.daydream", b, "--backbone", "resnet23"], "unknown backbone 'resnet23'"),
        (["learn", "new.daydream", b, "--epochs", "0"], "--epochs 0 must be at least 1"),
        (["learn", "nowhere/new.daydream", b], "nowhere is not a folder: the model cannot be saved there"),
        (["learn", "new.daydream", b, "--device", "abacus"], "--device abacus is not a device"),
        (["test", model, b], "which the model does not know"),
        (["predict", model, "nowhere.png"], "no image to judge in nowhere.png (No such file or directory)"),
        (["predict", model, "empty"], "no image to judge in empty"),
        (["export", model], "--onnx FILE or --safetensors FILE"),
        (["export", "empty"], "empty is not a run"),
        (["export", model, "--safetensors", "nowhere/x"], "nowhere/x cannot be written"),
    ]
    for words, says in cases:
        trained = ["--method=replay"] if "new.daydream" in words and not {"--method", "--backbone"} & set(words) else []
        words = words if words[0] != "learn" else [*words, *trained, "--quiet"]
        assert says in refused(capsys, *words), words
    torn = ["learn", "new.daydream", "torn", "--method=replay", "--quiet"]
    assert "class 'x' has no readable image" in call(capsys, *torn)[2]
    assert model.read_bytes() == raw
    assert sorted(path for path in tmp_path.rglob("*")) == before


def of_a_later_version(model: Path) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(model) as old, zipfile.ZipFile(file, "w") as new:
        about = json.loads(old.read("model.json"))
        new.writestr("model.json", json.dumps({**about, "format": 99, "daydream": "9.9"}))
        new.writestr("something-new", b"")
    return file.getvalue()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_pile_that_may_not_be_read(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pile").mkdir(mode=0o000)
    words = ["learn", tmp_path / "new.daydream", place / "a", *TINY, "--unlabeled", tmp_path / "pile"]
    assert "cannot be read" in refused(capsys, *words)


def test_folders_that_are_refused_in_one_line(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_classes(tmp_path / "photos", range(2), 4)
    calls: list[list[object]] = [
        ["learn", tmp_path / "new.daydream", folder, *TINY, "--quiet"],
        ["test", place / "model.daydream", folder],
        ["run", "--data", "folder", "--root", folder, "--out", tmp_path / "run"],
    ]
    with monkeypatch.context() as patched:
        lock_out(patched, folder / names([0])[0])
        for words in calls:
            assert f"{names([0])[0]} cannot be read (Permission denied)" in refused(capsys, *words)
    (folder / names([0])[0]).rename(folder / os.fsdecode(b"caf\xe9"))
    for words in calls:
        assert r"'caf\udce9' in" in refused(capsys, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_no_room_on_the_disk(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    model = tmp_path / "model.daydream"
    model.write_bytes((place / "model.daydream").read_bytes())
    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    said = refused(capsys, "learn", model, place / "b", *TINY[3:], "--quiet")
    assert "No space left on device; the model that was there is untouched" in said
    assert model.read_bytes() == (place / "model.daydream").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["model.daydream"]


HOLDING = """
import sys
from pathlib import Path
from daydream.learner.locking import taught
with taught(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_cannot_teach_one_file(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.daydream"
    words = [sys.executable, "-c", HOLDING, str(model)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        said = refused(capsys, "learn", model, place / "a", *TINY, "--quiet")
        assert "model.daydream is being taught by another process" in said
        first.kill()
    done(capsys, "learn", model, place / "a", *TINY, "--quiet")
    assert [path.name for path in tmp_path.iterdir()] == ["model.daydream"]


def test_a_killed_lesson_leaves_the_file(place: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.daydream"
    model.write_bytes((place / "model.daydream").read_bytes())
    words = [sys.executable, "-m", "daydream", "learn", str(model), str(place / "b"), "--epochs=100000", "--device=cpu"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as lesson:
        assert lesson.stdout is not None
        assert any("keep-pile" in line or "lr" in line for line in lesson.stdout), "the settings are shown first"
        lesson.kill()
    assert model.read_bytes() == (place / "model.daydream").read_bytes()
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("kind", ["grey", "alpha", "cmyk", "turned", "moving", "deep"])
def test_every_kind_of_picture_is_learnt(
    kind: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_classes(tmp_path / "odd", [0], 2) / names([0])[0]
    odd_picture(kind, folder)
    code, out, err = call(capsys, "predict", place / "model.daydream", folder, "--json")
    assert code == 0
    assert len(json.loads(out)) == 3, err


def odd_picture(kind: str, folder: Path) -> None:
    size = (20, 30)
    if kind == "grey":
        Image.new("L", size, 77).save(folder / "x.png")
    elif kind == "alpha":
        Image.new("RGBA", size, (9, 9, 9, 99)).save(folder / "x.webp")
    elif kind == "cmyk":
        Image.new("CMYK", size, (9, 9, 9, 9)).save(folder / "x.jpg")
    elif kind == "turned":
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.new("RGB", size, (9, 9, 9)).save(folder / "x.jpg", exif=exif)
    elif kind == "moving":
        frames = [Image.new("RGB", size, (place, 0, 0)) for place in (0, 99)]
        frames[0].save(folder / "x.gif", save_all=True, append_images=frames[1:])
    else:
        Image.new("I;16", size, 30000).save(folder / "x.png")


def test_what_a_model_carries_is_said_once(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recipe's own settings are no change where nothing is said; another one is refused."""
    short = ["--epochs=1", "--batch-size=8", "--generator-epochs=1", "--device=cpu", "--quiet"]
    new = ["--backbone=resnet10", "--image-size=16", "--memory=4", "--generator-width=16"]
    model, pile = tmp_path / "x.daydream", ["--unlabeled", place / "pile"]
    done(capsys, "learn", model, place / "a", *pile, "--method=dream", "--erase=0.25", *new, *short)
    done(capsys, "learn", model, place / "b", *short)
    said = refused(capsys, "learn", model, place / "b", "--erase=0.5", *short)
    assert "--erase 0.5" in said
    assert "was made with 0.25, which stays" in said


def test_learn_shows_what_a_lesson_can_carry(capsys: pytest.CaptureFixture[str]) -> None:
    out, exact = (done(capsys, "learn", *words, "--help") for words in (["--method", "replay"], []))
    assert all(flag in out for flag in ("--blend", "--rotations", "--erase", "--pile-teach", "--counterparts"))
    assert "--generator-depth" not in out
    assert all(flag in exact for flag in ("--method", "--backbone", "--image-size", "--keep-features", "--test"))
    assert not any(flag in exact for flag in ("--blend", "--epochs", "--memory", "--held-out"))
    assert "--generator-depth" in done(capsys, "learn", "--help-all")
