"""Counterparts in the next task's batches: their weight, what they teach, and what they leave alone."""

import copy
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from imagining import SEED, drive, equal, imagining, increment, statistics
from stages_driven import snapshot
from tiny_runs import TINY_DATA, tiny_experiment
from torch import Tensor

from daydream.components import mining
from daydream.components.rotations import rotated
from daydream.engine.feed import Feed
from daydream.experiment.experiment import Experiment
from daydream.methods.method import network
from daydream.nets.generators import GeneratorBank
from daydream.stages.stage import Batch, Stage, State


def first_batch(stage: Stage, state: State) -> Batch:
    feed = Feed(stage, state, (1, 0), SEED)
    feed.load(0)
    return feed.read(torch.tensor([0]))


def imagined_loss(state: State, batch: Batch, count: int) -> Tensor:
    """Return the mean cross-entropy of counterparts, one at a time."""
    net, bank, found = network(state), state.nets["generators"], []
    assert isinstance(bank, GeneratorBank)
    for place, (image, label) in enumerate(zip(batch["old"].images, batch["old"].labels, strict=True)):
        for other in batch["pile"].images[place * count : (place + 1) * count]:
            h_m, h_u = net.lower(image[None]), net.lower(other[None])
            scores = net.head(net.upper(bank(h_m[None], h_u[None], label[None])[0]))
            found.append(F.cross_entropy(scores, label[None]))
    return torch.stack(found).mean()


@pytest.mark.parametrize(("weight", "count"), [(0.0, 2), (0.5, 1), (1.0, 2), (3.0, 3)])
def test_weights_in_the_mean_over_all_samples(experiment: Experiment, base: State, weight: float, count: int) -> None:
    state, stage, carried = increment(experiment, base, imagined_weight=weight, counterparts=count, pile_distill=0.0)
    batch = first_batch(carried, state)
    real, imagined = len(batch["new"].labels) + len(batch["old"].labels), len(batch["pile"].labels)
    assert imagined == count * len(batch["old"].labels)
    with torch.no_grad():
        without, terms = stage.losses(state, batch), carried.losses(state, batch)
        expected = imagined_loss(state, batch, count)
    whole = real + weight * imagined
    assert set(terms) == {"ce", "distill", "imagined"}
    torch.testing.assert_close(terms["ce"], without["ce"] * real / whole)
    torch.testing.assert_close(terms["imagined"], expected * weight * imagined / whole, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(terms["distill"], without["distill"])


def test_every_turn_of_an_image_counts_in_that_mean(experiment: Experiment, base: State) -> None:
    state, task = copy.deepcopy(base), experiment.stream.task(1)
    stage = rotated(experiment.method.stages(task)[0], seed=SEED, task=1)
    assert stage.begin is not None
    stage.begin(state)
    carried = imagining(experiment, imagined_weight=1.0, pile_distill=0.0).replayed(task, stage)
    batch = first_batch(carried, state)
    real, imagined = 4 * len(batch["new"].labels) + len(batch["old"].labels), len(batch["pile"].labels)
    with torch.no_grad():
        without, terms = stage.losses(state, batch), carried.losses(state, batch)
    torch.testing.assert_close(terms["ce"], without["ce"] * real / (real + imagined))


def test_counterparts_take_images_of_other_classes(experiment: Experiment, base: State) -> None:
    state, _, carried = increment(experiment, base)
    mined = len(state.tensors["pile.classes"])
    state.tensors["pile.classes"] = torch.arange(mined) * 2 // mined  # half of each class
    batch = first_batch(carried, state)
    assert (batch["pile"].labels != batch["old"].labels.repeat_interleave(2)).all()


def test_counterparts_teach_the_upper_half(experiment: Experiment, base: State) -> None:
    """And the lower half through the statistics alone, which are those of real images: not in evaluation mode."""
    state, stage, carried = increment(experiment, base)
    net = network(state)
    batch = first_batch(carried, state)
    for group in stage.trains(state):
        for tensor in group.tensors:
            tensor.requires_grad_(True)
    net.eval()
    imagined = carried.losses(state, batch)["imagined"]
    lower = torch.autograd.grad(imagined, list(net.lower.parameters()), retain_graph=True, allow_unused=True)
    assert not any(gradient is not None and gradient.any() for gradient in lower)
    upper = torch.autograd.grad(imagined, list(net.upper.parameters()))
    assert all(gradient.abs().sum() > 0 for gradient in upper)


def test_the_old_network_sees_pile_and_exemplars_in_one_pass(experiment: Experiment, base: State) -> None:
    state, _, carried = increment(experiment, base, pile_distill=1.0)
    batch = first_batch(carried, state)
    seen: list[int] = []
    network(state, "old").lower.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    carried.losses(state, batch)
    assert seen == [len(batch["old"].images) + len(batch["pile"].images)]


@pytest.mark.parametrize("pile", [0.0, 1.0])
def test_statistics_come_from_real_images_alone(experiment: Experiment, base: State, pile: float) -> None:
    task = experiment.stream.task(1)
    plain = experiment.method.stages(task)[0]
    carried = imagining(experiment, pile_labels=pile, pile_distill=pile).replayed(task, plain)
    before, after, weights = statistics(base.nets["net"]), [], []
    for stage in (plain, carried):
        state = copy.deepcopy(base)
        drive(experiment, state, 1, 0, replace(stage, epochs=1, steps=1))
        after.append(statistics(state.nets["net"]))
        weights.append(dict(state.nets["net"].named_parameters()))
    assert equal(*after)
    assert not any(torch.equal(values, before[name]) for name, values in after[0].items())
    assert not equal(*weights)  # the counterparts did teach


def test_generators_stay_as_they_are_while_the_next_task_trains(experiment: Experiment, base: State) -> None:
    state = copy.deepcopy(base)
    before = snapshot(state.nets["generators"])
    stage = experiment.stages(experiment.stream.task(1))[0]
    drive(experiment, state, 1, 0, stage)
    assert equal(before, snapshot(state.nets["generators"]))
    assert not equal(snapshot(base.nets["net"]), snapshot(state.nets["net"]))


@pytest.mark.parametrize("labels", [0.0, 0.5])
@pytest.mark.parametrize("distillation", [0.0, 2.0])
def test_terms_of_the_pile(experiment: Experiment, base: State, labels: float, distillation: float) -> None:
    state, _, carried = increment(experiment, base, pile_labels=labels, pile_distill=distillation)
    with torch.no_grad():  # the network has only now been copied: move it, or there is nothing to distill
        for parameter in network(state).upper.parameters():
            parameter.mul_(1.2)
    batch, net = first_batch(carried, state), network(state)
    with torch.no_grad():
        terms = carried.losses(state, batch)
        z, z_old = net.features(batch["pile"].images), network(state, "old").features(batch["pile"].images)
    assert {"pile_labels": labels > 0, "pile_distill": distillation > 0} == {
        name: name in terms for name in ("pile_labels", "pile_distill")
    }
    if labels:
        pile, real = len(batch["pile"].labels), len(batch["new"].labels) + len(batch["old"].labels)
        share = labels * pile / (real + pile + labels * pile)
        expected = F.cross_entropy(net.head(z), batch["pile"].labels)
        torch.testing.assert_close(terms["pile_labels"], share * expected)
    if distillation:
        apart = 1 - F.cosine_similarity(z, z_old)
        torch.testing.assert_close(terms["pile_distill"], distillation * math.sqrt(4 / 2) * apart.mean())
        assert terms["pile_distill"] > 0


def test_uniform_mining_takes_the_whole_pile(base: State) -> None:
    experiment = tiny_experiment("imagine", pile={"mining": "uniform"})
    assert experiment.carried.imagination is not None
    state = copy.deepcopy(base)
    experiment.carried.imagination.mine(state, at_least=10)
    assert sorted(state.tensors["pile.index"].tolist()) == list(range(TINY_DATA["pile_size"]))
    assert (state.tensors["pile.classes"].diff() >= 0).all()
    mined = experiment.carried.imagination.mined(state)
    scores = experiment.method.predict(state, experiment.method.setup.prepare(mined.pixels.fetch(torch.arange(60))))
    assert torch.equal(scores.scores.argmax(1), mined.labels)


def test_mining_by_entropy_takes_the_most_certain_of_each_class(
    experiment: Experiment, base: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mining, "PER_CLASS", 5)
    assert experiment.carried.imagination is not None
    state, pile = copy.deepcopy(base), experiment.carried.imagination.pile
    experiment.carried.imagination.mine(state, at_least=2)
    images = experiment.method.setup.prepare(pile.pixels.fetch(torch.arange(len(pile))))
    with torch.no_grad():
        p = experiment.method.predict(state, images).scores.softmax(1)
    bits, classes = -(p * p.log2()).sum(1), p.argmax(1)
    expected = [
        index
        for label in range(p.shape[1])
        for index in sorted((classes == label).nonzero().flatten().tolist(), key=lambda i: float(bits[i]))[:5]
    ]
    assert state.tensors["pile.index"].tolist() == expected
    assert state.tensors["pile.classes"].tolist() == classes[expected].tolist()
    assert len(expected) < len(pile)
