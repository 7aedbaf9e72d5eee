"""The exact learner end to end, on small pictures and a small random network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_images import write_classes, write_pile
from PIL import Image
from safetensors.torch import load_file

from daydream.engine import Display, Interrupted
from daydream.errors import UserError
from daydream.learner.embedding import Embedder, FeatureCache
from daydream.learner.exact_learner import ExactLearner


def created(**settings: Any) -> ExactLearner:
    torch.manual_seed(0)
    return ExactLearner.create("resnet10", image_size=16, **settings)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("pictures")
    return {
        "first": write_classes(top / "first", range(3), 25),
        "second": write_classes(top / "second", range(3, 5), 25),
        "all": write_classes(top / "all", range(5), 25),
        "test": write_classes(top / "test", range(5), 15, test=True),
        "pile": write_pile(top / "pile"),
    }


def test_two_lessons_are_one_and_travel_in_a_file(folders: dict[str, Path], tmp_path: Path) -> None:
    learner, once = created(), created()
    assert learner.learn(folders["first"]).images == 75
    assert learner.learn(folders["second"]).new == 2
    once.learn(folders["all"])
    pictures = sorted(folders["test"].rglob("*.png"))[:20]
    order = [once.taught.names.index(name) for name in learner.taught.names]
    expected = learner.probabilities(pictures)
    assert torch.allclose(expected, once.probabilities(pictures)[:, order], atol=1e-5)
    learner.save(tmp_path / "m.exact")
    back = ExactLearner.load(tmp_path / "m.exact")
    assert torch.allclose(back.probabilities(pictures), expected, atol=1e-6)
    back.learn(folders["first"])  # nothing new
    assert torch.equal(back.taught.judged.ridge.weight, learner.taught.judged.ridge.weight)
    assert back.history == learner.history
    back.undo()
    assert len(back.taught.names) == 3
    assert back.history == learner.history[:1]


def coloured(folder: Path, count: int, seed: int) -> Path:
    """Write noisy pictures of three colours that lie near each other, which a random network can tell apart."""
    draws = torch.Generator().manual_seed(seed)
    for name, colour in (("red", (140, 100, 100)), ("green", (100, 140, 100)), ("rust", (140, 118, 100))):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            tint = torch.tensor(colour) + 14 * torch.randn(3, generator=draws)
            pixels = (tint + 30 * torch.randn(16, 16, 3, generator=draws)).clamp(0, 255).byte()
            Image.fromarray(pixels.numpy()).save(folder / name / f"{number}.png")
    return folder


def test_it_recognises_and_says_how_good_it_is(folders: dict[str, Path], tmp_path: Path) -> None:
    learner = created()
    said = learner.learn(coloured(tmp_path / "learn", 40, 0)).accuracy
    found = learner.test(coloured(tmp_path / "test", 60, 1))
    assert 60 < found.accuracy < 97
    assert said is not None
    assert abs(said - found.accuracy) < 12
    assert found.calibration_error < 12
    assert "\n" not in learner.outlook().sentence
    assert isinstance(learner.doubts(), list)
    pile, index = learner.ask_next(folders["pile"], 4)
    assert len(pile) == 60
    assert len(set(index.tolist())) == 4
    name, probability = learner.predict(np.full((20, 30, 3), (100, 150, 100), np.uint8))[0]
    assert name == "green"
    assert 0.5 < probability <= 1


@pytest.mark.parametrize("keep", [True, False])
def test_forgotten_pictures_were_never_learnt(folders: dict[str, Path], tmp_path: Path, keep: bool) -> None:
    learner, never = created(keep_features=keep), created(keep_features=keep)
    never.learn(folders["first"])
    learner.learn(folders["first"])
    learner.learn(folders["second"])
    assert learner.forget_pictures(folders["second"]) == 50
    assert learner.taught.names == never.taught.names
    ours, theirs = (model.taught.judged.ridge for model in (learner, never))
    assert torch.allclose(ours.weight, theirs.weight, atol=1e-5)
    learner.save(tmp_path / "m.exact")
    assert sum(len(v) for k, v in load_file(tmp_path / "m.exact").items() if k.endswith("digests")) == 75


def test_what_is_forgotten_leaves_the_cache_too(folders: dict[str, Path], tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "cache")
    learner = created(cache=cache)
    learner.learn(folders["first"])
    gone = learner.taught.known.digests[learner.taught.known.labels == 0]
    learner.forget(learner.taught.names[0])
    assert cache.get(learner.embed.identity, gone) == {}
    assert len(cache.get(learner.embed.identity, learner.taught.known.digests)) == 50


def test_classes_are_renamed_and_merged(folders: dict[str, Path]) -> None:
    learner = created()
    learner.learn(folders["first"])
    a, b, c = learner.taught.names
    learner.rename(a, "other")
    learner.merge(["other", b], "both")
    assert set(learner.taught.names) == {"both", c}


@pytest.mark.parametrize("cut", [0, 5, 500, -3])
def test_a_damaged_file_is_said_in_one_line(folders: dict[str, Path], tmp_path: Path, cut: int) -> None:
    learner = created()
    learner.learn(folders["first"])
    learner.save(tmp_path / "m.exact")
    whole = (tmp_path / "m.exact").read_bytes()
    (tmp_path / "m.exact").write_bytes(whole[:cut])
    with pytest.raises(UserError, match=r"m\.exact is damaged") as caught:
        ExactLearner.load(tmp_path / "m.exact")
    assert "\n" not in str(caught.value)


def test_features_of_another_network_than_the_files_own_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    learner = created()
    learner.learn(folders["first"])
    with torch.no_grad():
        next(learner.embed.net.parameters()).add_(0.1)
    learner.save(tmp_path / "m.exact")
    with pytest.raises(UserError, match="its features are of another network"):
        ExactLearner.load(tmp_path / "m.exact")


def test_what_cannot_be_done_yet_is_said(tmp_path: Path, folders: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="knows no class yet"):
        created().predict("x.png")
    with pytest.raises(UserError, match="cannot be read"):
        ExactLearner.load(tmp_path / "absent")
    learner = created()
    learner.learn(folders["first"])
    with pytest.raises(UserError, match="cannot be read as a picture"):
        learner.predict(tmp_path / "no.png")


class Stopping(Display):
    """Asks for a stop once some pictures have passed."""

    passed = 0

    def counts(self, what: str, done: int, total: int) -> None:
        self.passed = done

    def stop_asked(self) -> bool:
        return self.passed > 0


def test_a_lesson_that_is_stopped_changes_nothing(folders: dict[str, Path]) -> None:
    learner = created()
    learner.learn(folders["first"])
    before = learner.model
    display = Stopping()
    with pytest.raises(Interrupted):
        learner.learn(folders["second"], display=display)
    assert 0 < display.passed < 50
    assert learner.model is before
    assert len(learner.history) == 1


def test_a_stopped_lesson_goes_on_where_it_was(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Group by group, features are in the cache: the same lesson computes those of the other pictures alone."""
    computed, inner = list[int](), Embedder.computed

    def counted(self: Embedder, pixels: Any, *given: Any, **named: Any) -> torch.Tensor:
        computed.append(pixels.shape[0])
        return inner(self, pixels, *given, **named)

    monkeypatch.setattr(Embedder, "computed", counted)
    with pytest.raises(Interrupted):
        created(cache=FeatureCache(tmp_path / "cache")).learn(folders["second"], display=Stopping())
    assert 0 < sum(computed) < 50
    learner = created(cache=FeatureCache(tmp_path / "cache"))  # as in another process
    learner.learn(folders["second"])
    assert sum(computed) == 50
    straight = created()
    straight.learn(folders["second"])
    assert torch.equal(learner.taught.judged.ridge.weight, straight.taught.judged.ridge.weight)
