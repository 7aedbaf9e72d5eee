"""A learner of one's own images: what it takes in, what it keeps, what it chooses, and lessons of every kind."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import call
from own_images import TINY_LESSON, drawn, lock_out, names, narrow, tiny_learner, write_classes, write_pile
from PIL import Image
from torch import Tensor

from daydream import Learner
from daydream.components.pile_teaching import PileTeaching
from daydream.data.decode import paths_of
from daydream.data.images import ImageSet, Resident
from daydream.engine import Display, Engine, EpochReport, Interrupted, Place
from daydream.errors import UserError
from daydream.learner.intake import digests, read_known, read_labelled, read_pile, take_in, typical_side
from daydream.learner.model import no_images
from daydream.learner.settings import LessonSettings, ModelSettings, choose_lesson, choose_model
from daydream.methods import METHODS, load_method
from daydream.stages.stage import Stage, State

pytestmark = pytest.mark.slow

# --- what is taken in ------------------------------------------------------------------------------------------------


def coloured(labels: list[int], first: int = 0, classes: tuple[str, ...] = ("a", "b")) -> ImageSet:
    """Images that all differ, each of one colour."""
    pixels = torch.arange(first, first + len(labels)).view(-1, 1, 1, 1).expand(-1, 3, 4, 4).to(torch.uint8)
    return ImageSet(Resident(pixels), torch.tensor(labels), classes)


def colours(images: ImageSet) -> list[int]:
    return sorted(images.pixels.fetch(torch.arange(len(images)))[:, 0, 0, 0].tolist())


def taken(given: ImageSet, **changes: Any) -> Any:
    usual = {"num_known": 0, "test": None, "held": no_images(4), "seen": torch.zeros(0, dtype=torch.int64)}
    return take_in(given, **{**usual, "share": 0.2, "keep": 50, **changes})


def test_a_share_of_each_class_is_held_out_and_the_rest_trains() -> None:
    given = coloured([0] * 20 + [1] * 3)
    intake = taken(given)
    assert torch.bincount(intake.held_out.labels).tolist() == [4, 1]
    assert sorted(colours(intake.train) + colours(intake.held_out)) == list(range(23))
    shuffled = given.select(torch.randperm(23, generator=torch.Generator().manual_seed(1)))
    assert colours(taken(shuffled).held_out) == colours(intake.held_out), "the split does not depend on the order"
    assert torch.bincount(taken(given, keep=2).held_out.labels).tolist() == [2, 1]


def test_an_image_held_out_is_never_trained_on_later() -> None:
    first = taken(coloured([0] * 20 + [1] * 20))
    seen = digests(first.train)
    again = taken(coloured([0] * 20 + [1] * 20), num_known=2, held=first.held_out, seen=seen)
    assert colours(again.train) == colours(first.train), "held-out images stay out"
    assert len(again.held_out) == 0, "what was trained on is not held out later"
    more = taken(coloured([0] * 30, first=10), num_known=2, held=first.held_out, seen=seen)
    of_a = torch.tensor([0])
    assert not set(colours(more.train)) & set(colours(first.held_out.of_classes(of_a)))
    assert not set(colours(more.held_out)) & set(colours(first.train.of_classes(of_a)))


def test_test_images_take_the_place_of_a_share_and_are_not_trained_on() -> None:
    intake = taken(coloured([0] * 9 + [1] * 9), test=coloured([0, 0, 1, 1], first=7, classes=("a", "b")))
    assert colours(intake.held_out) == [7, 8, 9, 10]
    # 9 and 10 are images of class b in both; 7 and 8 of class a.
    assert colours(intake.train) == [c for c in range(18) if c not in (7, 8, 9, 10)]


def test_an_image_that_comes_twice_counts_once() -> None:
    once = coloured([0] * 6 + [1] * 6)
    twice = ImageSet(Resident(once.pixels.fetch(torch.arange(12).repeat(2))), once.labels.repeat(2), once.class_names)
    assert colours(taken(twice).train) == colours(taken(once).train)


def test_a_new_class_needs_two_images() -> None:
    with pytest.raises(UserError, match=r"class 'b' has 1 readable image, but a new class needs 2"):
        taken(coloured([0, 0, 0, 1]))


def test_a_picture_need_not_have_a_name_in_utf8_but_a_class_must(tmp_path: Path) -> None:
    folder, latin = write_classes(tmp_path / "a", range(2), 4), os.fsdecode(b"caf\xe9")
    odd = folder / names([0])[0]
    next(odd.iterdir()).rename(odd / f"{latin}.png")
    assert typical_side(folder) == 16
    assert len(read_labelled(folder, (), 16)) == len(read_pile(folder, 16)) == 8
    odd.rename(folder / latin)
    for read in (
        lambda: typical_side(folder),
        lambda: read_labelled(folder, (), 16),
        lambda: read_known(folder, (), 16),
    ):
        with pytest.raises(UserError, match=r"the class folder 'caf\\udce9' in .* is not valid UTF-8: rename it"):
            read()
    assert len(read_pile(folder, 16)) == 8, "the pile has no classes"


def test_folders_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_classes(tmp_path / "a", range(2), 4)
    locked, other = (folder / name for name in names([0, 1]))
    with monkeypatch.context() as patched:
        lock_out(patched, locked)
        for read in (lambda: read_labelled(folder, (), 16), lambda: read_known(folder, tuple(names([0, 1])), 16)):
            with pytest.raises(UserError, match=rf"{locked} cannot be read \(Permission denied\)"):
                read()
        with caplog.at_level("WARNING", logger="daydream"):
            assert paths_of([str(folder)]) == [str(path) for path in sorted(other.iterdir())]
        assert f"skipped the folder {locked}, which cannot be read" in caplog.text
    lock_out(monkeypatch, folder)
    for read in (lambda: read_labelled(folder, (), 16), lambda: read_pile(folder, 16)):
        with pytest.raises(UserError, match=rf"{folder} cannot be read \(Permission denied\)"):
            read()


# --- what is chosen --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("side", "device", "size", "backbone"),
    [(24, "cpu", 32, "resnet32"), (70, "cpu", 64, "resnet18"), (600, "cpu", 64, "resnet18"),
     (130, "cuda", 128, "resnet18"), (600, "cuda", 224, "resnet18"), (0, "cpu", 32, "resnet32")],
)  # fmt: skip
def test_size_and_backbone_follow_pictures_and_device(side: int, device: str, size: int, backbone: str) -> None:
    chosen, why = choose_model(ModelSettings(), side, device)
    assert (chosen.image_size, chosen.backbone, chosen.memory) == (size, backbone, 20)
    assert {"image-size", "backbone", "memory"} <= {choice.name for choice in why}
    assert choose_model(ModelSettings(image_size=64), side, device)[0].image_size == 64


@pytest.mark.parametrize(
    ("images", "batch", "epochs"), [(60, 16, 160), (300, 32, 120), (10_000, 128, 15), (10**6, 128, 10)]
)
def test_batch_and_epochs_follow_the_number_of_images(images: int, batch: int, epochs: int) -> None:
    chosen, _ = choose_lesson(LessonSettings(), images, 3 * 64**2, 0.1, 128, "cpu")
    assert (chosen.batch_size, chosen.epochs) == (batch, epochs)
    assert chosen.lr == pytest.approx(0.1 * (batch / 128) ** 0.5, abs=1e-5)
    assert chosen.keep_pile == 1000
    assert choose_lesson(LessonSettings(), images, 3 * 256**2, 0.1, 128, "cuda")[0].keep_pile == 2**26 // (3 * 256**2)


def test_the_size_of_pictures_is_their_median_short_side(tmp_path: Path) -> None:
    for place, size in enumerate([(10, 40), (50, 30), (90, 70)]):
        (tmp_path / "class").mkdir(exist_ok=True)
        Image.new("RGB", size).save(tmp_path / "class" / f"{place}.png")
    (tmp_path / "class" / "torn.png").write_bytes(b"torn")
    assert typical_side(tmp_path) == 30


# --- lessons ---------------------------------------------------------------------------------------------------------


def weights(learner: Any) -> dict[str, Tensor]:
    return {
        f"{name}.{key}": value
        for name, net in learner.taught.state.nets.items()
        for key, value in net.state_dict().items()
    }


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"joint"}))
def test_every_method_goes_on_from_its_file_as_if_it_had_never_stopped(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch)
    kind = load_method(method)
    pile = write_pile(tmp_path / "pile", 20) if kind.imagines or kind.needs_pile else None
    a, b = write_classes(tmp_path / "a", range(2), 6), write_classes(tmp_path / "b", range(1, 4), 6, first=6)
    straight = tiny_learner(method=method)
    straight.learn(a, pile, **TINY_LESSON)
    straight.save(tmp_path / "model.daydream")
    straight.learn(b, **TINY_LESSON)
    resumed = Learner.load(tmp_path / "model.daydream", device="cpu")
    resumed.learn(b, **TINY_LESSON)
    assert resumed.taught.names == straight.taught.names
    before, after = weights(straight), weights(resumed)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert torch.equal(straight.taught.state.memory.images, resumed.taught.state.memory.images)
    assert asdict(straight.taught.lessons[1]) | {"seconds": 0} == asdict(resumed.taught.lessons[1]) | {"seconds": 0}
    assert straight.taught.lessons[1].again == 1


def test_a_model_goes_on_with_the_parts_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a recipe's defaults have become: a network that never saw blank squares loses by them."""
    from daydream.methods.replay import Dream

    pile = write_pile(tmp_path / "pile", 20)
    learner = tiny_learner(method="dream")
    with monkeypatch.context() as before:
        before.setattr(Dream, "usual", classmethod(lambda cls, epochs: {**cls.defaults, "erase": 0.25, "blend": 0.7}))
        learner.learn(write_classes(tmp_path / "a", range(2), 6), pile, **TINY_LESSON)
    learner.save(tmp_path / "model.daydream")
    resumed = Learner.load(tmp_path / "model.daydream", device="cpu")
    resumed.learn(write_classes(tmp_path / "b", range(2, 4), 6), **TINY_LESSON)
    assert (resumed.taught.carried["parts"]["erase"], resumed.taught.carried["parts"]["blend"]) == (0.25, 0.7)


@pytest.mark.parametrize("with_pile", [True, False])
def test_a_short_lesson_by_dream_has_the_recipe_of_short_trainings(tmp_path: Path, with_pile: bool) -> None:
    """Taught on unlabelled images and imagining nothing; without any it goes on without that."""
    pile = write_pile(tmp_path / "pile", 20) if with_pile else None
    learner = tiny_learner(method="dream")
    learner.learn(write_classes(tmp_path / "a", range(2), 6), pile, **TINY_LESSON)
    carried = learner.taught.carried
    assert (carried["parts"]["blend"], carried["parts"]["erase"], carried["parts"]["rotations"]) == (0.8, 0.0, "base")
    assert (carried["imagination"]["counterparts"], carried["pile"]["pile_teach"]) == (0, True)
    ready, choices = learner.prepare(
        write_classes(tmp_path / "b", range(2, 4), 6), None, None, LessonSettings(epochs=1, batch_size=8)
    )
    assert isinstance(ready.from_pile, PileTeaching) == with_pile
    assert any(("no unlabelled" in choice.why) != with_pile for choice in choices if choice.name == "method")
    learner.take(ready)


def test_what_the_command_was_not_told_is_as_the_length_of_the_lesson_says(tmp_path: Path, capsys: Any) -> None:
    """The defaults of its flags are those of a long training; one that is given counts, even where it is such."""
    model, folder = tmp_path / "model.daydream", write_classes(tmp_path / "a", range(2), 6)
    words = ["learn", str(model), str(folder), "--method", "dream", "--backbone", "resnet10", "--image-size", "16"]
    words += ["--epochs", "1", "--batch-size", "8", "--device", "cpu", "--quiet"]
    assert call(capsys, *words, "--erase", "0.375")[0] == 0
    carried = Learner.load(model, device="cpu").taught.carried
    assert (carried["parts"]["blend"], carried["parts"]["erase"], carried["pile"]["pile_teach"]) == (0.8, 0.375, True)
    code, _, said = call(capsys, *words, "--blend", "0.6")
    assert (code, said.count("\n")) == (2, 1)
    assert "--blend 0.6" in said


def test_a_long_lesson_by_dream_has_the_recipe_of_long_trainings(tmp_path: Path) -> None:
    folder, pile = write_classes(tmp_path / "a", range(2), 6), write_pile(tmp_path / "pile", 20)
    ready, _ = tiny_learner(method="dream").prepare(folder, pile, None, LessonSettings(epochs=100, batch_size=8))
    settings = ready.carried.settings
    assert (settings.imagines, settings.parts.blend, settings.parts.erase) == ("generators", 0.6, 0.375)
    with pytest.raises(UserError, match="--method dream needs unlabelled images"):
        tiny_learner(method="dream").prepare(folder, None, None, LessonSettings(epochs=100, batch_size=8))


def test_an_upper_bound_and_a_file_of_ones_own_are_no_methods_of_a_learner() -> None:
    with pytest.raises(UserError, match="joint is an upper bound"):
        tiny_learner(method="joint")
    with pytest.raises(UserError, match=r"mine.py:Mine is not one of the package's"):
        tiny_learner(method="mine.py:Mine")


def test_it_learns_and_does_not_forget_all(tmp_path: Path) -> None:
    lesson = {"epochs": 40, "batch_size": 16, "lr": 0.05}
    learner = tiny_learner(memory=20)
    first = learner.learn(write_classes(tmp_path / "a", range(3), 60), **lesson)
    second = learner.learn(write_classes(tmp_path / "b", range(3, 5), 60), **lesson)
    assert first.accuracy > 60, "of 3 classes"
    assert second.accuracy > 55, "of 5 classes"
    report = learner.test(write_classes(tmp_path / "test", range(5), 20, test=True))
    assert report.accuracy > 55
    assert sum(report.per_class[name] for name in names(range(3))) / 3 > 35, "the first classes are still known"
    assert sum(report.images.values()) == 100
    assert all(sum(row.values()) == 20 for row in report.confusion.values())
    right = sum(row.get(name, 0) for name, row in report.confusion.items())
    assert report.accuracy == pytest.approx(right)
    assert 0 < learner.rejection(0.1) <= learner.rejection(0.5) <= 1


def test_known_classes_given_again_are_merged(tmp_path: Path) -> None:
    learner = tiny_learner()
    learner.learn(write_classes(tmp_path / "a", range(2), 8), **TINY_LESSON)
    old = learner.taught
    record = learner.learn(write_classes(tmp_path / "again", [0], 8, first=8), **TINY_LESSON)
    new, label = learner.taught, learner.taught.names.index(names([0])[0])
    assert (record.new, record.again) == (0, 1)
    assert new.names == old.names
    assert new.classes[label].images == old.classes[label].images + record.images
    assert torch.bincount(new.state.memory.labels).tolist() == [4, 4]
    given = digests(ImageSet(Resident(new.state.memory.images), new.state.memory.labels, new.names))
    assert torch.isin(given, new.seen).all(), "exemplars are images trained on"
    held = digests(new.held_out)
    assert not torch.isin(held, new.seen).any()
    other = old.state.memory.labels != label
    assert torch.equal(new.state.memory.images[new.state.memory.labels != label], old.state.memory.images[other])
    save_held_out(new.held_out, new.names, tmp_path / "held")
    with pytest.raises(UserError, match="brings nothing new"):
        learner.learn(tmp_path / "held", **TINY_LESSON)


def test_pictures_given_again_are_neither_kept_nor_counted_twice(tmp_path: Path) -> None:
    learner = tiny_learner(memory=20)
    spring = write_classes(tmp_path / "spring", range(2), 8)
    learner.learn(spring, **TINY_LESSON)
    learner.learn(write_classes(tmp_path / "summer", range(2, 4), 8), **TINY_LESSON)
    before = learner.classes
    record = learner.learn(spring, **TINY_LESSON)
    assert (record.again, record.images) == (2, 12)
    assert counts(learner) == [(row.images, row.exemplars, row.exemplars) for row in before]
    write_classes(spring, range(2), 4, first=8)
    write_classes(spring, [4], 8)  # a new class beside them: they join the memory and are replayed
    learner.learn(spring, **TINY_LESSON)
    assert counts(learner) == [(9, 9, 9)] * 2 + [(6, 6, 6)] * 3


def test_a_batch_holds_old_and_new_in_the_proportion_of_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory may hold fewer than its budget, and more while known classes are given again."""
    seen: list[tuple[int, int, int, int]] = []

    def run(engine: Engine, stage: Stage, state: State, *rest: Any) -> None:
        if stage.exemplars:
            new, old = (stage.streams(state)[name] for name in ("new", "old"))
            seen.append((len(new.images), len(old.images), new.size, old.size))
        own(engine, stage, state, *rest)

    own = Engine.run
    monkeypatch.setattr(Engine, "run", run)
    learner = tiny_learner(memory=20)
    learner.learn(write_classes(tmp_path / "a", range(2), 5), **TINY_LESSON)
    learner.learn(write_classes(tmp_path / "b", [2], 31), **TINY_LESSON)
    both = write_classes(write_classes(tmp_path / "c", range(2), 30, first=5), [3], 5)
    learner.learn(both, **TINY_LESSON)
    few, more = seen
    assert few == (25, 8, 6, 2)  # of a budget of 40
    assert more[1] > 50
    assert more[2:] == (1, 7)


def test_bic_says_at_once_that_a_class_has_too_few_exemplars(tmp_path: Path) -> None:
    learner = tiny_learner(method="bic", memory=20)
    learner.learn(write_classes(tmp_path / "a", range(2), 2), **TINY_LESSON)
    with pytest.raises(UserError, match="has 1 exemplar, but --method bic needs 2 of each class it knows"):
        learner.learn(write_classes(tmp_path / "b", [2], 30), **TINY_LESSON)
    learner.learn(write_classes(write_classes(tmp_path / "c", range(2), 30, first=2), [2], 30), **TINY_LESSON)


def counts(learner: Learner) -> list[tuple[int, int, int]]:
    """Return of each class its images, its exemplars, and how many of these differ."""
    memory = learner.taught.state.memory.as_set(learner.taught.names)
    kinds = [digests(memory.of_classes(torch.tensor([label]))).unique() for label in range(len(learner.classes))]
    return [(row.images, row.exemplars, len(kind)) for row, kind in zip(learner.classes, kinds, strict=True)]


def test_exemplars_that_an_earlier_version_kept_twice_are_kept_once(tmp_path: Path) -> None:
    learner = tiny_learner(memory=20)
    folder = write_classes(tmp_path / "a", range(2), 8)
    learner.learn(folder, **TINY_LESSON)
    state = learner.taught.state
    state.memory = state.memory.joined(state.memory.as_set(learner.taught.names))
    assert counts(learner) == [(6, 12, 6)] * 2
    learner.learn(folder, **TINY_LESSON)
    assert counts(learner) == [(6, 6, 6)] * 2


def save_held_out(images: ImageSet, class_names: tuple[str, ...], folder: Path) -> None:
    for place, label in enumerate(images.labels.tolist()):
        (folder / class_names[label]).mkdir(parents=True, exist_ok=True)
        pixels = images.pixels.fetch(torch.tensor([place]))[0].permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(folder / class_names[label] / f"{place}.png")


def test_a_later_pile_gives_old_classes_a_generator(tmp_path: Path) -> None:
    learner = tiny_learner()
    learner.learn(write_classes(tmp_path / "a", range(2), 6), **TINY_LESSON)
    assert [row.generator for row in learner.classes] == [False, False]
    first = learner.taught.lessons[0]
    assert (first.method, first.counterparts_right, first.counterparts_spread) == ("replay", None, None)
    b, pile = write_classes(tmp_path / "b", range(2, 4), 6), write_pile(tmp_path / "pile", 30)
    record = learner.learn(b, pile, keep_pile=25, **TINY_LESSON)
    assert record.method == "imagine"
    assert record.counterparts_right is not None
    assert record.counterparts_spread is not None
    assert 0 <= record.counterparts_right <= 100
    assert record.counterparts_spread > 0
    assert [row.generator for row in learner.classes] == [True] * 4
    assert len(learner.taught.pile) == 25
    learner.learn(write_classes(tmp_path / "c", [4], 6), keep_pile=0, **TINY_LESSON)
    assert [row.generator for row in learner.classes] == [True] * 5, "the kept share is imagined with"
    learner.learn(write_classes(tmp_path / "d", [5], 6), **TINY_LESSON)
    assert [row.generator for row in learner.classes] == [True] * 5 + [False]
    assert learner.taught.lessons[3].method == "replay"
    learner.learn(write_classes(tmp_path / "e", [5], 6, first=6), pile, **TINY_LESSON)
    assert [row.generator for row in learner.classes] == [True] * 6, "a lesson without a new class gives one too"


class Falling(Display):
    """A display under which the machine falls over."""

    def epoch_ends(self, place: Place, stage: Stage, report: EpochReport) -> None:
        raise RuntimeError("the machine fell over")


def test_a_lesson_that_fails_changes_nothing(tmp_path: Path) -> None:
    learner = tiny_learner()
    learner.learn(write_classes(tmp_path / "a", range(2), 6), **TINY_LESSON)
    model, before = learner.model, {key: value.clone() for key, value in weights(learner).items()}
    with pytest.raises(RuntimeError, match="fell over"):
        learner.learn(write_classes(tmp_path / "b", range(1, 4), 6), display=Falling(), **TINY_LESSON)
    assert learner.model is model
    assert all(torch.equal(before[key], value) for key, value in weights(learner).items())


def test_pictures_come_as_files_images_or_arrays(tmp_path: Path) -> None:
    learner = tiny_learner()
    folder = write_classes(tmp_path / "a", range(2), 6)
    learner.learn(folder, **TINY_LESSON)
    path = next(folder.rglob("*.png"))
    image = Image.open(path)
    several = learner.predict([path, str(path), image, np.asarray(image)])
    assert len(set(several)) == 1
    [(label, probability)] = learner.predict(path)
    assert several[0] == (label, pytest.approx(probability))
    assert label in names(range(2))
    assert 0.5 <= probability <= 1
    assert learner.probabilities([]).shape == (0, 2)
    torch.testing.assert_close(learner.probabilities(path).sum(), torch.tensor(1.0, dtype=torch.float64))
    assert learner.classifier.class_names == learner.taught.names
    scores = learner.classifier.scores(drawn().test.pixels.fetch(torch.arange(4))).double()
    torch.testing.assert_close(
        (scores / learner.taught.temperature).softmax(1), learner.judged(drawn().test.select(torch.arange(4)))
    )
    (tmp_path / "torn.jpg").write_bytes(b"torn")
    with pytest.raises(UserError, match=r"torn.jpg cannot be read as a picture"):
        learner.predict(tmp_path / "torn.jpg")


def test_a_learner_that_knows_nothing_says_so() -> None:
    with pytest.raises(UserError, match="knows no class yet"):
        tiny_learner().predict("x.png")
    with pytest.raises(UserError, match="unknown setting 'imagesize'"):
        Learner.create(imagesize=3)


class Stopping(Display):
    """A display at which a person asks to stop."""

    def stop_asked(self) -> bool:
        return True


def test_a_lesson_that_is_stopped_changes_nothing(tmp_path: Path) -> None:
    learner = tiny_learner()
    learner.learn(write_classes(tmp_path / "a", range(2), 6), **TINY_LESSON)
    model, before = learner.model, {key: value.clone() for key, value in weights(learner).items()}
    with pytest.raises(Interrupted):
        learner.learn(write_classes(tmp_path / "b", range(2, 4), 6), display=Stopping(), **TINY_LESSON)
    assert learner.model is model
    assert all(torch.equal(before[key], value) for key, value in weights(learner).items())


def test_a_lesson_carries_what_a_run_can(tmp_path: Path) -> None:
    """Blending and teaching on the pile, said once and kept; without counterparts no generator is made."""
    pile = write_pile(tmp_path / "pile", 20)
    learner = tiny_learner(blend=0.5, pile_distill=0.7, counterparts=0)
    learner.learn(write_classes(tmp_path / "a", range(2), 6), pile, **TINY_LESSON)
    learner.save(tmp_path / "model.daydream")
    resumed = Learner.load(tmp_path / "model.daydream", device="cpu")
    folder = write_classes(tmp_path / "b", range(2, 4), 6)
    lesson, _ = resumed.prepare(folder, None, None, LessonSettings(**TINY_LESSON))
    assert [stage.name for stage in lesson.stages] == ["mine", "train", "select", "mine"]
    assert lesson.carried.settings.pile_distill == 0.7
    resumed.take(lesson)
    assert resumed.taught.num_generators == 0
    assert resumed.taught.carried["parts"]["blend"] == 0.5
    assert resumed.taught.lessons[-1].method == "replay"
