"""Lessons from published weights: what they are prepared with, which half of the network trains, and that a file is
whole."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from own_images import TINY_LESSON, with_random_weights, write_classes, write_pile

from daydream import Learner
from daydream.learner.learner import Learner as LearnerClass
from daydream.learner.settings import LessonSettings
from daydream.methods.method import network
from daydream.nets import pretrained
from daydream.nets.efficientnet_lite import published_side
from daydream.nets.network import Network, fix_lower_halves, is_pretrained

pytestmark = pytest.mark.slow

BACKBONE = "efficientnet-lite0"
TINY = {"backbone": BACKBONE, "image_size": 32, "memory": 4, "generator_width": 8, "device": "cpu"}


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> None:
    with_random_weights(monkeypatch)


def taught(tmp_path: Path, **settings: object) -> LearnerClass:
    learner = Learner.create(**{**TINY, **settings})
    learner.learn(write_classes(tmp_path / "a", range(2), 6, size=32), **TINY_LESSON)
    return learner


def lower(learner: LearnerClass) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in network(learner.taught.state).lower.state_dict().items()}


def test_published_weights_bring_their_size_and_their_normalisation(published: None, tmp_path: Path) -> None:
    learner = Learner.create(method="replay", backbone=BACKBONE, device="cpu")
    folder = write_classes(tmp_path / "a", range(2), 6, size=32)
    lesson, choices = learner.prepare(folder, None, None, LessonSettings(epochs=1))
    assert lesson.settings.image_size == pretrained.PUBLISHED[BACKBONE].size == 224
    assert {"image-size": f"{BACKBONE} was trained at it"}.items() <= {row.name: row.why for row in choices}.items()
    assert lesson.method.setup.prepare.mean == lesson.method.setup.prepare.std == (0.5, 0.5, 0.5)
    assert [published_side(f"{BACKBONE}{more}") for more in ("@96", "+untrained")] == [96, None]
    assert [is_pretrained(name) for name in (BACKBONE, f"{BACKBONE}+untrained", "resnet18")] == [True, False, False]


def test_its_lower_half_stays_as_it_was_published(published: None, tmp_path: Path) -> None:
    learner = taught(tmp_path, generator_updates=2)
    with torch.random.fork_rng():
        fresh = learner.method.new_network(SimpleNamespace(num_seen=2, index=0))
    before = fresh.lower.state_dict()
    assert all(torch.equal(before[name], value) for name, value in lower(learner).items())
    upper = network(learner.taught.state).upper.state_dict()
    assert any(not torch.equal(value, upper[name]) for name, value in fresh.upper.state_dict().items())
    learner.save(tmp_path / "model.daydream")
    again = Learner.load(tmp_path / "model.daydream", device="cpu")
    b, pile = write_classes(tmp_path / "b", [2], 6, size=32), write_pile(tmp_path / "pile", 20, size=32)
    again.learn(b, pile, **TINY_LESSON)
    assert all(torch.equal(before[name], value) for name, value in lower(again).items())
    assert again.taught.num_generators == 3, "imagination has maps to work on"


def test_a_model_that_exists_asks_for_no_weights(
    published: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = taught(tmp_path)
    learner.save(tmp_path / "model.daydream")
    picture = next((tmp_path / "a").glob("*/*.png"))
    expected = learner.predict(picture)

    def none(name: str) -> None:
        raise AssertionError("weights were asked for")

    monkeypatch.setattr("daydream.nets.efficientnet_lite.published_weights", none)
    again = Learner.load(tmp_path / "model.daydream", device="cpu")
    assert again.predict(picture) == expected
    again.learn(write_classes(tmp_path / "b", [2], 6, size=32), **TINY_LESSON)


def test_a_lesson_that_goes_on_inside_a_stage_keeps_the_lower_half_too(published: None, tmp_path: Path) -> None:
    learner = Learner.create(**{**TINY, "method": "replay"})
    folder = write_classes(tmp_path / "a", range(2), 6, size=32)
    lesson, _ = learner.prepare(folder, None, None, LessonSettings(epochs=1))
    state, stage = lesson.begun(), lesson.stages[0]
    assert stage.begin is not None
    stage.begin(state)
    (whole,) = stage.trains(state)
    assert network(state).lower.fixed
    state.nets["net"] = Network(**network(state).config())  # as it is read from a checkpoint
    (again,) = stage.trains(state)
    assert network(state).lower.fixed
    assert len(again.tensors) == len(whole.tensors)


def test_a_half_that_is_fixed_follows_no_gradient_and_no_batch() -> None:
    net = Network("resnet10", "linear", (2,))
    fix_lower_halves(net)
    net.train()
    before = {name: value.clone() for name, value in net.lower.state_dict().items()}
    net(torch.randn(4, 3, 16, 16)).sum().backward()
    assert all(torch.equal(before[name], value) for name, value in net.lower.state_dict().items())
    assert all(parameter.grad is None for parameter in net.lower.parameters())
    assert all(parameter.grad is not None for parameter in net.upper.parameters())
    assert net.upper.training
    assert [maps.requires_grad for maps in net.maps(torch.randn(4, 3, 16, 16))] == [False, False, False, True]
