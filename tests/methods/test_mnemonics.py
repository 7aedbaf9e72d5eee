"""Mnemonics on tiny trainings: the bilevel gradient, what it moves and what it leaves, and UCIR where it is off."""

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from stages_driven import after_task, begun, drive, same, snapshot
from tiny_runs import StopIn, Watch, real_training, tiny_experiment, without_times
from torch import Tensor

from daydream.data.augment import Prepare
from daydream.data.decoded import Decoded
from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.experiment.experiment import Experiment
from daydream.methods.method import network
from daydream.methods.mnemonics import Mnemonics
from daydream.protocol.stream import Stream, Task
from daydream.stages.losses import cosine_cross_entropy, learnt_cosines
from daydream.stages.stage import State
from daydream.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

OLD = 2
LONGER = {"exemplar_epochs": 40, "inner_steps": 20, "inner_lr": 1.0, "batch_size": 24}


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return tiny_experiment("mnemonics", **LONGER)


@pytest.fixture(scope="module")
def chosen(experiment: Experiment) -> State:
    """The state of the first increment when its exemplars are herded; to be copied, not changed."""
    state, task = after_task(experiment, experiment.fresh_state(), 0), experiment.stream.task(1)
    train, select, *_ = experiment.stages(task)
    state = begun(state, train)
    for stage in (train, select):
        drive(experiment, state, 1, stage)
    return state


@pytest.fixture(scope="module")
def moved(experiment: Experiment, chosen: State) -> State:
    stage = experiment.stages(experiment.stream.task(1))[2]
    state = begun(chosen, stage)
    drive(experiment, state, 1, stage)
    return state


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return tiny_experiment("mnemonics").start(tmp_path_factory.mktemp("mnemonics") / "run", Watch())


def randomly(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- the gradient ----------------------------------------------------------------------------------------------------


def slopes(z: Tensor, labels: list[int], weight: Tensor, scale: float) -> list[Tensor]:
    """Return dL/dw_c = mean_b (p_bc - [y_b = c]) scale (z^_b - (z^_b.w^_c) w^_c) / |w_c|, class by class."""
    units = [w / w.norm() for w in weight]
    found = [torch.zeros_like(w) for w in weight]
    for f, y in zip(z, labels, strict=True):
        f = f / f.norm()
        s = [math.exp(scale * float(f @ u)) for u in units]
        for c, u in enumerate(units):
            share = s[c] / sum(s) - float(c == y)
            found[c] += share * scale * (f - (f @ u) * u) / weight[c].norm() / len(labels)
    return found


def test_inner_steps_are_gradient_descent_on_the_head() -> None:
    z, weight, labels = randomly(6, 5), randomly(3, 5, seed=1), [0, 1, 2, 2, 1, 0]
    expected = weight.clone()
    for _ in range(4):
        expected = torch.stack([w - 0.7 * g for w, g in zip(expected, slopes(z, labels, expected, 3.0), strict=True)])
    found = learnt_cosines(z, torch.tensor(labels), weight, torch.tensor(3.0, dtype=torch.float64), 4, 0.7)
    torch.testing.assert_close(found, expected)
    assert (found - weight).abs().max() > 0.05


def test_the_outer_loss_is_cross_entropy_of_scaled_cosines() -> None:
    z, weight, labels = randomly(6, 5), randomly(3, 5, seed=1), [0, 1, 2, 2, 1, 0]
    total = 0.0
    for f, y in zip(z, labels, strict=True):
        s = [math.exp(2.5 * float(f @ w / (f.norm() * w.norm()))) for w in weight]
        total -= math.log(s[y] / sum(s))
    scale = torch.tensor(2.5, dtype=torch.float64)
    assert float(cosine_cross_entropy(z, weight, scale, torch.tensor(labels))) == pytest.approx(total / 6)


def test_the_gradient_reaches_the_pixels_through_every_inner_step(experiment: Experiment, chosen: State) -> None:
    """In double precision, against finite differences in some random directions."""
    method = cast(Mnemonics, experiment.method)
    net = network(chosen).frozen_copy().double()
    images, real = randomly(4, 3, 16, 16), randomly(5, 3, 16, 16, seed=1)
    labels, real_labels = torch.tensor([0, 1, 2, 3]), torch.tensor([3, 2, 2, 0, 1])

    def outer(x: Tensor) -> Tensor:
        return method.foresight(net, x, labels, real, real_labels)

    (gradient,) = torch.autograd.grad(outer(x := images.clone().requires_grad_()), x)
    assert gradient.abs().max() > 0
    for seed in range(4):
        way, width = randomly(*images.shape, seed=10 + seed), 1e-5
        expected = float((outer(images + width * way) - outer(images - width * way)).detach()) / (2 * width)
        assert float((gradient * way).sum()) == pytest.approx(expected, rel=1e-4, abs=1e-9)


# --- what moves ------------------------------------------------------------------------------------------------------


def whole_outer(experiment: Experiment, state: State, task: Task) -> float:
    """Return the outer loss of all exemplars of a task on all its real images, as they are."""
    method, prepare = cast(Mnemonics, experiment.method), experiment.method.setup.prepare
    kept, real = method.exemplars(state, task), task.train
    parts = [(prepare(images.pixels.fetch(torch.arange(len(images)))), images.labels) for images in (kept, real)]
    return float(method.foresight(network(state), *parts[0], *parts[1]).detach())


def test_the_outer_loss_falls_and_bytes_change(experiment: Experiment, chosen: State, moved: State) -> None:
    task = experiment.stream.task(1)
    assert whole_outer(experiment, moved, task) < whole_outer(experiment, chosen, task) - 1e-3
    new = chosen.memory.labels >= OLD
    before, after = chosen.memory.images[new], moved.memory.images[new]
    changed = (before != after).float().mean()
    assert changed > 0.5
    assert (before.int() - after.int()).abs().float().mean() == pytest.approx(float(moved.tensors["grey_levels"]))


def test_all_else_stays_as_it_was(chosen: State, moved: State) -> None:
    old = chosen.memory.labels < OLD
    assert torch.equal(chosen.memory.images[old], moved.memory.images[old])
    assert torch.equal(chosen.memory.labels, moved.memory.labels)
    assert torch.equal(chosen.memory.ranks, moved.memory.ranks)
    for name in ("net", "old"):
        before = snapshot(network(chosen, name))
        assert same(before, snapshot(network(moved, name))) == set(before)
    assert set(moved.tensors) == {"grey_levels"}


def test_bytes_do_not_wrap_round(experiment: Experiment, chosen: State) -> None:
    """Exemplars of nothing but 0 and 255, moved far: what would leave the bytes stops at their ends."""
    pixels = torch.randint(0, 2, chosen.memory.images.shape, generator=torch.Generator().manual_seed(0)) * 255
    state = State(chosen.memory, chosen.device, dict(chosen.nets))
    state.memory = replace(chosen.memory, images=pixels.to(torch.uint8))
    far = tiny_experiment("mnemonics", **{**LONGER, "exemplar_lr": 0.1, "exemplar_epochs": 10})
    stage = far.stages(experiment.stream.task(1))[2]
    state = begun(state, stage)
    drive(far, state, 1, stage)
    new = state.memory.labels >= OLD
    before, after = pixels[new].int(), state.memory.images[new].int()
    assert (before - after).abs().max() > 20
    assert (before - after).abs().max() < 128  # a step beyond an end would come out at the other one
    assert (before == after).float().mean() > 0.2


def test_pixels_that_the_network_does_not_see_stay(chosen: State) -> None:
    """Where stored images are larger than what the network takes, to leave room for crops."""
    experiment = tiny_experiment("mnemonics", exemplar_epochs=2)
    prepare = experiment.method.setup.prepare
    look = Prepare(prepare.mean, prepare.std, 12)
    experiment.method = Mnemonics(experiment.method.settings, replace(experiment.method.setup, prepare=look))
    stage = experiment.method.stages(experiment.stream.task(1))[2]
    given = stage.streams

    def prepared(state: State) -> dict[str, object]:
        return {name: replace(own, augment=given(state)["exemplars"].augment) for name, own in given(state).items()}

    stage = replace(stage, streams=prepared)  # type: ignore[arg-type]
    state = begun(chosen, stage)
    drive(experiment, state, 1, stage)
    apart = (state.memory.images.int() - chosen.memory.images.int()).abs().sum((0, 1))
    assert apart[2:14, 2:14].min() > 0
    assert not apart[[0, 1, 14, 15]].any()
    assert not apart[:, [0, 1, 14, 15]].any()


# --- runs ------------------------------------------------------------------------------------------------------------


def test_without_its_epochs_it_is_ucir_to_the_bit(tmp_path: Path) -> None:
    results, memories, weights = [], [], []
    off = {"exemplar_epochs": 0, "finetune_epochs": 0}
    for method, settings in (("ucir", {}), ("mnemonics", off)):
        experiment = tiny_experiment(method, **settings)
        result = experiment.start(tmp_path / method, Watch())
        results.append({k: v for k, v in without_times(result).items() if k not in ("config", "method")})
        found = experiment.restore(RunFolder.open(tmp_path / method))
        assert found is not None
        memories.append(found[2].memory.images)
        weights.append(snapshot(network(found[2])))
    assert results[0] == results[1]
    assert torch.equal(*memories)
    assert same(*weights) == set(weights[0])


def test_the_class_weights_are_then_fitted_to_the_moved_exemplars(
    experiment: Experiment, chosen: State, moved: State
) -> None:
    """From the same network, other pixels make another head, and nothing but a head."""
    ends = []
    for state in (chosen, moved):
        state = copy.deepcopy(state)
        drive(experiment, state, 1, experiment.stages(experiment.stream.task(1))[3])
        ends.append(snapshot(network(state)))
    assert same(*ends) == {name for name in ends[0] if not name.startswith("head.weights")}


@pytest.mark.parametrize("place", [(0, "mnemonics"), (1, "mnemonics"), (2, "finetune")])
def test_it_resumes_in_each_stage(place: tuple[int, str], tmp_path: Path, unbroken: dict[str, object]) -> None:
    experiment = tiny_experiment("mnemonics")
    with pytest.raises(Interrupted):
        experiment.start(tmp_path / "run", StopIn(*place))
    result = experiment.resume(RunFolder.open(tmp_path / "run"), Watch())
    assert without_times(result) == without_times(unbroken)


def test_the_plan_and_the_recipe() -> None:
    experiment = tiny_experiment("mnemonics", exemplar_epochs=50)
    names = [[stage.name for stage in row.stages] for row in experiment.plan()]
    assert names == [["train", "select", "mnemonics"], *[["train", "select", "mnemonics", "finetune"]] * 2]
    moving = experiment.stages(experiment.stream.task(1))[2]
    rates = [moving.optimizer.lr * moving.schedule(epoch, 50) for epoch in (0, 9, 10, 20, 49)]
    assert rates == pytest.approx([0.01, 0.01, 0.005, 0.0025, 0.000625])
    assert moving.train_mode == frozenset()


def test_it_adds_no_parameter_and_reports_how_far_pixels_moved(tmp_path: Path, unbroken: dict[str, object]) -> None:
    assert (unbroken["parameters"], unbroken["head_parameters"]) == (148_624, 6 * 64 + 1)
    tiny_experiment("mnemonics", {"tasks": 2}, {"imagine": True}, {"blend": 0.6}).start(tmp_path / "run", Watch())
    rows = [row for row in RunFolder(tmp_path / "run").metrics() if row["kind"] == "report"]
    levels = {row["task"]: row["grey_levels"] for row in rows if row["stage"] == "mnemonics"}
    assert set(levels) == {0, 1}
    assert all(value > 0 for value in levels.values())


def test_it_keeps_what_finetuning_loses(tmp_path: Path) -> None:
    recipe = {"base_epochs": 20, "epochs": 20, "lr": 0.1, "exemplar_epochs": 2, "finetune_epochs": 5}
    result = real_training("mnemonics", tmp_path / "run", **recipe)
    assert result["last_cnn"] > 56
    assert result["tasks"][1]["cnn"]["old"] > 40


# --- refusals --------------------------------------------------------------------------------------------------------


def test_images_decoded_ahead_are_refused() -> None:
    experiment = tiny_experiment("mnemonics")
    stream = experiment.stream
    ahead = replace(stream.train, pixels=Decoded(tuple(f"{i}.png" for i in range(len(stream.train))), 16))
    with pytest.raises(UserError, match="--method mnemonics trains exemplars' pixels on images held in memory"):
        experiment.method.check(Stream(ahead, stream.test, stream.sizes))
    tiny_experiment("mnemonics", exemplar_epochs=0).method.check(Stream(ahead, stream.test, stream.sizes))


@pytest.mark.parametrize(
    ("name", "value"), [("exemplar_epochs", -1), ("exemplar_lr", 0.0), ("inner_steps", 0), ("inner_lr", 0.0)]
)
def test_settings_out_of_range(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} {value} must"):
        tiny_experiment("mnemonics", **{name: value})
