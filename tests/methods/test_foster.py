"""FOSTER on tiny trainings: what stands beside what, its terms, and that one network is left."""

import math
from pathlib import Path

import pytest
import torch
from own_images import tiny_learner, write_classes
from stages_driven import batch_of, begun, drive, same, snapshot
from tiny_runs import StopIn, Watch, real_training, tiny_experiment, without_times

from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.experiment.experiment import Experiment
from daydream.learner.settings import LessonSettings
from daydream.methods.foster import pair
from daydream.methods.method import network
from daydream.nets.heads import LinearHead
from daydream.protocol.inference import over_images
from daydream.protocol.stream import Task
from daydream.stages.losses import class_weights
from daydream.stages.stage import Stage, State
from daydream.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

METHOD = "foster"
OLD, NEW, WIDTH, BODY = 4, 2, 64, 148_624
"""Classes in the second increment of the tiny run; width and parameters of its backbone."""


@pytest.fixture(scope="module")
def boosted(experiment: Experiment, known: State, stages: list[Stage]) -> State:
    """The state when compression begins; to be copied, not changed."""
    state = begun(known, stages[0])
    drive(experiment, state, 2, stages[0])
    return begun(state, stages[1])


def test_the_second_starts_as_the_old_one_and_the_head_with_the_old_head(known: State, stages: list[Stage]) -> None:
    before = snapshot(network(known))
    state = begun(known, stages[0])
    ours, old = snapshot(network(state)), snapshot(network(state, "past.0"))
    assert same(before, old) == set(before)
    assert all(torch.equal(before[name], ours[name]) for name in before if not name.startswith("head."))
    for block in range(2):
        assert torch.equal(ours[f"head.weights.{block}"][..., :WIDTH], before[f"head.weights.{block}"])
        assert torch.equal(ours[f"head.biases.{block}"], before[f"head.biases.{block}"])
    assert [ours[f"head.weights.{i}"].shape for i in range(3)] == [(2, 1, 2 * WIDTH)] * 3


def test_terms_of_boosting(known: State, stages: list[Stage]) -> None:
    state = begun(known, stages[0])
    batch = batch_of(stages[0], state, 2)
    head = network(state).head
    assert isinstance(head, LinearHead)
    with torch.no_grad():
        for bias in head.biases:
            bias.add_(torch.randn(bias.shape))
        terms = stages[0].losses(state, batch)
        images = torch.cat([batch["new"].images, batch["old"].images])
        z_old, z = (network(state, name).features(images).double() for name in ("past.0", "net"))
        old_scores = network(state, "past.0")(images).double().tolist()
        weights, biases = head.weight()[:, 0].double(), torch.cat(list(head.biases)).double()
        own = state.tensors["own weight"].double()
    labels = torch.cat([batch["new"].labels, batch["old"].labels]).tolist()
    balance = class_weights(torch.tensor([3] * OLD + [12] * NEW), 0.94).double().tolist()
    assert state.tensors["class weights"].tolist() == pytest.approx(balance)
    assert balance[0] > 1.5 * balance[-1]
    ce = enhanced = distilled = 0.0
    for row, y in enumerate(labels):
        scores = (weights @ torch.cat([z_old[row], z[row]]) + biases).tolist()
        aligned = [s / w for s, w in zip(scores, balance, strict=True)]
        ce -= math.log(math.exp(aligned[y]) / sum(map(math.exp, aligned)))
        alone = (own @ z[row]).tolist()
        enhanced -= math.log(math.exp(alone[y]) / sum(map(math.exp, alone)))
        q = [math.exp(s / 2) / sum(math.exp(o / 2) for o in old_scores[row]) for s in old_scores[row]]
        p = [math.exp(s / 2) / sum(math.exp(o / 2) for o in scores[:OLD]) for s in scores[:OLD]]
        distilled -= sum(a * math.log(b) for a, b in zip(q, p, strict=True))
    assert {name: float(value) for name, value in terms.items()} == pytest.approx(
        {"ce": ce / len(labels), "own": enhanced / len(labels), "distill": distilled / len(labels)}, rel=1e-4
    )


def test_the_old_network_stays_as_it_is_and_the_other_trains_whole(
    experiment: Experiment, known: State, stages: list[Stage]
) -> None:
    state = begun(known, stages[0])
    before, old = snapshot(network(state)), snapshot(network(state, "past.0"))
    drive(experiment, state, 2, stages[0])
    assert same(before, snapshot(network(state))) == set()
    assert same(old, snapshot(network(state, "past.0"))) == set(old)
    assert set(state.tensors) == {"class weights"}


def test_compression_begins_at_the_old_network_and_leaves_its_teachers_alone(
    experiment: Experiment, known: State, boosted: State, stages: list[Stage]
) -> None:
    state = begun(known, stages[0])
    drive(experiment, state, 2, stages[0])
    state = begun(state, stages[1])
    before = snapshot(network(known))
    student = snapshot(network(state))
    assert all(torch.equal(before[name], student[name]) for name in before)
    assert student["head.weights.2"].shape == (NEW, 1, WIDTH)
    teachers = {name: snapshot(network(state, name)) for name in ("old", "boosted")}
    drive(experiment, state, 2, stages[1])
    for name, weights in teachers.items():
        assert same(weights, snapshot(network(state, name))) == set(weights)
    assert same(student, snapshot(network(state))) == set()
    balance = class_weights(torch.tensor([3] * OLD + [12] * NEW), 0.97)
    assert torch.equal(state.tensors["class weights"], balance)


def test_compression_falls_towards_the_pair(experiment: Experiment, boosted: State, task: Task) -> None:
    stage = tiny_experiment("foster", compression_epochs=16, lr=0.1).stages(task)[1]
    losses = drive(experiment, begun(boosted_again(boosted), stage), 2, stage)
    assert [list(epoch) for epoch in losses] == [["compress"]] * 16
    state = boosted
    with torch.no_grad():
        batch = batch_of(stage, state, 2)
        taught = pair(state)(torch.cat([batch["new"].images, batch["old"].images])).double()
    q = (taught / 2).softmax(1) * state.tensors["class weights"]
    q = q / q.sum(1, keepdim=True)
    least = float(-(q * q.log()).sum(1).mean())  # no student can get below its teachers' own entropy
    excess = [epoch["compress"] - least for epoch in losses]
    assert excess[-1] < 0.8 * excess[0]


def boosted_again(state: State) -> State:
    """Return a state as it was before compression began."""
    nets = {"past.0": state.nets["old"], "net": state.nets["boosted"]}
    return State(state.memory, state.device, nets, dict(state.tensors))


def test_exemplars_are_herded_by_the_pair_and_one_network_is_left(
    experiment: Experiment, boosted: State, stages: list[Stage], task: Task
) -> None:
    prepare = experiment.method.setup.prepare
    features, *_ = over_images(lambda x: (pair(boosted).features(x),), task.train, prepare)
    expected = boosted.memory.updated(task.train, features, task.num_seen)
    state = begun(boosted, stages[2])
    assert features.shape == (len(task.train), 2 * WIDTH)
    assert torch.equal(state.memory.images, expected.images)
    assert set(state.nets) == {"net"}
    assert not state.tensors


def test_learning_rates(experiment: Experiment, stages: list[Stage]) -> None:
    boost, compress = stages[0], stages[1]
    assert [boost.schedule(e, 170) for e in (0, 85)] == pytest.approx([1, 0.5])
    assert [compress.schedule(e, 130) for e in (0, 65)] == pytest.approx([1, 0.5])
    assert (boost.optimizer.weight_decay, compress.optimizer.weight_decay) == (5e-4, 0.0)
    assert (boost.clamp, compress.clamp) == (None, None)


def test_parameters_do_not_grow(unbroken: RunFolder) -> None:
    result = unbroken.result
    assert result is not None
    assert [row["parameters"] for row in result["tasks"]] == [BODY] * 3
    assert result["parameters"] == result["mean_parameters"] == BODY
    assert tiny_experiment("foster").parameters() == (BODY, result["head_parameters"])


@pytest.mark.parametrize("place", [(0, "train"), (1, "boost"), (1, "compress"), (2, "boost"), (2, "compress")])
def test_it_resumes_in_each_stage(place: tuple[int, str], tmp_path: Path, unbroken: RunFolder) -> None:
    with pytest.raises(Interrupted):
        tiny_experiment("foster").start(tmp_path / "run", StopIn(*place))
    result = tiny_experiment("foster").resume(RunFolder.open(tmp_path / "run"), Watch())
    assert without_times(result) == without_times(unbroken.result)


def test_it_keeps_what_finetuning_loses(tmp_path: Path) -> None:
    result = real_training("foster", tmp_path / "run", lr=0.2, compression_epochs=12)
    assert result["last_cnn"] > 65  # fine-tuning cannot pass 50
    assert result["tasks"][1]["cnn"]["old"] > 50


def test_blank_squares_are_in_both_trainings(known: State, task: Task) -> None:
    stages = tiny_experiment("foster", parts={"erase": 0.5}).stages(task)
    state = begun(known, stages[0])
    assert "blank" in batch_of(stages[0], state, 2)["new"].fields
    assert "blank" in batch_of(stages[1], begun(state, stages[1]), 2)["old"].fields


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("distillation", -1.0),
        ("temperature", 0.0),
        ("compression_epochs", 0),
        ("beta", 1.0),
        ("compression_beta", -0.1),
    ],
)
def test_settings_out_of_range(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} {value} must "):
        tiny_experiment("foster", **{name: value})


def test_in_a_lesson_compression_is_as_long_beside_boosting_as_in_the_paper(tmp_path: Path) -> None:
    learner = tiny_learner(method="foster")
    folder = write_classes(tmp_path / "a", range(2), 6)
    ready, _ = learner.prepare(folder, None, None, LessonSettings(epochs=17, batch_size=8))
    assert ready.method.settings.compression_epochs == 13


def test_boosting_falls_and_without_its_distillation_the_weights_come_out_otherwise(known: State, task: Task) -> None:
    """Off, its term is nothing, and only that term: the others start where they start with it."""

    def boost(**settings: float) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
        ours = tiny_experiment("foster", epochs=6, **settings)
        stage = ours.stages(task)[0]
        state = begun(known, stage)
        losses = drive(ours, state, 2, stage)
        return losses, snapshot(network(state))

    (on, weights), (off, without) = boost(), boost(distillation=0.0)
    for name in ("ce", "own", "distill"):
        assert on[-1][name] < on[0][name]
    assert {epoch["distill"] for epoch in off} == {0.0}
    trained = {name for name in weights if "running" not in name and "num_batches" not in name}
    assert not same(weights, without) & trained


@pytest.mark.parametrize("beta", ["beta", "compression_beta"])
def test_without_a_beta_all_classes_weigh_alike(known: State, boosted: State, task: Task, beta: str) -> None:
    stage = tiny_experiment("foster", **{beta: 0.0}).stages(task)[0 if beta == "beta" else 1]
    state = begun(known if beta == "beta" else boosted_again(boosted), stage)
    assert state.tensors["class weights"].unique().numel() == 1


@pytest.mark.parametrize("part", [{"blend": 0.5}, {"rotations": "all"}, {"rotations": "base"}])
def test_parts_that_do_not_fit_say_why(part: dict[str, object]) -> None:
    with pytest.raises(UserError, match="does not fit method 'foster': "):
        tiny_experiment("foster", parts=part)
