"""Blending against loops: the mixture, and how far the network moved."""

import copy

import pytest
import torch
from stages_driven import begun, drive, same, snapshot
from tiny_runs import tiny_experiment

from daydream.components.blending import blend
from daydream.experiment.experiment import Experiment
from daydream.nets.network import Network
from daydream.stages.stage import Stage, State


def stirred(net: Network, seed: int, by: float = 0.3) -> Network:
    """Return a copy of a network with other weights and statistics."""
    net, generator = copy.deepcopy(net), torch.Generator().manual_seed(seed)
    for values in net.state_dict().values():
        if values.is_floating_point():
            values += by * torch.rand(values.shape, generator=generator)
    return net


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return tiny_experiment(parts={"blend": 0.25})


@pytest.fixture(scope="module")
def base(experiment: Experiment) -> State:
    """The state when the first increment begins; to be copied, not changed."""
    state = experiment.fresh_state()
    for stage in experiment.stages(experiment.stream.task(0)):
        drive(experiment, begun_in_place(state, stage), 0, stage)
    return state


def begun_in_place(state: State, stage: Stage) -> State:
    if stage.epochs and stage.begin is not None:
        stage.begin(state)
    return state


@pytest.mark.parametrize("head", ["linear", "cosine", "proxy", "scaled-proxy"])
def test_blend_against_a_loop(head: str) -> None:
    previous = stirred(Network("resnet10", head, (3,)), 1)
    net = stirred(previous, 2)
    net.head.grow(2)
    trained, before = snapshot(net), snapshot(previous)
    blend(net, previous, 0.6)
    for name, values in net.state_dict().items():
        if name not in before:
            assert torch.equal(values, trained[name]), name
            assert name in ("head.weights.1", "head.biases.1")
        else:
            pairs = zip(trained[name].flatten().tolist(), before[name].flatten().tolist(), strict=True)
            expected = torch.tensor([0.6 * new + 0.4 * old for new, old in pairs], dtype=torch.float64)
            torch.testing.assert_close(values.flatten().double(), expected, rtol=1e-5, atol=1e-6)


def test_equal_weights_are_left_to_the_bit_and_a_share_of_one_changes_nothing() -> None:
    net = stirred(Network("resnet10", "proxy", (3,)), 1)
    before = snapshot(net)
    blend(net, copy.deepcopy(net), 0.6)
    assert same(before, snapshot(net)) == set(before)
    blend(net, stirred(net, 2), 1.0)
    assert same(before, snapshot(net)) == set(before)


def test_an_increment_ends_blended(experiment: Experiment, base: State) -> None:
    """Its stages but for the blending give the trained network; the frozen proxies of old classes stay."""
    task = experiment.stream.task(1)
    plain, blended = experiment.method.stages(task)[0], experiment.stages(task)[0]
    one, other = begun(base, plain), begun(base, blended)
    drive(experiment, one, 1, plain)
    drive(experiment, other, 1, blended)
    trained, found, before = snapshot(one.nets["net"]), snapshot(other.nets["net"]), snapshot(base.nets["net"])
    assert torch.equal(found["head.weights.1"], trained["head.weights.1"])
    assert torch.equal(found["head.weights.0"], before["head.weights.0"])
    for name in before:
        torch.testing.assert_close(found[name], 0.25 * trained[name] + 0.75 * before[name])
    assert set(other.nets) == set(one.nets)
    assert blended.report is not None
    weights = [name for name, _ in base.nets["net"].named_parameters()]
    apart, long = 0.0, 0.0
    for name in weights:
        apart += float((trained[name] - before[name]).double().square().sum())
        long += float(before[name].double().square().sum())
    assert blended.report(other) == {"blend": 0.25, "moved": pytest.approx((apart / long) ** 0.5, abs=1e-4)}
