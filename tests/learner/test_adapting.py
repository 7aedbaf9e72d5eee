"""A network whose upper half trains where that is better: what is tried, when it is kept, and the way back."""

from pathlib import Path
from typing import Any

import pytest
import torch
from own_images import with_random_weights, write_classes, write_pile

from daydream import load
from daydream.engine import Display, Diverged
from daydream.errors import UserError
from daydream.learner import adapting, settings
from daydream.learner.adapting import Trial, adapted, exact_again, parted
from daydream.learner.exact_learner import ExactLearner
from daydream.learner.learner import Learner
from daydream.learner.reading import Labelled, Seen

EACH = 6


class Heard(Display):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Few pictures are enough, and an epoch is."""
    with_random_weights(monkeypatch)
    monkeypatch.setattr(adapting, "ENOUGH", EACH)
    monkeypatch.setattr(settings, "EPOCHS", (1, 1))
    monkeypatch.setattr(settings, "GENERATOR_EPOCHS", {"cpu": 1})
    return monkeypatch


@pytest.fixture
def taught(quick: pytest.MonkeyPatch, tmp_path: Path) -> ExactLearner:
    learner = ExactLearner.create(image_size=32)
    learner.learn(write_classes(tmp_path / "a", range(2), EACH, size=32))
    return learner


@pytest.mark.parametrize(
    ("exact", "adapting", "better"),
    [
        ([0] * 20 + [1] * 80, [1] * 100, True),
        ([1] * 100, [0] * 20 + [1] * 80, False),
        ([1] * 100, [1] * 100, False),
        # Three more of a hundred, no fewer: 3 points, of which 1.7 are a standard error.
        ([0] * 3 + [1] * 97, [1] * 100, False),
        ([0] * 5 + [1] * 95, [1] * 100, True),
        # As many more, but others are lost: the gain is 5 points, its error 3.6.
        ([0] * 9 + [1] * 91, [1] * 96 + [0] * 4, False),
        ([0], [1], False),
    ],
)
def test_better_means_by_two_standard_errors(exact: list[int], adapting: list[int], better: bool) -> None:
    trial = Trial(torch.tensor(exact) == 1, torch.tensor(adapting) == 1)
    assert trial.better == better
    assert f"{100 * sum(adapting) / len(adapting):.1f} % right on {len(exact)} pictures" in trial.line
    assert f"exact: {100 * sum(exact) / len(exact):.1f} %" in trial.line
    assert ("no longer exact" in trial.line) == better


def labelled(labels: list[int], digests: list[int], names: tuple[str, ...] = ("a", "b")) -> Labelled:
    count = len(labels)
    paths = tuple(map(str, range(count)))
    seen = Seen(paths, torch.tensor(digests), torch.arange(count).float()[:, None], torch.arange(count))
    return Labelled(names, torch.tensor(labels), seen)


def test_neither_sees_what_they_are_judged_by() -> None:
    given = labelled([0] * 10 + [1] * 11, [*range(20), 3])  # the last is a picture that came before
    trained, held = parted(given, None)
    assert held.labels.tolist() == [0, 0, 1, 1]
    assert len(trained.labels) == 16
    assert not set(trained.seen.digests.tolist()) & set(held.seen.digests.tolist())
    rows = [int(path) for path in trained.seen.paths]
    assert trained.labels.tolist() == given.labels[rows].tolist()
    assert trained.seen.features[:, 0].tolist() == rows
    tests = labelled([1, 1, 0, 2], [5, 100, 101, 102], ("b", "a", "c"))
    trained, held = parted(given, tests)
    assert 5 not in trained.seen.digests.tolist()
    assert held.names == ("a", "b")
    assert (held.labels.tolist(), held.seen.digests.tolist()) == ([0, 0, 1], [5, 100, 101])


def test_what_is_not_better_is_not_kept(taught: ExactLearner, quick: pytest.MonkeyPatch, tmp_path: Path) -> None:
    quick.setattr(Trial, "better", property(lambda self: False))
    heard = Heard()
    assert adapted(taught, tmp_path / "a", display=heard) is taught
    assert "so it stays exact" in heard.lines[-1]


def test_a_lesson_that_cannot_be_tried_says_why(taught: ExactLearner, tmp_path: Path) -> None:
    heard = Heard()
    taught.learn(write_classes(tmp_path / "b", [2], EACH - 1, size=32))
    for folder in (tmp_path / "a", tmp_path / "b"):
        assert adapted(taught, folder, display=heard) is taught
    whole = write_classes(tmp_path / "whole", range(3), EACH - 1, size=32)
    assert adapted(taught, whole, display=heard) is taught
    assert [line.removeprefix("adapting was not tried: ") for line in heard.lines] == [
        "it takes the pictures themselves, of earlier lessons too: give all of them in one folder",
        "a single class leaves nothing to tell apart",
        f"class '{(tmp_path / 'whole').joinpath(sorted(p.name for p in whole.iterdir())[0]).name}' has 5 pictures, "
        "and 6 of each are needed",
    ]


def test_a_network_that_cannot_be_cut_and_one_that_diverges_stay_exact(
    taught: ExactLearner, quick: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def diverging(*_: Any) -> None:
        raise Diverged("stage 'train' diverged")

    heard = Heard()
    with quick.context() as patched:
        patched.setattr(taught, "origin", "hf-hub:someone/vit")
        assert adapted(taught, tmp_path / "a", display=heard) is taught
    quick.setattr(adapting, "trained_upper", diverging)
    assert adapted(taught, tmp_path / "a", display=heard) is taught
    assert heard.lines == [
        "adapting was not tried: backbone hf-hub:someone/vit has no maps to cut or imagine: only `learn` without "
        "--method can use it",
        "adapting came to nothing, so it stays exact: stage 'train' diverged",
    ]


def test_what_adapts_keeps_the_exact_model_beside_it(
    taught: ExactLearner, quick: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quick.setattr(Trial, "better", property(lambda self: True))
    other = adapted(taught, tmp_path / "a", write_pile(tmp_path / "pile", 20, size=32))
    assert isinstance(other, Learner)
    assert other.taught.lessons[-1].method == "imagine"
    other.save(tmp_path / "model.daydream")
    again: Any = load(tmp_path / "model.daydream", device="cpu")
    assert again.kind == "adapting"
    picture = next((tmp_path / "a").rglob("*.png"))
    found = torch.tensor([again.predict(picture)[0][1], other.predict(picture)[0][1]])
    assert torch.allclose(found[:1], found[1:])
    assert torch.allclose(exact_again(again).probabilities(picture), taught.probabilities(picture))

    b = write_classes(tmp_path / "b", [2], EACH, size=32)
    again.learn(b, epochs=1, generator_epochs=1)
    again.rename(again.names[0], "renamed")
    again.save(tmp_path / "model.daydream")
    back = exact_again(load(tmp_path / "model.daydream", device="cpu"))  # type: ignore[arg-type]
    taught.learn(b)
    taught.rename(taught.names[0], "renamed")
    assert sorted(back.names) == sorted(again.names) == sorted(taught.names)
    assert torch.allclose(back.probabilities(picture), taught.probabilities(picture), atol=1e-5)
    assert [record.what for record in back.history] == ["lesson", "lesson", "rename"]
    back.undo()


def test_there_is_nothing_to_go_back_to(quick: pytest.MonkeyPatch, tmp_path: Path) -> None:
    learner = Learner.create(method="replay", backbone="resnet10", image_size=16, device="cpu")
    learner.learn(write_classes(tmp_path / "a", range(2), EACH), epochs=1)
    with pytest.raises(UserError, match="did not adapt from an exact one"):
        exact_again(learner)
