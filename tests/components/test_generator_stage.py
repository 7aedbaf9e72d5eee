"""The stage that trains generators: what trains, on which batches, by which losses."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from imagining import BASE, SEED, after_base, drive, equal, statistics
from stages_driven import snapshot
from tiny_runs import tiny_experiment
from torch import Tensor

from daydream.components.generator_stage import CLASSES, EXEMPLARS, UNLABELLED, dealer
from daydream.components.imagination_settings import FORMS, ImaginationSettings
from daydream.components.mining import PER_CLASS
from daydream.engine import Diverged
from daydream.engine.feed import Feed
from daydream.experiment.experiment import Experiment
from daydream.methods.method import network
from daydream.stages.stage import State


@pytest.mark.parametrize("task", [0, 1])
def test_only_the_bank_trains(experiment: Experiment, base: State, task: int) -> None:
    state = after_base(experiment, generators=False) if task == 0 else copy.deepcopy(base)
    stages = experiment.stages(experiment.stream.task(task))
    for place, stage in enumerate(stages[:-1] if task else []):
        drive(experiment, state, task, place, stage)
    before = {name: snapshot(net) for name, net in state.nets.items()}
    memory = state.memory.images.clone()
    stage = stages[-1]
    assert stage.begin is not None
    stage.begin(state)
    initial = snapshot(state.nets["new_generators"])
    drive(experiment, state, task, 2, replace(stage, begin=None))
    assert "new_generators" not in state.nets
    assert torch.equal(memory, state.memory.images)
    for name in ("net", *(["old"] if task else [])):
        assert equal(before[name], snapshot(state.nets[name])), name  # weights, head and statistics
    whole = snapshot(state.nets["generators"])
    if task:
        assert equal(before["generators"], {name: values[:BASE] for name, values in whole.items()})
    fresh = {name: values[BASE:] if task else values for name, values in whole.items()}
    assert not any(torch.equal(fresh[name], initial[name]) for name in fresh)
    assert not any(net.training for net in state.nets.values())


@pytest.mark.parametrize(("form", "lr"), [("pooled", 0.1), ("paper", 1e-4)])
def test_a_generator_learns(form: str, lr: float, base: State) -> None:
    values = {"generator_epochs": 6, "generator_updates": 4, "generator_form": form, "generator_lr": lr}
    experiment = tiny_experiment("imagine", imagination=values)
    state = copy.deepcopy(base)
    del state.nets["generators"]
    losses = drive(experiment, state, 0, 2, experiment.stages(experiment.stream.task(0))[-1]).epochs
    totals = [sum(row.values()) for row in losses]
    assert totals[-1] < 0.8 * totals[0], totals


@pytest.mark.parametrize("scale", [1, 100])
def test_relative_losses_train_on_maps_of_any_scale(scale: int, base: State) -> None:
    """What grey pictures did: a Gram matrix grows with the square of the maps, and the losses as printed diverge."""

    def trained(form: str) -> list[float]:
        experiment = tiny_experiment("imagine", imagination={"generator_epochs": 2, "generator_form": form})
        state = copy.deepcopy(base)
        del state.nets["generators"]
        network(state).lower.register_forward_hook(lambda module, given, maps: scale * maps)
        network(state).upper.register_forward_pre_hook(lambda module, given: given[0] / scale)
        rows = drive(experiment, state, 0, 2, experiment.stages(experiment.stream.task(0))[-1]).epochs
        return [sum(row.values()) for row in rows]

    totals = trained("relative")
    assert totals[-1] < totals[0] < 20, totals
    if scale > 1:
        with pytest.raises(Diverged):
            trained("paper")


@pytest.mark.parametrize(
    ("wanted", "names"),
    [("ce", "ce"), ("sc", "ce sc"), ("sc+sdc", "ce sc sdc"), ("sc+sdc+cyc", "ce sc sdc sc_cyc sdc_cyc")],
)
def test_the_rows_of_the_ablation(wanted: str, names: str, base: State) -> None:
    experiment = tiny_experiment("imagine", imagination={"generator_losses": wanted, "generator_epochs": 1})
    state = copy.deepcopy(base)
    losses = drive(experiment, state, 0, 2, experiment.stages(experiment.stream.task(0))[-1]).epochs
    assert list(losses[0]) == names.split()


def test_a_batch_of_generator_training(experiment: Experiment, base: State) -> None:
    state, mined = copy.deepcopy(base), len(base.tensors["pile.classes"])
    state.tensors["pile.classes"] = torch.arange(mined) * 2 // mined  # half of each class
    feed = Feed(experiment.stages(experiment.stream.task(0))[-1], state, (0, 2), SEED)
    feed.load(0)
    batch = feed.read(torch.tensor([0]))
    for name, count in (("exemplars", EXEMPLARS), ("real", EXEMPLARS * UNLABELLED)):
        assert torch.equal(batch[name].labels, torch.arange(BASE).repeat_interleave(count)), name
    assert (batch["pile"].labels != torch.arange(BASE).repeat_interleave(UNLABELLED)).all()


@pytest.mark.parametrize("form", ["pooled", "paper"])
def test_terms_of_a_generator(form: str, base: State) -> None:
    values = {"generator_form": form, "decoupling": 3.0, "cycle": 0.5}
    experiment = tiny_experiment("imagine", imagination=values)
    state, stage = copy.deepcopy(base), experiment.stages(experiment.stream.task(0))[-1]
    bank = state.nets["new_generators"] = state.nets.pop("generators")  # in evaluation mode: a pair is on its own
    net, expected = network(state), dict[str, list[Tensor]]()
    feed = Feed(stage, state, (0, 2), SEED)
    feed.load(0)
    batch = feed.read(torch.tensor([0]))
    contrast, decouple, *_ = FORMS[form]
    with torch.no_grad():
        terms = stage.losses(state, batch)
        exemplars, pile, real = (net.lower(batch[name].images) for name in ("exemplars", "pile", "real"))
        for k, label in enumerate(batch["real"].labels):  # one triplet (x_m, x_u, x_k) at a time
            first, pair = int(label), k % (EXEMPLARS * UNLABELLED)
            m = exemplars[first * EXEMPLARS + pair // UNLABELLED][None]
            u = pile[first * UNLABELLED + pair % UNLABELLED][None]
            mix = bank(m[None], u[None], label[None])[0]
            cyc = bank(mix[None], m[None], label[None])[0]
            triplet = {
                "ce": F.cross_entropy(net.head(net.upper(mix)), label[None]),
                "sc": contrast(mix, real[k][None]),
                "sdc": 3.0 * decouple(mix, u),
                "sc_cyc": 0.5 * contrast(cyc, mix),
                "sdc_cyc": 0.5 * 3.0 * decouple(cyc, m),
            }
            for name, value in triplet.items():
                expected.setdefault(name, []).append(value)
    assert terms.keys() == expected.keys()
    for name, found in expected.items():
        torch.testing.assert_close(terms[name], torch.stack(found).mean(), rtol=1e-4, atol=1e-5)


def test_the_cycle_leaves_the_generators_statistics_alone(base: State) -> None:
    found, weights = [], []
    for kinds in ("sc+sdc", "sc+sdc+cyc"):
        experiment = tiny_experiment("imagine", imagination={"generator_losses": kinds})
        state = replace(copy.deepcopy(base), nets={"net": base.nets["net"]})
        stage = experiment.stages(experiment.stream.task(0))[-1]
        drive(experiment, state, 0, 2, replace(stage, epochs=1, steps=1))
        found.append(statistics(state.nets["generators"]))
        weights.append(dict(state.nets["generators"].named_parameters()))
    assert equal(*found)
    assert not equal(*weights)


@pytest.mark.parametrize(("form", "lr"), [("pooled", 0.1), ("paper", 0.01)])
@pytest.mark.parametrize(("classes", "scale"), [(2, 1.0), (6, 1.0), (50, 50 / 6)])
def test_all_classes_at_once_step_as_six_at_a_time(classes: int, scale: float, form: str, lr: float) -> None:
    experiment = tiny_experiment("imagine", imagination={"generator_form": form})
    task = replace(experiment.stream.task(0), num_new=classes)
    assert experiment.carried.imagination is not None
    carried = copy.copy(experiment.carried.imagination)
    carried.pile = carried.pile.select(torch.arange(classes * UNLABELLED) % len(carried.pile))
    optimizer = carried.generators(task).optimizer
    assert optimizer.lr == pytest.approx(lr * scale)
    assert optimizer.weight_decay == pytest.approx(5e-4 / scale)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.integers(0, 3),
    st.integers(1, 7),
    st.integers(1, 6),
    st.integers(0, 2**20),
)
def test_dealer(sizes: list[int], old: int, count: int, steps: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.arange(old), old + torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))])
    labels = labels[torch.randperm(len(labels), generator=generator)]  # images of a set come in any order
    classes = torch.arange(old, old + len(sizes))
    index = dealer(labels, classes, count)(generator, steps, {})
    assert index.shape == (steps, len(sizes) * count)
    for place, size in enumerate(sizes):
        own = index[:, place * count : (place + 1) * count]
        assert (labels[own] == old + place).all()
        dealt = own.flatten().tolist()
        rounds = [dealt[i : i + size] for i in range(0, len(dealt), size)]
        assert all(len(set(cards)) == len(cards) for cards in rounds)  # each image once before any comes again


@pytest.mark.parametrize(
    ("epochs", "falls"), [(1, []), (2, [1]), (4, [2, 3]), (10, [5, 8, 9]), (16, [8, 12, 14]), (40, [20, 30, 35])]
)
def test_its_rate_falls_after_a_half_three_quarters_and_seven_eighths(epochs: int, falls: list[int]) -> None:
    experiment = tiny_experiment("imagine", imagination={"generator_epochs": epochs})
    schedule = experiment.stages(experiment.stream.task(0))[-1].schedule
    rates = [schedule(epoch, epochs) for epoch in range(epochs)]
    assert rates == pytest.approx([0.1 ** sum(epoch >= fall for fall in falls) for epoch in range(epochs)])


def test_the_released_codes_numbers() -> None:
    usual = ImaginationSettings()
    assert (usual.generator_epochs, usual.generator_updates, usual.cycle) == (40, 25, 0.3)
    assert (EXEMPLARS, UNLABELLED, CLASSES, PER_CLASS) == (4, 5, 6, 100)
