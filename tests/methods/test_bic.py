"""BiC: what it holds out, its two stages against their equations, and that the corrected network is what remains."""

import math
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from stages_driven import Notes
from tiny_runs import StopIn, Watch, real_training, tiny_experiment, without_times
from torch import Tensor

from daydream.data.images import ImageSet
from daydream.engine import Engine, Interrupted
from daydream.errors import UserError
from daydream.experiment.experiment import Experiment
from daydream.export.classifier import load_exported
from daydream.methods.bic import BiC, BiCSettings
from daydream.methods.method import network
from daydream.nets.resnet import parameter_count
from daydream.protocol.inference import over_images
from daydream.protocol.memory import Budget
from daydream.protocol.stream import Stream
from daydream.stages.stage import SGD, Batch, Samples, State
from daydream.storage.run_folder import RunFolder


def bic(budget: Budget) -> BiC:
    return BiC(BiCSettings(), replace(tiny_experiment("bic").method.setup, budget=budget))


def trained(experiment: Experiment, stages: int) -> State:
    """Return the state after the base task and so many stages of the first increment."""
    state, engine = experiment.fresh_state(), Engine(experiment.hardware, seed=1)
    plans = [experiment.stages(experiment.stream.task(index)) for index in (0, 1)]
    for place, stage in enumerate([*plans[0], *plans[1][:stages]]):
        engine.run(stage, state, (place,), Notes())
    return state


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("bic") / "run"
    tiny_experiment("bic").start(folder, Watch())
    return RunFolder(folder)


# --- what is held out ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("quota", "expected"), [(2, [1]), (5, [1]), (10, [1]), (20, [1, 11]), (40, [1, 11, 21, 31])])
def test_a_tenth_of_the_exemplars_is_held_out_spread_over_the_ranks(quota: int, expected: list[int]) -> None:
    method = bic(Budget("per_class", quota))
    assert method.held_ranks(num_old=3).tolist() == expected
    assert method.trains_on(quota) == quota - len(expected)


def test_an_exemplar_stays_on_its_side_when_the_memory_shrinks() -> None:
    method = bic(Budget("total", 120))
    for few, more in ((6, 3), (10, 6), (40, 10)):
        out = method.held_ranks(more)
        assert method.held_ranks(few).tolist() == out[out < method.setup.budget.quota(few)].tolist()


def test_as_many_new_images_are_held_out_of_each_class() -> None:
    experiment = tiny_experiment("bic")
    method, task = cast(BiC, experiment.method), experiment.stream.task(1)
    kept, out = method.split(task, 3)
    assert kept.counts().tolist() == [0, 0, 9, 9, 0, 0]
    assert out.counts().tolist() == [0, 0, 3, 3, 0, 0]
    assert pixels(kept).isdisjoint(pixels(out))
    assert pixels(kept) | pixels(out) == pixels(task.train)
    assert pixels(out) == pixels(method.split(task, 3)[1])


def pixels(images: ImageSet) -> set[bytes]:
    return {image.numpy().tobytes() for image in images.pixels.fetch(torch.arange(len(images)))}


def test_no_held_out_image_is_trained_on() -> None:
    experiment = tiny_experiment("bic", base_epochs=1)
    state = trained(experiment, stages=0)
    task = experiment.stream.task(1)
    method = cast(BiC, experiment.method)
    ranks = method.held_ranks(task.num_old)
    held_out = pixels(state.memory.as_set(task.train.class_names, ranks)) | pixels(method.split(task, len(ranks))[1])
    streams = experiment.stages(task)[0].streams(state)
    assert len(held_out) == 4
    assert all(held_out.isdisjoint(pixels(stream.images)) for stream in streams.values())
    assert len(streams["new"].images) + len(streams["old"].images) + 4 == len(task.train) + len(state.memory)


def test_images_that_joined_the_memory_are_trained_on() -> None:
    """Of a lesson that brings known classes again: they have ranks beyond what the memory keeps of a class."""
    experiment = tiny_experiment("bic", base_epochs=1)
    state, task = trained(experiment, stages=0), experiment.stream.task(1)
    more = experiment.stream.task(0).train.select(torch.arange(5))
    before = len(experiment.stages(task)[0].streams(state)["old"].images)
    state.memory = state.memory.joined(more)
    assert len(experiment.stages(task)[0].streams(state)["old"].images) == before + len(more)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (
            {"memory": 6},
            "--memory 6 with --budget total leaves 1 exemplar per class once 4 classes are seen; bic needs 2",
        ),
        ({"memory": 1, "budget": "per_class"}, "leaves 1 exemplar per class once 2 classes are seen; bic needs 2"),
    ],
)
def test_a_single_exemplar_cannot_be_split(run: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        tiny_experiment("bic", run)


def test_a_class_too_small_to_hold_out_is_named() -> None:
    stream = tiny_experiment("bic").stream
    few = torch.cat([torch.arange(12 * 3), torch.arange(12 * 3, 12 * 3 + 1), torch.arange(12 * 4, 12 * 6)])
    train = stream.train.select(stream.train.labels.argsort(stable=True)[few])
    with pytest.raises(UserError, match=f"class '{train.class_names[3]}' has 1 training images"):
        bic(Budget("per_class", 5)).check(Stream(train, stream.test, stream.sizes))


# --- the stages ------------------------------------------------------------------------------------------------------


def softmax(row: list[float]) -> list[float]:
    total = sum(math.exp(s) for s in row)
    return [math.exp(s) / total for s in row]


def test_the_training_loss_is_the_equation() -> None:
    experiment = tiny_experiment("bic", base_epochs=1)
    state = trained(experiment, stages=0)
    stage = experiment.stages(experiment.stream.task(1))[0]
    assert stage.begin is not None
    before = [p.clone() for p in network(state).head.parameters()]
    stage.begin(state)
    assert all(torch.equal(a, b) for a, b in zip(before, network(state, "old").head.parameters(), strict=True))
    images = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([2, 3, 2, 0, 1])
    ce = distill = 0.0
    for row, old, label in zip(
        network(state)(images).tolist(), network(state, "old")(images).tolist(), labels.tolist(), strict=True
    ):
        ce -= math.log(softmax(row)[label]) / 5
        p, q = softmax([s / 2 for s in row[:2]]), softmax([s / 2 for s in old])
        distill -= sum(b * math.log(a) for a, b in zip(p, q, strict=True)) / 5
    parts = {
        name: Samples(images[rows], labels[rows], torch.arange(rows.stop - rows.start), {})
        for name, rows in (("new", slice(0, 3)), ("old", slice(3, 5)))
    }
    found = {name: loss.item() for name, loss in stage.losses(state, Batch(parts, {})).items()}
    assert found == {"ce": pytest.approx(ce / 2, rel=1e-4), "distill": pytest.approx(distill / 2, rel=1e-4)}


def correction_by_loop(scores: Tensor, labels: Tensor, num_old: int, steps: int) -> tuple[float, float]:
    """Descend with momentum 0.9 and rate 0.1 along the gradient of cross-entropy + 0.1 beta^2 / 2, written out."""
    alpha, beta, speed = 1.0, 0.0, [0.0, 0.0]
    for _ in range(steps):
        slope = [0.0, 0.1 * beta]
        for row, label in zip(scores.double().tolist(), labels.tolist(), strict=True):
            p = softmax([s if c < num_old else alpha * s + beta for c, s in enumerate(row)])
            for c in range(num_old, len(row)):
                slope[0] += (p[c] - float(c == label)) * row[c] / len(labels)
                slope[1] += (p[c] - float(c == label)) / len(labels)
        speed = [0.9 * v + g for v, g in zip(speed, slope, strict=True)]
        alpha, beta = alpha - 0.1 * speed[0], beta - 0.1 * speed[1]
    return alpha, beta


def test_the_correction_is_learnt_on_held_out_images_and_folded_into_the_head() -> None:
    experiment = tiny_experiment("bic", base_epochs=1, epochs=3, correction_epochs=30)
    state = trained(experiment, stages=1)
    net, task, method = network(state), experiment.stream.task(1), cast(BiC, experiment.method)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    ranks = method.held_ranks(task.num_old)
    held_out = [state.memory.as_set(task.train.class_names, ranks), method.split(task, len(ranks))[1]]
    scores = torch.cat([all_scores(experiment, state, images) for images in held_out])
    alpha, beta = correction_by_loop(scores, torch.cat([images.labels for images in held_out]), 2, steps=30)
    test = experiment.stream.test_seen(1)
    plain = all_scores(experiment, state, test)

    correct = experiment.stages(task)[1]
    assert correct.steps == 1
    Engine(experiment.hardware, seed=1).run(correct, state, (1, 1), Notes())

    assert correct.report is not None
    assert correct.report(state) == {"alpha": pytest.approx(alpha, rel=1e-4), "beta": pytest.approx(beta, rel=1e-4)}
    assert abs(alpha - 1) > 0.02
    torch.testing.assert_close(
        all_scores(experiment, state, test), torch.cat([plain[:, :2], alpha * plain[:, 2:] + beta], dim=1)
    )
    changed = {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"head.weights.1", "head.biases.1"}
    assert set(state.tensors) == {"alpha", "beta"}


def all_scores(experiment: Experiment, state: State, images: ImageSet) -> Tensor:
    method = experiment.method
    return over_images(lambda x: (method.predict(state, x).scores,), images, method.setup.prepare)[0]


def test_the_recipe_is_the_papers() -> None:
    settings, method = BiCSettings(), bic(Budget("total", 20))
    rates = [settings.lr * method.schedule(epoch, settings.epochs) for epoch in range(250)]
    assert rates == pytest.approx([0.1] * 100 + [0.01] * 50 + [0.001] * 50 + [0.0001] * 50)
    assert method.schedule(0, 1) == 1.0
    assert settings.sgd() == SGD(lr=0.1, momentum=0.9, weight_decay=2e-4)


@pytest.mark.parametrize("name", ["correction_epochs"])
def test_settings_out_of_range_are_named(name: str) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} 0 must be"):
        BiCSettings(**{name: 0})


def test_it_keeps_what_finetuning_loses(tmp_path: Path) -> None:
    result = real_training("bic", tmp_path / "run", lr=0.3, correction_epochs=100)
    assert result["last_cnn"] > 60
    assert result["tasks"][1]["cnn"]["old"] > 35


# --- the run ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [(0, "train"), (1, "train"), (1, "correct"), (2, "train"), (2, "correct")])
def test_stopped_in_any_stage_it_ends_the_same(finished: RunFolder, tmp_path: Path, place: tuple[int, str]) -> None:
    with pytest.raises(Interrupted):
        tiny_experiment("bic").start(tmp_path / "run", StopIn(*place))
    stopped = RunFolder.open(tmp_path / "run")
    result = tiny_experiment("bic").resume(stopped, Watch())
    assert without_times(result) == without_times(finished.result)
    assert without_times(stopped.metrics()) == without_times(finished.metrics())


def test_every_correction_is_in_the_metrics(finished: RunFolder) -> None:
    rows = [row for row in finished.metrics() if row["kind"] == "report"]
    assert [(row["task"], row["stage"]) for row in rows] == [(1, "correct"), (2, "correct")]
    assert all(row["alpha"] != 1 and row["beta"] != 0 for row in rows)


def test_export_and_parameters_are_those_of_a_linear_head(finished: RunFolder, tmp_path: Path) -> None:
    experiment = tiny_experiment("bic")
    assert finished.result is not None
    counts = (finished.result["parameters"], finished.result["head_parameters"])
    assert counts == (experiment.parameters()[0], 6 * (64 + 1))
    classifier = experiment.classifier(finished)
    assert parameter_count(classifier.network) == sum(counts)
    classifier.write_safetensors(tmp_path / "net.safetensors")
    found = experiment.restore(finished)
    assert found is not None
    test = experiment.stream.test
    exported = load_exported(tmp_path / "net.safetensors").scores(test.pixels.fetch(torch.arange(len(test))))
    torch.testing.assert_close(exported, all_scores(experiment, found[2], test))
