"""GD: what it samples, its three teachers against their equations, what each stage leaves alone, its random memory."""

import copy
import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from own_images import TINY_LESSON, tiny_learner, write_classes
from stages_driven import after_task, batch_of, begun, drive, same, snapshot
from tiny_runs import TINY_RECIPE, TINY_RUN, StopIn, Watch, real_training, tiny_experiment, without_times
from torch import Tensor

from daydream.data.images import ImageSet
from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.experiment.config import make_config
from daydream.experiment.experiment import Experiment
from daydream.learner.settings import LessonSettings
from daydream.methods.gd import GD, GDSettings
from daydream.methods.method import network
from daydream.protocol.inference import over_images
from daydream.protocol.memory import herd
from daydream.stages.global_distillation import sampled
from daydream.stages.stage import SGD, Batch, Samples, Stage, State
from daydream.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

TASK = 1
"""The first increment, which all tests of stages stand in: 2 old and 2 new classes, 24 new images, 12 exemplars."""
SAMPLE, TEACHER, TRAIN, FINETUNE = range(4)


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return tiny_experiment("gd", base_epochs=6, teacher_epochs=8, epochs=8, batch_size=12)


@pytest.fixture(scope="module")
def base(experiment: Experiment) -> State:
    return after_task(experiment, experiment.fresh_state(), 0)


def stages_of(experiment: Experiment) -> list[Stage]:
    return experiment.stages(experiment.stream.task(TASK))


@pytest.fixture(scope="module")
def taught(experiment: Experiment, base: State) -> State:
    """The state with its images sampled and its teacher trained; to be copied, not changed."""
    stages, state = stages_of(experiment), copy.deepcopy(base)
    drive(experiment, state, TASK, stages[SAMPLE])
    state = begun(state, stages[TEACHER])
    losses = drive(experiment, state, TASK, stages[TEACHER])
    assert losses[-1]["ce"] < losses[0]["ce"]
    return state


@pytest.fixture(scope="module")
def trained(experiment: Experiment, taught: State) -> State:
    state = begun(taught, stages_of(experiment)[TRAIN])
    drive(experiment, state, TASK, stages_of(experiment)[TRAIN])
    return state


def pixels(images: ImageSet) -> list[bytes]:
    return [image.numpy().tobytes() for image in images.pixels.fetch(torch.arange(len(images)))]


# --- what it samples -------------------------------------------------------------------------------------------------


def test_the_most_likely_images_of_each_class_are_sampled_and_others_at_random() -> None:
    scores = torch.randn(200, 3)
    index = sampled(scores, 40, 0.7, torch.Generator().manual_seed(1)).tolist()
    assert index == sorted(set(index))
    likely = {int(i) for c in range(3) for i in scores[:, c].argsort(descending=True)[:4]}
    assert likely <= set(index), "4 of each class: a third of 30 % of 40"
    assert 28 <= len(index) <= 28 + len(likely)
    mean = [float(scores[list(set(index) - likely)].mean()), float(scores.mean())]
    assert mean[0] == pytest.approx(mean[1], abs=0.3)
    other = sampled(scores, 40, 0.7, torch.Generator().manual_seed(2)).tolist()
    assert likely <= set(other) != set(index)
    assert sampled(scores, 40, 0.0, torch.Generator()).tolist() == sorted(
        {int(i) for c in range(3) for i in scores[:, c].argsort(descending=True)[:13]}
    )
    assert sampled(scores, 200, 0.7, torch.Generator()).tolist() == list(range(200)), "what there is"


def test_the_network_before_the_increment_chooses(experiment: Experiment, base: State) -> None:
    state = copy.deepcopy(base)
    drive(experiment, state, TASK, stages_of(experiment)[SAMPLE])
    method, chosen = experiment.method, set(state.tensors["pile.external"].tolist())
    scores = over_images(lambda x: (method.predict(base, x).scores,), method.pile, method.setup.prepare)[0]
    likely = {int(i) for c in range(2) for i in scores[:, c].argsort(descending=True)[:5]}  # half of 30 % of 24 + 12
    assert likely <= chosen
    assert 25 <= len(chosen) <= 25 + len(likely)


def test_a_batch_holds_labelled_and_unlabelled_images_alike(experiment: Experiment, taught: State) -> None:
    for stage in stages_of(experiment)[TEACHER : FINETUNE + 1]:
        streams = stage.streams(begun(taught, stage))
        assert {name: stream.size for name, stream in streams.items()} == {"new": 4, "old": 2, "external": 6}
        assert stage.steps == (24 + 12 + 36) / 12
    stage = experiment.stages(experiment.stream.task(0))[1]
    assert stage.steps == (24 + 24) / 12


@pytest.mark.parametrize("settings", [{"batch_size": 3}, {"external": 100.0}, {"external": 0.001}, {"batch_size": 200}])
def test_a_batch_holds_some_of_each(settings: dict[str, Any]) -> None:
    method, experiment = cast(GD, tiny_experiment("gd", **settings).method), tiny_experiment("gd")
    for index in (0, 1, 2):
        sizes = method.sizes(experiment.stream.task(index))
        wanted = {"new", *(("old",) if index else ()), *(("external",) if settings.get("external") != 0.001 else ())}
        assert set(sizes) == wanted
        assert sum(sizes.values()) == method.settings.batch_size


def test_unlabelled_images_are_the_piles_and_their_labels_change_nothing(experiment: Experiment, taught: State) -> None:
    stage = stages_of(experiment)[TRAIN]
    external = stage.streams(begun(taught, stage))["external"]
    pile = pixels(experiment.method.pile)
    assert pixels(external.images) == [pile[i] for i in taught.tensors["pile.external"].tolist()]
    found = []
    for classes in (1, 4):
        other = tiny_experiment("gd", base_epochs=6, teacher_epochs=8, epochs=2, batch_size=12)
        labels, names = torch.arange(60) % classes, tuple(map(str, range(classes)))
        known = replace(other.method.pile, labels=labels, class_names=names)
        other.method.setup = replace(other.method.setup, pile=known)
        state = begun(taught, stages_of(other)[TRAIN])
        drive(other, state, TASK, stages_of(other)[TRAIN])
        found.append(snapshot(state.nets["net"]))
    assert same(found[0], found[1]) == set(found[0])


def test_a_pile_that_is_too_small_is_taken_whole_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    experiment = tiny_experiment("gd", external=2.0)
    with caplog.at_level(logging.INFO, logger="daydream"):
        experiment.method.check(experiment.stream)
    assert "gd would take 72 unlabelled images; the pile has 60: it takes what there is" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="daydream"):
        tiny_experiment("gd")
    assert caplog.text == ""
    state, task = experiment.fresh_state(), experiment.stream.task(TASK)
    state.nets["net"] = experiment.method.new_network(experiment.stream.task(0))
    drive(experiment, state, TASK, experiment.stages(task)[SAMPLE])
    assert state.tensors["pile.external"].tolist() == list(range(60))


# --- the teacher of the new classes ----------------------------------------------------------------------------------


def softmax(row: list[float], temperature: float = 1.0) -> list[float]:
    powers = [math.exp(s / temperature) for s in row]
    return [p / sum(powers) for p in powers]


def kl(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def resting(state: State) -> State:
    for net in state.nets.values():
        net.eval()
    return state


def everything(batch: Batch) -> tuple[Tensor, list[int]]:
    """The images of a batch, and the labels of those that have one."""
    labels = torch.cat([batch["new"].labels, batch["old"].labels]).tolist()
    return torch.cat([batch[name].images for name in ("new", "old", "external")]), labels


def test_the_teachers_losses_are_the_equations(experiment: Experiment, taught: State) -> None:
    stage = stages_of(experiment)[TEACHER]
    batch, state = batch_of(stage, taught, TASK), resting(copy.deepcopy(taught))
    images, labels = everything(batch)
    with torch.no_grad():
        rows = network(state, "teacher")(images)[:, 2:].double().tolist()
        found = stage.losses(state, batch)
    ce = -sum(math.log(softmax(row)[label - 2]) for row, label in zip(rows[:4], labels[:4], strict=True)) / 4
    unsure = sum(kl([0.5, 0.5], softmax(row)) for row in rows[4:]) / len(rows[4:])
    assert {name: float(value) for name, value in found.items()} == {
        "ce": pytest.approx(ce, rel=1e-4),
        "confidence": pytest.approx(unsure, rel=1e-4),
    }


def test_the_teacher_keeps_the_weights_of_old_classes_and_the_network_rests(base: State, taught: State) -> None:
    assert same(snapshot(base.nets["net"]), snapshot(taught.nets["net"])) == set(base.nets["net"].state_dict())
    before, after = snapshot(base.nets["net"]), snapshot(taught.nets["teacher"])
    kept = {name for name, value in before.items() if torch.equal(value, after[name])}
    assert {name for name in kept if "head" in name} == {"head.weights.0", "head.biases.0"}
    moved = {name for name in before if name.endswith("weight") and "head" not in name}
    assert moved
    assert kept.isdisjoint(moved)


def test_calibration_makes_it_unsure_of_all_else(base: State) -> None:
    measured = []
    for confidence in (0.0, 1.0):
        other = tiny_experiment("gd", base_epochs=6, teacher_epochs=12, batch_size=12, confidence=confidence)
        state = copy.deepcopy(base)
        drive(other, state, TASK, stages_of(other)[SAMPLE])
        state = begun(state, stages_of(other)[TEACHER])
        drive(other, state, TASK, stages_of(other)[TEACHER])
        with torch.no_grad():
            x = other.method.setup.prepare(other.method.pile.pixels.fetch(torch.arange(60)))
            measured.append(float(network(state, "teacher")(x)[:, 2:].softmax(1).max(1).values.mean()))
    assert measured[1] < measured[0] - 0.02


def test_the_base_task_is_a_teacher_too_and_no_others(experiment: Experiment) -> None:
    stage = experiment.stages(experiment.stream.task(0))[1]
    assert stage.shared_as is None
    state = experiment.fresh_state()
    drive(experiment, state, 0, experiment.stages(experiment.stream.task(0))[0])
    assert set(drive(experiment, begun(state, stage), 0, stage)[0]) == {"ce", "confidence"}


# --- the network -----------------------------------------------------------------------------------------------------


def terms_by_loop(state: State, batch: Batch, balance: Tensor | None) -> dict[str, float]:
    """Section 3.2, image by image, in double precision: 2 old and 2 new classes."""
    images, labels = everything(batch)
    with torch.no_grad():
        m, p, c = (network(state, name)(images).double().tolist() for name in ("net", "old", "teacher"))
    found = dict.fromkeys(("ce", "global", "previous", "current"), 0.0)
    for i in range(len(images)):
        weights = [1.0] * 3 if balance is None or i >= len(labels) else balance[:, labels[i]].tolist()
        if i < len(labels):
            found["ce"] -= weights[0] * math.log(softmax(m[i])[labels[i]]) / len(images)
        else:
            old, new = softmax(p[i]), softmax(c[i][2:])
            j = old.index(max(old))
            q = [old[j] if k == j else old[k] / 3 for k in range(2)] + [share * (1 - old[j]) * 2 / 3 for share in new]
            found["global"] += kl(q, softmax(m[i])) / len(images)
        parts = [("previous", p[i], m[i][:2], weights[1]), ("current", c[i][2:], m[i][2:], weights[2])]
        for name, teacher, scores, weight in parts:
            found[name] += 0.5 * weight * 4 * kl(softmax(teacher, 2.0), softmax(scores, 2.0)) / len(images)
    return found


def test_the_networks_losses_are_the_equations(experiment: Experiment, taught: State) -> None:
    stage = stages_of(experiment)[TRAIN]
    state = resting(begun(taught, stage))
    batch = batch_of(stage, state, TASK)
    with torch.no_grad():
        found = {name: float(value) for name, value in stage.losses(state, batch).items()}
    wanted = terms_by_loop(state, batch, None)
    assert min(wanted["ce"], wanted["global"], wanted["current"]) > 0.001
    assert found == {name: pytest.approx(value, rel=1e-3, abs=1e-5) for name, value in wanted.items()}


def test_old_and_new_classes_count_by_their_shares() -> None:
    """Of 4 old classes and 2 new ones: 2/3 and 1/3."""
    experiment = tiny_experiment("gd", base_epochs=1, epochs=1)
    task, method = experiment.stream.task(2), cast(GD, experiment.method)
    state = experiment.fresh_state()
    for name, classes in (("net", 6), ("old", 4), ("teacher", 6)):
        state.nets[name] = method.new_network(task, name, classes).eval()
    images = torch.randn(5, 3, 16, 16)
    batch = Batch({"new": Samples(images, torch.tensor([4, 5, 4, 5, 4]), torch.arange(5), {})}, {})
    with torch.no_grad():
        found = method.objective(task, state, batch)
        m, p, c = (network(state, name)(images).double().tolist() for name in ("net", "old", "teacher"))
    previous = sum(4 * kl(softmax(a, 2.0), softmax(b[:4], 2.0)) for a, b in zip(p, m, strict=True)) / 5
    current = sum(4 * kl(softmax(a[4:], 2.0), softmax(b[4:], 2.0)) for a, b in zip(c, m, strict=True)) / 5
    assert float(found["previous"]) == pytest.approx(2 / 3 * previous, rel=1e-3)
    assert float(found["current"]) == pytest.approx(1 / 3 * current, rel=1e-3)
    assert float(found["global"]) == 0, "there is no unlabelled image"


def test_its_teachers_stay(experiment: Experiment, taught: State) -> None:
    stage = stages_of(experiment)[TRAIN]
    state = begun(taught, stage)
    before = {name: snapshot(state.nets[name]) for name in ("old", "teacher")}
    assert same(before["old"], snapshot(taught.nets["net"])) == set(before["old"])
    drive(experiment, state, TASK, stage)
    for name, values in before.items():
        assert same(values, snapshot(state.nets[name])) == set(values)


def test_without_its_teachers_and_images_it_is_plain_rehearsal(experiment: Experiment, taught: State) -> None:
    found = []
    for settings in ({"external": 0.0, "distillation": 0.0}, {"external": 0.0}, {}):
        other = tiny_experiment("gd", base_epochs=6, teacher_epochs=8, epochs=2, batch_size=12, **settings)
        method, task = other.method, other.stream.task(TASK)
        stage = stages_of(other)[TRAIN]
        state = begun(taught, stage)
        drive(other, state, TASK, stage)
        found.append(snapshot(state.nets["net"]))
    plain = replace(method.rehearse(task, task.train), schedule=stage.schedule)
    state = begun(taught, plain)
    drive(other, state, TASK, plain)
    found.append(snapshot(state.nets["net"]))
    assert same(found[0], found[3]) == set(found[0]), "bit for bit"
    weights = {name for name, _ in state.nets["net"].named_parameters()}
    for less, more in ((0, 1), (1, 2)):
        assert weights.isdisjoint(same(found[less], found[more]))


# --- fitting the head, the memory ------------------------------------------------------------------------------------


def test_the_heads_losses_weigh_classes_alike(experiment: Experiment, trained: State) -> None:
    """24 new images and 12 exemplars of 2 classes each: in each label space the weights' mean over images is 1."""
    stage = stages_of(experiment)[FINETUNE]
    state = resting(begun(trained, stage))
    balance = torch.tensor([[36 / 24] * 2 + [36 / 48] * 2, [1.0] * 4, [1.0] * 4])
    assert torch.allclose(state.tensors["balance"], balance)
    state.tensors["balance"] = balance = torch.tensor([[0.5, 1.5, 2.0, 0.7], [0.3, 2.0, 1, 1], [1, 1, 3.0, 0.2]])
    batch = batch_of(stage, state, TASK)
    with torch.no_grad():
        found = {name: float(value) for name, value in stage.losses(state, batch).items()}
    wanted = terms_by_loop(state, batch, balance)
    assert found == {name: pytest.approx(value, rel=1e-3, abs=1e-5) for name, value in wanted.items()}


def test_fitting_changes_the_head_alone(experiment: Experiment, trained: State) -> None:
    stage = stages_of(experiment)[FINETUNE]
    state = begun(trained, stage)
    before, teachers = snapshot(state.nets["net"]), {name: snapshot(state.nets[name]) for name in ("old", "teacher")}
    teacher = state.nets["teacher"]
    drive(experiment, state, TASK, stage)
    kept = same(before, snapshot(state.nets["net"]))
    assert {name for name in before if name not in kept} == {name for name in before if name.startswith("head")}
    assert same(teachers["old"], snapshot(state.nets["old"])) == set(teachers["old"])
    assert same(teachers["teacher"], snapshot(teacher)) == set(teachers["teacher"])
    assert set(state.nets) == {"net", "old"}
    assert "balance" not in state.tensors


def test_its_memory_is_random_balanced_and_shrinks_to_a_subset(experiment: Experiment, base: State) -> None:
    first = base.memory
    assert torch.bincount(first.labels).tolist() == [6, 6]
    train, method = experiment.stream.task(0).train, experiment.method
    herded = herd(method.features(base, train), train.labels, 6)[0]
    exemplars = {image.numpy().tobytes() for image in first.images}
    assert exemplars != {image.numpy().tobytes() for image in train.pixels.fetch(herded)}
    assert exemplars <= set(pixels(train))
    state = copy.deepcopy(base)
    state.tensors["pile.external"] = torch.arange(3)
    drive(experiment, state, TASK, stages_of(experiment)[4])
    assert torch.bincount(state.memory.labels).tolist() == [3] * 4
    kept = {image.numpy().tobytes() for image in state.memory.images[state.memory.labels < 2]}
    assert kept < exemplars


# --- recipe, parts, run ----------------------------------------------------------------------------------------------


def test_the_recipe_is_the_released_codes() -> None:
    settings = GDSettings()
    experiment = tiny_experiment("gd", base_epochs=200, epochs=180, finetune_epochs=20, lr=0.1)
    base, rows = experiment.plan()[0].stages[1], experiment.plan()[1].stages
    steps = {
        "train": [0.1] * 120 + [0.01] * 40 + [0.001] * 10 + [0.0001] * 10,
        "teacher": [0.1] * 120 + [0.01] * 40 + [0.001] * 20 + [0.0001] * 20,
        "finetune": [0.01] * 10 + [0.001] * 5 + [0.0001] * 5,
    }
    for stage in rows[TEACHER : FINETUNE + 1]:
        rates = [stage.optimizer.lr * stage.schedule(epoch, stage.epochs) for epoch in range(stage.epochs)]
        assert rates == pytest.approx(steps[stage.name])
    assert [base.optimizer.lr * base.schedule(e, 200) for e in range(200)] == pytest.approx(steps["teacher"])
    assert (settings.base_epochs, settings.epochs, settings.batch_size) == (200, 180, 128)
    assert settings.sgd() == SGD(lr=0.1, momentum=0.9, weight_decay=5e-4)


def test_it_keeps_what_finetuning_loses_and_what_its_teachers_say_is_learnt(tmp_path: Path) -> None:
    result = real_training("gd", tmp_path / "run", base_epochs=6, epochs=6, teacher_epochs=6, finetune_epochs=3)
    assert result["last_cnn"] > 60
    assert result["tasks"][1]["cnn"]["old"] > 60
    rows = [row for row in RunFolder(tmp_path / "run").metrics() if row.get("stage") == "train" and row["task"] == 1]
    for name in ("global", "previous", "current"):
        assert rows[-1]["losses"][name] < 0.9 * rows[0]["losses"][name]


def test_nothing_is_added_to_network_and_head(tmp_path: Path) -> None:
    sizes = []
    for method in ("gd", "finetune"):
        experiment = tiny_experiment(method, {"tasks": 2}, base_epochs=1, epochs=1)
        result = experiment.start(tmp_path / method, Watch())
        sizes.append((result["parameters"], result["head_parameters"]))
        assert result["parameters"] == experiment.parameters()[0]
    assert sizes[0] == sizes[1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return tiny_experiment("gd").start(tmp_path_factory.mktemp("gd") / "run", Watch())


@pytest.mark.parametrize("place", [(0, "train"), (1, "teacher"), (1, "train"), (2, "finetune")])
def test_stopped_in_any_stage_it_ends_the_same(whole: dict[str, Any], tmp_path: Path, place: tuple[int, str]) -> None:
    with pytest.raises(Interrupted):
        tiny_experiment("gd").start(tmp_path / "run", StopIn(*place))
    result = tiny_experiment("gd").resume(RunFolder.open(tmp_path / "run"), Watch())
    assert without_times(result) == without_times(whole)


def test_parts_change_its_training_and_not_the_fitting_of_its_head(tmp_path: Path) -> None:
    parts = {"blend": 0.5, "erase": 0.3}
    experiment = tiny_experiment("gd", {"tasks": 2}, parts=parts)
    stages, plain = stages_of(experiment), experiment.method.stages(experiment.stream.task(TASK))
    both = zip(stages, plain, strict=True)
    changed = [now.name for now, before in both if now.losses.__module__ != before.losses.__module__]
    assert changed == ["train"]
    experiment.start(tmp_path / "run", Watch())
    reports = [row for row in RunFolder(tmp_path / "run").metrics() if row["kind"] == "report"]
    assert [(row["stage"], row["blend"]) for row in reports] == [("train", 0.5)]


def test_without_unlabelled_images_it_says_so_in_runs_and_in_lessons(tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "images", range(4), 8)
    run = {**TINY_RUN, "method": "gd", "data": "folder", "root": str(folder), "steps": 1}
    with pytest.raises(UserError, match="data set 'folder' has no unlabelled images of its own: say where they are"):
        Experiment(make_config(run, {"image_size": 16}, TINY_RECIPE))
    with pytest.raises(UserError, match="--method gd needs unlabelled images: give --unlabeled FOLDER"):
        tiny_learner(method="gd").prepare(folder, None, None, LessonSettings(**TINY_LESSON))


@pytest.mark.parametrize(
    ("run", "parts", "words"),
    [
        ({}, {"rotations": "base"}, "--rotations base does not fit method 'gd', which takes of these parts"),
        ({"memory": 0}, {}, "--memory 0: method 'gd' keeps exemplars and needs a memory"),
    ],
)
def test_what_does_not_fit_is_refused(run: dict[str, Any], parts: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        tiny_experiment("gd", run, parts=parts)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_size": 2}, "--batch-size must be at least 3"),
        ({"temperature": 0}, "--temperature 0 must be above 0"),
        ({"ood": 1.5}, "--ood 1.5 must lie between 0 and 1"),
        ({"external": -1}, "--external -1 must not be negative"),
        ({"confidence": -1}, "--confidence -1 must not be negative"),
        ({"distillation": -1}, "--distillation -1 must not be negative"),
        ({"teacher_epochs": 0}, "--teacher-epochs 0 must be at least 1"),
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        GDSettings(**settings)
