"""Imagination on tiny trainings: what it adds, what it leaves alone, and that it carries on after a stop."""

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from stages_driven import Notes, snapshot
from tiny_runs import TINY_DATA, TINY_RECIPE, TINY_RUN, Watch, tiny_experiment, without_times
from torch import Tensor, nn

from daydream import runs
from daydream.checkpoint import Ledger
from daydream.cli import main
from daydream.config import make_config
from daydream.engine import Engine, Interrupted
from daydream.engine.feed import Feed
from daydream.errors import UserError
from daydream.experiment import Experiment
from daydream.methods.imagination import EXEMPLARS, FORMS, UNLABELLED, Imagination, dealer
from daydream.methods.method import network
from daydream.nets.generators import GeneratorBank
from daydream.runs import RunFolder, load_checkpoint
from daydream.stage import Batch, Stage, State

BASE, STEPS, SEED = 2, 2, 1
"""Of the tiny run: 2 base classes and 2 increments of 2."""


def drive(experiment: Experiment, state: State, task: int, place: int, stage: Stage) -> Notes:
    """Run a stage as the experiment would."""
    notes = Notes()
    Engine(experiment.hardware, SEED).run(stage, state, (task, place), notes)
    return notes


def after_base(experiment: Experiment, generators: bool = True) -> State:
    """Return the state after the base task, with or without its generators."""
    state = experiment.fresh_state()
    stages = experiment.stages(experiment.stream.task(0))
    assert [stage.name for stage in stages] == ["train", "select", "imagine"]
    for place, stage in enumerate(stages if generators else stages[:2]):
        drive(experiment, state, 0, place, stage)
    return state


def equal(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def statistics(net: nn.Module) -> dict[str, Tensor]:
    found = {name: values for name, values in snapshot(net).items() if "running" in name or "tracked" in name}
    assert found
    return found


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return tiny_experiment("imagine")


@pytest.fixture(scope="module")
def base(experiment: Experiment) -> State:
    """The state when the first increment begins; to be copied, not changed."""
    return after_base(experiment)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("imagination") / "run"
    tiny_experiment("imagine").start(folder, Watch())
    return RunFolder(folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("imagination") / "plain"
    tiny_experiment("replay").start(folder, Watch())
    return RunFolder(folder)


# --- what it is, and what it is without ------------------------------------------------------------------------------


def test_no_counterparts_is_the_baseline(plain: RunFolder, tmp_path: Path) -> None:
    tiny_experiment("imagine", imagination={"counterparts": 0}).start(tmp_path / "run", Watch())
    assert without_times(RunFolder(tmp_path / "run").metrics()) == without_times(plain.metrics())


def test_replay_that_imagines_is_imagine(finished: RunFolder, plain: RunFolder, tmp_path: Path) -> None:
    tiny_experiment("replay", imagination={"imagine": True}).start(tmp_path / "run", Watch())
    assert without_times(RunFolder(tmp_path / "run").metrics()) == without_times(finished.metrics())
    assert without_times(finished.metrics()) != without_times(plain.metrics())


def test_every_task_but_the_last_ends_with_generators(experiment: Experiment, finished: RunFolder) -> None:
    names = [[stage.name for stage in row.stages] for row in experiment.plan()]
    assert names == [["train", "select", "imagine"]] * STEPS + [["train", "select"]]
    trained = {row["task"] for row in finished.metrics() if row["kind"] == "epoch" and row["stage"] == "imagine"}
    assert trained == set(range(STEPS))


def test_generators_for_the_classes_seen_before_the_last_task(experiment: Experiment, finished: RunFolder) -> None:
    found = load_checkpoint(finished.path / "checkpoint")
    assert found is not None
    nets = found[0]["state"]["nets"]
    assert set(nets) == {"net", "old", "generators"}
    assert nets["generators"]["config"]["classes"] == experiment.stream.task(STEPS).num_old


def test_prediction_needs_no_generator(finished: RunFolder, plain: RunFolder, base: State) -> None:
    assert finished.result is not None
    assert plain.result is not None
    for key in ("parameters", "head_parameters"):
        assert finished.result[key] == plain.result[key]
    imagine, replay = tiny_experiment("imagine").method, tiny_experiment("replay").method
    assert imagine.parameters(base) == replay.parameters(base)
    bare = replace(base, nets={"net": base.nets["net"]})  # predicts alike without its generators
    images = imagine.setup.prepare(base.memory.images)
    with torch.no_grad():
        assert torch.equal(imagine.predict(base, images).scores, imagine.predict(bare, images).scores)


def test_quality_of_the_generators(finished: RunFolder) -> None:
    reports = [row for row in finished.metrics() if row["kind"] == "report"]
    assert [(row["task"], row["stage"]) for row in reports] == [(task, "imagine") for task in range(STEPS)]
    for row in reports:
        numbers = {k: v for k, v in row.items() if k not in ("kind", "task", "stage")}
        assert set(numbers) == {"distance", "spread", "real_spread", "exemplar_spread", "accuracy", "nearest"}
        assert all(math.isfinite(value) for value in numbers.values())
        assert 0 <= numbers.pop("accuracy") <= 100
        assert 0 <= numbers.pop("nearest") <= 100
        assert all(0 <= value <= 2 for value in numbers.values())  # normalised features, and means of them


# --- the generator stage ---------------------------------------------------------------------------------------------


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
    assert experiment.imagination is not None
    carried = copy.copy(experiment.imagination)
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


# --- imagined replay -------------------------------------------------------------------------------------------------


def imagining(experiment: Experiment, **values: Any) -> Imagination:
    """Return the experiment's imagination with other settings."""
    assert experiment.imagination is not None
    return Imagination(replace(experiment.config.imagination, **values), experiment.method, experiment.imagination.pile)


def increment(experiment: Experiment, base: State, **values: Any) -> tuple[State, Stage, Stage]:
    """Return a state that has begun the first increment, and its stage without and with imagination."""
    state, task = copy.deepcopy(base), experiment.stream.task(1)
    stage = experiment.method.stages(task)[0]
    assert stage.begin is not None
    stage.begin(state)
    return state, stage, imagining(experiment, **values).replayed(task, stage)


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
    state, stage, carried = increment(
        experiment, base, imagined_weight=weight, counterparts=count, pile_distillation=0.0
    )
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
    state, _, carried = increment(experiment, base, pile_distillation=1.0)
    batch = first_batch(carried, state)
    seen: list[int] = []
    network(state, "old").lower.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    carried.losses(state, batch)
    assert seen == [len(batch["old"].images) + len(batch["pile"].images)]


@pytest.mark.parametrize("pile", [0.0, 1.0])
def test_statistics_come_from_real_images_alone(experiment: Experiment, base: State, pile: float) -> None:
    task = experiment.stream.task(1)
    plain = experiment.method.stages(task)[0]
    carried = imagining(experiment, pile_labels=pile, pile_distillation=pile).replayed(task, plain)
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
    state, _, carried = increment(experiment, base, pile_labels=labels, pile_distillation=distillation)
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
    experiment = tiny_experiment("imagine", imagination={"mining": "uniform"})
    assert experiment.imagination is not None
    state = copy.deepcopy(base)
    experiment.imagination.mine(state, at_least=10)
    assert sorted(state.tensors["pile.index"].tolist()) == list(range(TINY_DATA["pile_size"]))
    assert (state.tensors["pile.classes"].diff() >= 0).all()
    mined = experiment.imagination.mined(state)
    scores = experiment.method.predict(state, experiment.method.setup.prepare(mined.pixels.fetch(torch.arange(60))))
    assert torch.equal(scores.scores.argmax(1), mined.labels)


# --- stops and checkpoints -------------------------------------------------------------------------------------------

# The steps of the tiny run: base task 1-6, generators 7-10, first increment 11-20, generators 21-24, second increment.


@pytest.mark.parametrize(("step", "where"), [(8, "imagine"), (9, "imagine"), (14, "train"), (22, "imagine")])
def test_stopped_and_resumed_it_ends_the_same(finished: RunFolder, tmp_path: Path, step: int, where: str) -> None:
    folder, watch = tmp_path / "run", StageWatch(stop_at=step)
    with pytest.raises(Interrupted):
        tiny_experiment("imagine").start(folder, watch)
    assert watch.stages[-1] == where
    found = load_checkpoint(folder / "checkpoint")
    assert found is not None
    assert ("new_generators" in found[0]["state"]["nets"]) == (where == "imagine")
    result = tiny_experiment("imagine").resume(RunFolder.open(folder), Watch())
    assert without_times(result) == without_times(finished.result)
    reports = [row for row in RunFolder(folder).metrics() if row["kind"] == "report"]
    assert reports == [row for row in finished.metrics() if row["kind"] == "report"]


class StageWatch(Watch):
    """Keeps the names of the stages that began."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__(stop_at)
        self.stages: list[str] = []

    def stage_begins(self, task: Any, stage: Any, from_epoch: int) -> None:
        self.stages.append(stage.name)


def test_a_checkpoint_knows_which_networks_it_wrote_before(experiment: Experiment, base: State) -> None:
    state, _, carried = increment(experiment, base)
    network(state).requires_grad_(True)
    ledger = Ledger()
    assert ledger.unchanged(state, carried.train_mode) == set()
    ledger.note(state)
    assert ledger.unchanged(state, carried.train_mode) == {"net.old", "net.generators"}
    assert ledger.unchanged(state, {"old"}) == {"net.generators"}
    with torch.no_grad():
        next(state.nets["old"].parameters()).add_(1)
    assert ledger.unchanged(state, ()) == {"net.generators"}
    state.nets["generators"] = copy.deepcopy(state.nets["generators"])
    assert ledger.unchanged(state, ()) == set()


def test_a_checkpoint_writes_frozen_networks_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    inner = runs._write_component

    def noting(folder: Path, name: str, tensors: Mapping[str, Tensor]) -> str:
        written.append(name)
        return inner(folder, name, tensors)

    class LastStep(StageWatch):
        """Stops at the last step of the first increment's four epochs."""

        def stop_asked(self) -> bool:
            if self.stages == ["train", "select", "imagine", "train"]:
                self.asked += 1
            return self.asked == 20

    monkeypatch.setattr(runs, "_write_component", noting)
    with pytest.raises(Interrupted):
        tiny_experiment("imagine", epochs=4).start(tmp_path / "run", LastStep())
    assert written.count("net.generators") == 1  # when they had been trained
    assert written.count("net.old") == 1
    assert written[written.index("net.old") - 1 :].count("net.net") == 4  # three epochs and the stop
    found = load_checkpoint(tmp_path / "run" / "checkpoint")
    assert found is not None
    assert {"net.net", "net.old", "net.generators"} < set(found[1])


# --- mistakes --------------------------------------------------------------------------------------------------------


def pile_of(values: Mapping[str, Any], run: Mapping[str, Any] = {}, data: Mapping[str, Any] = TINY_DATA) -> Experiment:
    return Experiment(make_config({**TINY_RUN, "method": "imagine", **run}, data, TINY_RECIPE, {}, values))


def test_a_pile_smaller_than_a_batch_is_refused_before_training(tmp_path: Path) -> None:
    small = pile_of({}, data={**TINY_DATA, "pile_size": 9})
    with pytest.raises(UserError, match="the pile holds 9 images, fewer than the 10 of one batch"):
        small.plan()
    with pytest.raises(UserError, match="the pile holds 9 images"):
        small.start(tmp_path / "run", Watch())
    assert RunFolder(tmp_path / "run").metrics() == []


def test_an_unknown_source_of_the_pile() -> None:
    with pytest.raises(UserError, match="imagenet33"):
        pile_of({"unlabeled": "imagenet33:DIR"})


@pytest.fixture
def own_images(tmp_path: Path) -> Path:
    for label in range(4):
        (tmp_path / "own" / f"class{label}").mkdir(parents=True)
        for i in range(8):
            Image.new("RGB", (16, 16), (60 * label, 30 * i, 0)).save(tmp_path / "own" / f"class{label}" / f"{i}.png")
    return tmp_path / "own"


def test_a_data_set_without_a_pile(own_images: Path) -> None:
    run = {"data": "folder", "root": str(own_images), "base": 2, "steps": 1, "memory": 8}
    with pytest.raises(UserError, match="'folder' has no unlabelled images of its own: say where they are with"):
        pile_of({}, run, {"image_size": 16})
    replay = make_config({**TINY_RUN, "method": "replay", **run}, {"image_size": 16}, TINY_RECIPE)
    assert Experiment(replay).imagination is None  # which asks for no pile


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("counterparts", -1),
        ("decoupling", -0.1),
        ("cycle", -0.1),
        ("imagined_weight", -1.0),
        ("pile_labels", -1.0),
        ("pile_distillation", -1.0),
        ("generator_depth", 0),
        ("generator_epochs", 0),
        ("generator_updates", 0),
        ("generator_width", 0),
        ("generator_lr", 0.0),
    ],
)
def test_settings_out_of_range(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} {value} must "):
        tiny_experiment("imagine", imagination={name: value})


def test_nothing_to_imagine_without_replay() -> None:
    with pytest.raises(UserError, match="method 'finetune' replays no exemplars, so there is nothing to imagine"):
        make_config({**TINY_RUN, "method": "finetune"}, TINY_DATA, TINY_RECIPE, {"imagine": True})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--method=imagine", "--pile-size=9"], "the pile holds 9 images"),
        (["--method=imagine", "--unlabeled=imagenet33:DIR"], "imagenet33"),
        (["--method=imagine", "--counterparts=-1"], "--counterparts -1 must not be negative"),
        (["--method=finetune", "--counterparts=2"], "--counterparts"),
        (["--method=finetune", "--unlabeled=cifar10:DIR"], "--unlabeled"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = [f"--{name.replace('_', '-')}={value}" for name, value in {**TINY_DATA, **TINY_RUN}.items()]
    with pytest.raises(SystemExit) as end:
        main(["run", *tiny, *words, "--dry-run"])
    error = capsys.readouterr().err
    assert end.value.code == 2
    assert error.count("\n") == 1
    assert said in error
