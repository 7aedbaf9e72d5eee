"""DMC: what its student is taught by and on, what that leaves alone, and that it needs no exemplar."""

import copy
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from own_images import TINY_LESSON, tiny_learner, write_classes, write_pile
from stages_driven import after_task, batch_of, begun, drive, same, snapshot
from tiny_runs import TINY_RECIPE, TINY_RUN, StopIn, Watch, real_training, tiny_experiment, without_times
from torch import Tensor, nn

from daydream.data.images import ImageSet
from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.experiment.config import make_config
from daydream.experiment.experiment import Experiment
from daydream.methods.dmc import DMC, DMCSettings
from daydream.methods.method import network
from daydream.stages.stage import SGD, State
from daydream.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

TASK = 1
"""The first increment, which all tests of stages stand in."""


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return tiny_experiment("dmc", epochs=10, updates=20)


@pytest.fixture(scope="module")
def base(experiment: Experiment) -> State:
    return after_task(experiment, experiment.fresh_state(), 0)


@pytest.fixture(scope="module")
def taught(experiment: Experiment, base: State) -> State:
    """The state with its expert trained; to be copied, not changed."""
    expert = experiment.stages(experiment.stream.task(TASK))[0]
    state = begun(base, expert)
    losses = drive(experiment, state, TASK, expert)
    assert losses[-1]["ce"] < losses[0]["ce"]
    return state


def pixels(images: ImageSet) -> set[bytes]:
    return {image.numpy().tobytes() for image in images.pixels.fetch(torch.arange(len(images)))}


# --- the expert ------------------------------------------------------------------------------------------------------


def test_the_expert_sees_new_classes_alone_and_leaves_the_network_as_it_is(base: State, taught: State) -> None:
    stream = tiny_experiment("dmc").stream
    expert, seen = tiny_experiment("dmc").stages(stream.task(TASK))[0].streams(taught)["new"], stream.task(TASK).train
    assert pixels(expert.images) == pixels(seen)
    assert (expert.images.labels + 2).tolist() == seen.labels.tolist()
    assert network(taught, "expert").head.sizes == (2,)
    assert same(snapshot(base.nets["net"]), snapshot(taught.nets["net"])) == set(base.nets["net"].state_dict())


def test_without_an_increment_it_is_finetuning(base: State) -> None:
    """Its base task alone, over which their schedules agree when it is one epoch long."""
    found = []
    for method in ("dmc", "finetune"):
        experiment = tiny_experiment(method, base_epochs=1, weight_decay=1e-4)
        found.append(snapshot(after_task(experiment, experiment.fresh_state(), 0).nets["net"]))
    assert same(found[0], found[1]) == set(found[0])


# --- the student -----------------------------------------------------------------------------------------------------


def test_the_student_is_taught_on_the_pile_alone(experiment: Experiment, taught: State) -> None:
    streams = experiment.stages(experiment.stream.task(TASK))[1].streams(taught)
    assert experiment.pile is not None
    assert [pixels(stream.images) for stream in streams.values()] == [pixels(experiment.pile)]
    labelled = pixels(experiment.stream.train) | pixels(experiment.stream.test)
    assert labelled.isdisjoint(pixels(experiment.pile))


def consolidated(experiment: Experiment, taught: State) -> State:
    stage = experiment.stages(experiment.stream.task(TASK))[1]
    state = begun(taught, stage)
    drive(experiment, state, TASK, stage)
    return state


def test_labels_of_the_pile_change_nothing(experiment: Experiment, taught: State) -> None:
    other = tiny_experiment("dmc", updates=20)
    pile = other.method.pile
    labels = torch.arange(len(pile)) % 3
    other.method.setup = replace(other.method.setup, pile=replace(pile, labels=labels, class_names=("a", "b", "c")))
    found = [snapshot(consolidated(either, taught).nets["net"]) for either in (experiment, other)]
    assert same(found[0], found[1]) == set(found[0])


def test_teachers_stay_and_the_student_takes_their_place(experiment: Experiment, taught: State) -> None:
    stage = experiment.stages(experiment.stream.task(TASK))[1]
    state = begun(taught, stage)
    teachers, student = {name: state.nets[name] for name in ("net", "expert")}, state.nets["student"]
    start = snapshot(student)
    losses = drive(experiment, state, TASK, stage)
    for name, teacher in teachers.items():
        assert same(snapshot(taught.nets[name]), snapshot(teacher)) == set(teacher.state_dict())
    assert state.nets == {"net": student}
    trained = {name for name, _ in student.named_parameters()}
    assert trained.isdisjoint(same(start, snapshot(student)))
    assert losses[-1]["consolidate"] < 0.8 * losses[0]["consolidate"]


def test_the_student_starts_fresh(experiment: Experiment, taught: State) -> None:
    task = experiment.stream.task(TASK)
    begin, other = experiment.stages(task)[1], copy.deepcopy(taught)
    for net in other.nets.values():
        for parameter in net.parameters():
            parameter.data += 1
    fresh = [snapshot(begun(state, begin).nets["student"]) for state in (taught, other)]
    assert same(fresh[0], fresh[1]) == set(fresh[0])
    expert = snapshot(experiment.method.new_network(task, "expert", 2))
    weights = [name for name in fresh[0] if "conv" in name and "weight" in name]
    assert weights
    assert not any(torch.equal(fresh[0][name], expert[name]) for name in weights), "nor as its expert did"


def test_its_loss_is_the_equation(experiment: Experiment, taught: State) -> None:
    stage = experiment.stages(experiment.stream.task(TASK))[1]
    state = begun(taught, stage)
    batch, total = batch_of(stage, state, TASK), 0.0
    for net in state.nets.values():
        net.eval()
    with torch.no_grad():
        found = stage.losses(state, batch)
        images = batch["pile"].images
        rows = {name: network(state, name)(images).double().tolist() for name in state.nets}
    for old, new, scores in zip(rows["net"], rows["expert"], rows["student"], strict=True):
        targets = [s - sum(side) / len(side) for side in (old, new) for s in side]
        total += sum((s - t) ** 2 for s, t in zip(scores, targets, strict=True))
    assert {name: float(loss) for name, loss in found.items()} == {
        "consolidate": pytest.approx(total / (len(images) * 4), rel=1e-4)
    }


class Planted(nn.Module):
    """A teacher that answers by an image's mean colour, and adds a number of its own to all it says."""

    def __init__(self, classes: int, seed: int) -> None:
        super().__init__()
        self.register_buffer("w", 2 * torch.randn(classes, 3, generator=torch.Generator().manual_seed(seed)))

    def forward(self, images: Tensor) -> Tensor:
        colour = images.mean((2, 3))
        return colour @ cast(Tensor, self.w).T + 7 + colour.sum(1, keepdim=True)


def test_planted_answers_are_recovered_on_the_pile(experiment: Experiment, taught: State) -> None:
    long = tiny_experiment("dmc", updates=300, batch_size=16)
    state = State(taught.memory, taught.device, {"net": Planted(2, 1), "expert": Planted(2, 2)})
    teachers = list(state.nets.values())
    stage = long.stages(long.stream.task(TASK))[1]
    state = begun(state, stage)
    drive(long, state, TASK, stage)
    images = long.method.setup.prepare(long.method.pile.pixels.fetch(torch.arange(60)))
    with torch.no_grad():
        targets = torch.cat([s - s.mean(1, keepdim=True) for s in (teacher(images) for teacher in teachers)], dim=1)
        scores = network(state).eval()(images)
    assert float((scores - targets).square().mean() / targets.square().mean()) < 0.1
    assert float((scores.argmax(1) == targets.argmax(1)).float().mean()) > 0.9


# --- recipe, run, lessons --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("updates", "epochs", "steps"), [(6250, 50, 125), (4, 4, 1), (120, 50, 3)])
def test_updates_are_counted(updates: int, epochs: int, steps: int) -> None:
    experiment = tiny_experiment("dmc", updates=updates)
    stage = experiment.stages(experiment.stream.task(TASK))[1]
    assert (stage.epochs, stage.steps) == (epochs, steps)


def test_the_recipe_is_the_ports() -> None:
    settings, method = DMCSettings(), cast(DMC, tiny_experiment("dmc").method)
    rates = [settings.lr * method.schedule(epoch, settings.epochs) for epoch in range(200)]
    assert rates == pytest.approx([0.1] * 140 + [0.01] * 40 + [0.001] * 20)
    assert settings.sgd() == SGD(lr=0.1, momentum=0.9, weight_decay=1e-4)
    stage = tiny_experiment("dmc", updates=50, lr=0.1, student_lr=0.3).plan()[1].stages[1]
    rates = [stage.optimizer.lr * stage.schedule(epoch, 50) for epoch in range(50)]
    assert rates == pytest.approx([0.3] * 35 + [0.03] * 10 + [0.003] * 5)


def test_it_keeps_what_finetuning_loses(tmp_path: Path) -> None:
    result = real_training("dmc", tmp_path / "run", updates=200)
    assert result["last_cnn"] > 57
    assert min(result["tasks"][1]["cnn"][part] for part in ("old", "new")) > 50


def test_nothing_is_added_to_network_and_head(tmp_path: Path) -> None:
    sizes = []
    for method in ("dmc", "finetune"):
        experiment = tiny_experiment(method, {"tasks": 2}, base_epochs=1, epochs=1)
        result = experiment.start(tmp_path / method, Watch())
        sizes.append((result["parameters"], result["head_parameters"]))
        assert result["parameters"] == experiment.parameters()[0]
    assert sizes[0] == sizes[1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return tiny_experiment("dmc").start(tmp_path_factory.mktemp("dmc") / "run", Watch())


@pytest.mark.parametrize("place", [(1, "expert"), (1, "consolidate"), (2, "consolidate")])
def test_stopped_in_any_stage_it_ends_the_same(whole: dict[str, Any], tmp_path: Path, place: tuple[int, str]) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        tiny_experiment("dmc").start(folder, StopIn(*place))
    stopped = tiny_experiment("dmc")
    known = stopped.classifier(RunFolder.open(folder)).class_names
    assert known == stopped.stream.train.class_names[: 2 * place[0]], "what it exports meanwhile knows the old classes"
    result = stopped.resume(RunFolder.open(folder), Watch())
    assert without_times(result) == without_times(whole)


def test_it_needs_no_memory(tmp_path: Path) -> None:
    result = tiny_experiment("dmc", {"memory": 0, "tasks": 2}).start(tmp_path / "run", Watch())
    assert [(row["exemplars"], row["nme"]) for row in result["tasks"]] == [(0, None), (0, None)]


def test_in_lessons_it_needs_unlabelled_images_and_no_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    a, b = write_classes(tmp_path / "a", range(2), 6), write_classes(tmp_path / "b", range(1, 4), 6, first=6)
    learner = tiny_learner(method="dmc", memory=0)
    with pytest.raises(UserError, match="--method dmc needs unlabelled images: give --unlabeled FOLDER"):
        learner.learn(a, **TINY_LESSON)
    learner.learn(a, write_pile(tmp_path / "pile", 20), **TINY_LESSON)
    with caplog.at_level(logging.INFO, logger="daydream"):
        record = learner.learn(b, **TINY_LESSON)
    assert "dmc leaves out 5 images of classes it knows: its expert is of new ones" in caplog.messages
    assert (record.new, record.again, len(learner.taught.state.memory)) == (2, 1, 0)
    assert set(learner.taught.state.nets) == {"net"}
    learner.save(tmp_path / "model.daydream")
    assert len(type(learner).load(tmp_path / "model.daydream", device="cpu").classes) == 4


def test_where_a_memory_is_needed_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--memory 0: --method ucir keeps exemplars and needs a memory"):
        tiny_learner(method="ucir", memory=0).learn(write_classes(tmp_path / "a", range(2), 6), **TINY_LESSON)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"blend": 0.5}, "method 'dmc' carries no parts, so there is no --blend for it"),
        ({"rotations": "base"}, "method 'dmc' carries no parts, so there is no --rotations for it"),
        ({"erase": 0.5}, "method 'dmc' carries no parts, so there is no --erase for it"),
        ({"augment": "strong"}, "method 'dmc' carries no parts, so there is no --augment for it"),
    ],
)
def test_parts_are_refused(part: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        tiny_experiment("dmc", parts=part)


def test_imagination_is_refused() -> None:
    with pytest.raises(UserError, match="--imagine does not fit method 'dmc': it replays no exemplars"):
        make_config({**TINY_RUN, "method": "dmc"}, {}, TINY_RECIPE, {"imagine": True})


def test_the_pile_is_its_own_setting_and_is_needed(tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "images", range(4), 8)
    run = {**TINY_RUN, "method": "dmc", "data": "folder", "root": str(folder), "steps": 1}
    data, recipe = {"image_size": 16}, {**TINY_RECIPE, "updates": 4}
    with pytest.raises(UserError, match="data set 'folder' has no unlabelled images of its own: say where they are"):
        Experiment(make_config(run, data, recipe))
    pile = write_pile(tmp_path / "pile", 20)
    config = make_config(run, data, recipe, None, {"unlabeled": f"folder:{pile.parent}"})
    assert config.carried.needs_pile
    assert config.carried.without_effect() == []
    assert len(Experiment(config).method.pile) >= 20


@pytest.mark.parametrize("name", ["updates", "student_lr"])
def test_settings_out_of_range_are_named(name: str) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} 0 must be"):
        DMCSettings(**{name: 0})
