"""Blending against loops: the mixture, the class counts, statistics measured again, and A chosen on held-out images."""

import copy

import pytest
import torch
from stages_driven import begun, drive, same, snapshot
from tiny_runs import tiny_experiment
from torch import nn

from daydream.components import blending
from daydream.components.blending import GRID, Blending, blend, by_counts, measure
from daydream.data.images import ImageSet
from daydream.errors import UserError
from daydream.experiment.experiment import Experiment
from daydream.methods.method import network
from daydream.nets.network import Network
from daydream.protocol.stream import Task
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
    return tiny_experiment(parts={"blend": "0.25"})


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


def test_by_counts() -> None:
    stream = tiny_experiment().stream
    assert by_counts(stream.task(1)) == pytest.approx((2 / 4) ** 0.25)
    assert by_counts(stream.task(2)) == pytest.approx((2 / 6) ** 0.25)


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


def test_statistics_against_all_images_at_once(
    experiment: Experiment, base: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch norm's, whose input does not depend on others, are means over batches of one size."""
    task, prepare = experiment.stream.task(1), experiment.method.setup.prepare
    net = network(copy.deepcopy(base))
    sets = [task.train, base.memory.as_set(task.train.class_names)]
    monkeypatch.setattr(blending, "BATCH", 12)
    count = sum(map(len, sets)) // 12
    before, norm = snapshot(net), next(m for m in net.modules() if isinstance(m, nn.BatchNorm2d))
    seen: list[torch.Tensor] = []
    hook = norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].double()))
    measure(net, sets, prepare, torch.Generator().manual_seed(1))
    hook.remove()
    assert [len(x) for x in seen] == [12] * count
    with torch.no_grad():
        everything = [prepare(s.pixels.fetch(torch.arange(len(s)))) for s in sets]
        whole = torch.cat([copy.deepcopy(net).lower.stem[0](x) for x in everything]).double()
    assert norm.running_mean is not None
    assert norm.running_var is not None
    torch.testing.assert_close(norm.running_mean.double(), whole.mean((0, 2, 3)), rtol=1e-4, atol=1e-5)
    variances = torch.stack([x.var((0, 2, 3)) for x in seen]).mean(0)
    torch.testing.assert_close(norm.running_var.double(), variances, rtol=1e-4, atol=1e-5)
    changed = set(before) - same(before, snapshot(net))
    assert changed
    assert all("running" in name for name in changed)
    assert all(not m.training and m.momentum == 0.1 for m in net.modules() if isinstance(m, nn.BatchNorm2d))


def test_a_method_that_holds_exemplars_out_itself_needs_more_of_them() -> None:
    memory = {"memory": 2, "budget": "per_class"}
    assert tiny_experiment("replay", memory, parts={"blend": "held-out"})
    with pytest.raises(UserError, match="--blend held-out needs 2 exemplars per class to train by"):
        tiny_experiment("bic", memory, parts={"blend": "held-out"})
    assert tiny_experiment("bic", {**memory, "memory": 3}, parts={"blend": "held-out"})


def test_what_is_held_out_is_not_trained_on(base: State) -> None:
    experiment = tiny_experiment(parts={"blend": "held-out"})
    task = experiment.stream.task(1)
    [stage, _], [plain, _] = experiment.stages(task), experiment.method.stages(task)
    state = begun(base, stage)
    assert experiment.parts is not None
    held_old, held_new = experiment.parts.blending.split(task, plain, plain.streams(state))[1]
    # 6 exemplars of each of 2 old classes: rank 1; as many of each of 2 new ones.
    assert held_old.labels.tolist() == [0, 1]
    assert held_new.labels.tolist() == [2, 3]
    ranked = state.memory.as_set(task.train.class_names, torch.tensor([1]))
    assert torch.equal(pixels(held_old), pixels(ranked))
    for name, held in (("old", held_old), ("new", held_new)):
        everything = {row.numpy().tobytes() for row in pixels(plain.streams(state)[name].images)}
        trained = {row.numpy().tobytes() for row in pixels(stage.streams(state)[name].images)}
        out = {row.numpy().tobytes() for row in pixels(held)}
        assert trained | out == everything
        assert not trained & out


def pixels(images: ImageSet) -> torch.Tensor:
    return images.pixels.fetch(torch.arange(len(images)))


@pytest.mark.parametrize("statistics", ["blend", "measure"])
def test_the_chosen_share_has_the_least_loss(experiment: Experiment, base: State, statistics: str) -> None:
    task = experiment.stream.task(1)
    component = Blending("held-out", statistics, experiment.method)  # type: ignore[arg-type]
    sets, held = [task.train], [base.memory.as_set(task.train.class_names), task.train]
    for spoilt in ("net", "old"):
        state = begun(base, experiment.method.stages(task)[0])
        state.nets[spoilt] = stirred(network(state, spoilt), 1, by=0.5)
        previous, trained = network(state, "old"), snapshot(state.nets["net"])
        losses = [trial_loss(component, state, task, sets, held, share) for share in GRID]
        found = component.choose(state, task, previous, sets, held)
        assert found == GRID[min(range(len(GRID)), key=losses.__getitem__)]
        assert same(trained, snapshot(state.nets["net"])) == set(trained)


@pytest.mark.parametrize("best", [0.3, 0.6, 1.0])
def test_a_known_best_share_is_found(
    experiment: Experiment, base: State, best: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = experiment.stream.task(1)
    state = begun(base, experiment.method.stages(task)[0])
    state.nets["net"] = stirred(network(state), 1)
    old, new = (next(network(state, name).parameters()).detach().clone() for name in ("old", "net"))
    wanted = best * new + (1 - best) * old

    def distance(state: State, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (next(network(state).parameters()) - wanted).norm()

    monkeypatch.setattr(experiment.method, "classification", distance)
    component = Blending("held-out", "blend", experiment.method)
    assert component.choose(state, task, network(state, "old"), [task.train], [task.train]) == best


@torch.no_grad()
def trial_loss(
    component: Blending, state: State, task: Task, sets: list[ImageSet], held: list[ImageSet], share: float
) -> float:
    trial = copy.deepcopy(state)
    component.apply(trial, task, network(state, "old"), sets, share)
    z = torch.cat([component.method.features(trial, images) for images in held])
    scores = network(trial).head(z).double().log_softmax(1)
    labels = [label for images in held for label in images.labels.tolist()]
    return -sum(float(scores[i, label]) for i, label in enumerate(labels)) / len(labels)
