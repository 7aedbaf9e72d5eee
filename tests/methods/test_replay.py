"""Replay, the paper's baseline, by hand: terms, what trains how fast, how new proxies begin, what a batch holds."""

import math
from dataclasses import replace

import pytest
import torch
from stages_driven import after_task, batch_of, begun, stirred
from tiny_runs import tiny_experiment

from daydream import rng
from daydream.experiment.experiment import Experiment
from daydream.methods.method import network
from daydream.methods.replay import Dream, ReplaySettings
from daydream.nets.heads import imprint
from daydream.nets.network import mean_weight_norm
from daydream.stages.stage import SGD, State

SEEN, NEW = 6, 2


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return tiny_experiment("replay")


@pytest.fixture(scope="module")
def known(experiment: Experiment) -> State:
    """The state in which the third task begins."""
    return after_task(experiment, after_task(experiment, experiment.fresh_state(), 0), 1)


def test_the_recipe_goes_by_the_length_of_the_base_task_and_its_increments_do_not_jump() -> None:
    lengths = (10, 40, 59, 60, 61, 99, 100, 160, None)
    epochs = [Dream.usual(length).get("epochs", Dream.Settings.epochs) for length in lengths]
    assert epochs == [10, 40, 59, 60, 60, 60, 60, 60, 60]
    imagined = [Dream.usual(length).get("counterparts") != 0 for length in lengths]
    assert imagined == [False] * 6 + [True] * 3


def test_terms_of_an_increment(experiment: Experiment, known: State) -> None:
    train, *_ = experiment.stages(experiment.stream.task(2))
    state = stirred(begun(known, train))
    batch = batch_of(train, state, 2)
    apart = 0.0
    with torch.no_grad():
        terms = train.losses(state, batch)
        for image in batch["old"].images:
            z, z_old = (network(state, name).features(image[None])[0].double() for name in ("net", "old"))
            apart += 1 - float(z @ z_old / (z.norm() * z_old.norm()))
    assert apart > 0.001
    assert list(terms) == ["ce", "distill"]
    expected = math.sqrt(SEEN / NEW) * apart / len(batch["old"].labels)
    assert float(terms["distill"]) == pytest.approx(expected, rel=1e-3)


def test_the_lower_half_trains_at_a_tenth_and_old_proxies_not_at_all(experiment: Experiment, known: State) -> None:
    train, *_ = experiment.stages(experiment.stream.task(2))
    state = begun(known, train)
    lower, rest = train.trains(state)
    net = network(state)
    assert (lower.factor, rest.factor) == (0.1, 1.0)
    assert [id(p) for p in lower.tensors] == [id(p) for p in net.lower.parameters()]
    assert {id(p) for p in rest.tensors} == {id(p) for p in [*net.upper.parameters(), *net.head.block(-1)]}
    assert ReplaySettings().sgd() == SGD(lr=0.1, momentum=0.9, weight_decay=5e-4)
    assert train.optimizer == replace(ReplaySettings().sgd(), lr=experiment.method.settings.lr)


def test_new_proxies_are_imprinted(experiment: Experiment, known: State) -> None:
    task = experiment.stream.task(2)
    train, *_ = experiment.stages(task)
    head = network(known).head
    features = experiment.method.features(known, task.train)
    draws = rng.generator(experiment.config.run.seed, "k-means", task.index)
    expected = imprint(features, task.train.labels, head.vectors, mean_weight_norm(head), draws)
    grown = network(begun(known, train)).head
    torch.testing.assert_close(grown.block(-1)[0].detach(), expected)


def test_what_a_batch_holds_and_how_many_make_an_epoch() -> None:
    """24 new images and 12 exemplars in batches of 8 are 5 and 3 in proportion; a share changes the mix alone."""
    each = {"memory": 6, "budget": "per_class"}  # as many exemplars of 2 old classes, and more of 4
    for share, run, sizes in ((None, {}, (5, 3)), (None, each, (5, 3)), (0.25, {}, (2, 6))):
        experiment = tiny_experiment("replay", run, new_share=share)
        stage = experiment.stages(experiment.stream.task(1))[0]
        streams = stage.streams(after_task(experiment, experiment.fresh_state(), 0))
        assert (len(streams["new"].images), len(streams["old"].images)) == (24, 12)
        assert (streams["new"].size, streams["old"].size) == sizes
        assert stage.steps == math.ceil(24 / 5)
