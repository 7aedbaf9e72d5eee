"""UCIR on tiny trainings: its terms, what trains when, and that it carries on after a stop."""

import math
from pathlib import Path

import pytest
import torch
from stages_driven import after_task, batch_of, begun, drive, same, snapshot, stirred
from tiny_runs import StopIn, Watch, tiny_experiment, without_times

from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.experiment.experiment import Experiment
from daydream.methods.method import network
from daydream.stages.stage import State
from daydream.storage.run_folder import RunFolder

OLD, NEW = 4, 2
"""Classes in the second increment of the tiny run."""


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return tiny_experiment("ucir", finetune_epochs=2)


@pytest.fixture(scope="module")
def known(experiment: Experiment) -> State:
    """The state when the second increment begins; to be copied, not changed."""
    return after_task(experiment, after_task(experiment, experiment.fresh_state(), 0), 1)


def test_terms_of_an_increment(experiment: Experiment, known: State) -> None:
    train, *_ = experiment.stages(experiment.stream.task(2))
    state = stirred(begun(known, train))
    batch = batch_of(train, state, 2)
    with torch.no_grad():
        terms = train.losses(state, batch)
        images = torch.cat([batch["new"].images, batch["old"].images])
        z, z_old = (network(state, name).features(images).double() for name in ("net", "old"))
    labels = torch.cat([batch["new"].labels, batch["old"].labels]).tolist()
    head = network(state).head
    weights, sigma = head.weight()[:, 0].detach().double(), head.shared()[0].item()
    ce, drift, short = 0.0, 0.0, []
    for f, f_old, y in zip(z, z_old, labels, strict=True):
        s = [float(f @ w / (f.norm() * w.norm())) for w in weights]
        ce -= math.log(math.exp(sigma * s[y]) / sum(math.exp(sigma * v) for v in s))
        drift += 1 - float(f @ f_old / (f.norm() * f_old.norm()))
        if y < OLD:
            short += [max(0.0, 0.5 - s[y] + v) for v in s[OLD:]]
    assert list(terms) == ["ce", "less_forget", "margin"]
    assert drift > 0.01
    assert len(short) == 2 * len(batch["old"].labels)
    assert float(terms["ce"]) == pytest.approx(ce / len(labels), rel=1e-4)
    assert float(terms["less_forget"]) == pytest.approx(5 * math.sqrt(OLD / NEW) * drift / len(labels), rel=1e-3)
    assert float(terms["margin"]) == pytest.approx(sum(short) / len(short), rel=1e-4)


def test_new_weights_are_imprinted_by_the_old_network(experiment: Experiment, known: State) -> None:
    task = experiment.stream.task(2)
    features = torch.nn.functional.normalize(experiment.method.features(known, task.train), dim=1)
    old = network(known).head.weight()[:, 0]
    state = begun(known, experiment.stages(task)[0])
    for c in range(OLD, OLD + NEW):
        mean = features[task.train.labels == c].mean(0)
        expected = mean / mean.norm() * old.norm(dim=1).mean()
        torch.testing.assert_close(network(state).head.weight()[c, 0], expected)


def test_old_class_weights_are_frozen_in_training(experiment: Experiment, known: State) -> None:
    train, *_ = experiment.stages(experiment.stream.task(2))
    state = begun(known, train)
    before, old = snapshot(network(state)), snapshot(network(state, "old"))
    drive(experiment, state, 2, train)
    after = snapshot(network(state))
    assert same(before, after) == {"head.weights.0", "head.weights.1"}
    assert same(old, snapshot(network(state, "old"))) == set(old)


def test_only_class_weights_change_in_the_balanced_finetuning(experiment: Experiment, known: State) -> None:
    train, select, finetune = experiment.stages(experiment.stream.task(2))
    state = begun(known, train)
    drive(experiment, state, 2, select)
    counts = torch.bincount(state.memory.labels)
    assert counts.tolist() == [2] * (OLD + NEW)
    before, images = snapshot(network(state)), state.memory.images.clone()
    losses = drive(experiment, state, 2, finetune)
    after = snapshot(network(state))
    assert same(before, after) == before.keys() - {"head.weights.0", "head.weights.1", "head.weights.2"}
    assert torch.equal(images, state.memory.images)
    assert list(losses[0]) == ["ce", "less_forget", "margin"]
    assert finetune.exemplars is None


def test_the_balanced_finetuning_is_off_by_default() -> None:
    plan = tiny_experiment("ucir").plan()
    assert [[stage.name for stage in row.stages] for row in plan] == [["train", "select"]] * 3


def test_learning_rates(experiment: Experiment) -> None:
    base, increment, finetune = (
        experiment.stages(experiment.stream.task(task))[place] for task, place in ((0, 0), (1, 0), (1, 2))
    )
    for stage in (base, increment):
        assert [stage.schedule(e, 160) for e in (0, 79, 80, 119, 120)] == pytest.approx([1, 1, 0.1, 0.1, 0.01])
        assert stage.schedule(0, 1) == 1
        assert stage.clamp is None
    assert [finetune.schedule(e, 20) for e in (0, 9, 10, 19)] == pytest.approx([1, 1, 0.1, 0.1])
    assert finetune.optimizer.lr == 0.01


@pytest.mark.parametrize("place", [(0, "train"), (1, "train"), (1, "finetune")])
def test_it_resumes_in_each_stage(
    place: tuple[int, str], tmp_path: Path, experiment: Experiment, unbroken: dict[str, object]
) -> None:
    with pytest.raises(Interrupted):
        experiment.start(tmp_path / "run", StopIn(*place))
    result = experiment.resume(RunFolder.open(tmp_path / "run"), Watch())
    assert without_times(result) == without_times(unbroken)


@pytest.fixture(scope="module")
def unbroken(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return experiment.start(tmp_path_factory.mktemp("ucir") / "run", Watch())


def test_it_reports_cnn_and_counts_a_scale(unbroken: dict[str, object]) -> None:
    assert unbroken["reports"] == "cnn"
    assert unbroken["forgetting"] == unbroken["forgetting_cnn"]
    assert unbroken["parameters"] == 148_624
    assert unbroken["head_parameters"] == 6 * 64 + 1


def test_it_imagines(tmp_path: Path) -> None:
    run = tiny_experiment("ucir", imagination={"imagine": True}, finetune_epochs=1)
    run.start(tmp_path / "run", Watch())
    rows = [row for row in RunFolder(tmp_path / "run").metrics() if row["kind"] == "epoch"]
    terms = {(row["task"], row["stage"]): list(row["losses"]) for row in rows}
    own = ["ce", "less_forget", "margin"]
    assert terms[0, "train"] == ["ce"]
    assert terms[1, "train"] == terms[2, "train"] == [*own, "imagined", "pile_distill"]
    assert terms[1, "finetune"] == own
    assert {(0, "imagine"), (1, "imagine")} <= terms.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [("less_forget", -1.0), ("margin", -0.1), ("finetune_epochs", -1)],
)
def test_settings_out_of_range(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} {value} must "):
        tiny_experiment("ucir", **{name: value})
