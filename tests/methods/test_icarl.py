"""iCaRL: its losses by hand, its recipe, its parameters."""

import math
from pathlib import Path

import pytest
import torch
from tiny_runs import Watch, real_training, tiny_experiment

from daydream.methods.icarl import ICaRL, ICaRLSettings
from daydream.methods.method import network
from daydream.stages.stage import SGD, Batch, Samples, Stage, State

CLASSES = 6  # of the tiny stream, of which two are base classes and two arrive at a time


def sigmoid(score: float) -> float:
    return 1 / (1 + math.exp(-score))


def samples(labels: list[int], seed: int) -> Samples:
    images = torch.randn(len(labels), 3, 16, 16, generator=torch.Generator().manual_seed(seed))
    return Samples(images, torch.tensor(labels), torch.arange(len(labels)), {})


def begun(tasks: int) -> tuple[State, Stage]:
    """Return the state in which the training of the last of some tasks stands before its first step."""
    experiment = tiny_experiment("icarl")
    state = experiment.fresh_state()
    for index in range(tasks):
        stage = experiment.stages(experiment.stream.task(index))[0]
        assert stage.begin is not None
        stage.begin(state)
    for net in state.nets.values():
        net.eval()
    return state, stage


def test_the_base_loss_is_over_all_classes_of_the_stream() -> None:
    state, stage = begun(tasks=1)
    new = samples([0, 1, 1], seed=1)
    total = 0.0
    for row, label in zip(network(state)(new.images).tolist(), new.labels.tolist(), strict=True):
        total -= sum(math.log(sigmoid(s) if c == label else 1 - sigmoid(s)) for c, s in enumerate(row))
    losses = stage.losses(state, Batch({"new": new}, {}))
    assert {name: loss.item() for name, loss in losses.items()} == {"bce": pytest.approx(total / (3 * CLASSES))}


def test_in_an_increment_old_classes_are_learnt_from_the_old_network_alone() -> None:
    state, stage = begun(tasks=2)
    with torch.no_grad():
        for parameter in network(state).parameters():
            parameter.mul_(1.1)  # so that old and new network differ
    new, old = samples([2, 3, 3], seed=1), samples([1, 0], seed=2)
    images = torch.cat([new.images, old.images])
    taught = network(state, "old")(images).tolist()
    total = 0.0
    for row, teacher, label in zip(network(state)(images).tolist(), taught, [2, 3, 3, 1, 0], strict=True):
        for c, s in enumerate(row):
            target = sigmoid(teacher[c]) if c < 2 else float(c == label)
            total -= target * math.log(sigmoid(s)) + (1 - target) * math.log(1 - sigmoid(s))
    losses = stage.losses(state, Batch({"new": new, "old": old}, {}))
    assert {name: loss.item() for name, loss in losses.items()} == {
        "bce": pytest.approx(total / (5 * CLASSES), rel=1e-4)
    }
    exemplar_of_another_class = Batch({"new": new, "old": samples([0, 1], seed=2)}, {})
    assert stage.losses(state, exemplar_of_another_class)["bce"].item() == losses["bce"].item()


def test_it_keeps_what_finetuning_loses(tmp_path: Path) -> None:
    result = real_training("icarl", tmp_path / "run", lr=0.5)
    assert result["last_nme"] > 65
    assert min(result["tasks"][1]["nme"][part] for part in ("old", "new")) > 50


def test_the_recipe_is_the_papers() -> None:
    settings = ICaRLSettings()
    method = ICaRL(settings, tiny_experiment("icarl").method.setup)
    rates = [settings.lr * method.schedule(epoch, settings.epochs) for epoch in range(70)]
    assert rates == pytest.approx([2.0] * 49 + [0.4] * 14 + [0.08] * 7)
    assert (settings.base_epochs, settings.batch_size) == (70, 128)
    assert method.schedule(0, 1) == 1.0
    assert settings.sgd() == SGD(lr=2.0, momentum=0.9, weight_decay=2e-5)


def test_its_classification_loss_is_the_one_it_trains_by() -> None:
    state, _ = begun(tasks=2)
    z, labels = torch.randn(3, 64), torch.tensor([0, 2, 3])
    total = 0.0
    for row, label in zip(network(state).head(z).tolist(), labels.tolist(), strict=True):
        total -= sum(math.log(sigmoid(s) if c == label else 1 - sigmoid(s)) for c, s in enumerate(row))
    method = tiny_experiment("icarl").method
    assert method.classification(state, z, labels).item() == pytest.approx(total / (3 * 4), rel=1e-5)


def test_nothing_is_added_to_network_and_head(tmp_path: Path) -> None:
    experiment = tiny_experiment("icarl", {"tasks": 2}, base_epochs=1, epochs=1)
    planned = experiment.parameters()
    result = experiment.start(tmp_path / "run", Watch())
    assert result["reports"] == "nme"
    assert result["parameters"] == planned[0]
    assert result["head_parameters"] == 4 * (64 + 1)


def test_a_base_task_is_shared_only_among_streams_of_as_many_classes() -> None:
    stage = tiny_experiment("icarl").plan()[0].stages[0]
    assert stage.shared_as is not None
    assert f"mean over {CLASSES} classes" in stage.shared_as["recipe"]
