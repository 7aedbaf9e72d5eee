"""DDE on tiny trainings: neighbours, the joint loss, the momentum effect removed, and UCIR where both are off."""

import copy
import math
from pathlib import Path
from typing import cast

import pytest
import torch
from stages_driven import after_task, batch_of, begun, drive, same, snapshot, stirred
from tiny_runs import StopIn, Watch, real_training, tiny_experiment, without_times
from torch import Tensor

from daydream.engine import Interrupted
from daydream.engine.feed import Feed
from daydream.errors import UserError
from daydream.experiment.experiment import Experiment
from daydream.export.classifier import load_exported
from daydream.methods.dde import DDE, nearest, without
from daydream.methods.method import network
from daydream.nets.heads import CosineHead
from daydream.protocol.inference import over_images
from daydream.stages.losses import cross_entropy, joint_cross_entropy
from daydream.stages.stage import Stage, State
from daydream.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

METHOD = "dde"
OFF = {"neighbours": 0, "momentum_effect": 0.0}
K = 3
SETTINGS = {"neighbours": K}


def randomly(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- the colliding effect --------------------------------------------------------------------------------------------


def test_neighbours_are_the_nearest_new_images_and_never_the_image_itself() -> None:
    z, num_new = randomly(23, 5), 14
    table = nearest(z, num_new, 4)
    for i, row in enumerate(table.tolist()):
        others = [j for j in range(num_new) if j != i]
        distance = {j: float((z[i] / z[i].norm() - z[j] / z[j].norm()).norm()) for j in others}
        assert row == sorted(others, key=lambda j: distance[j])[:4]


def test_the_joint_loss_is_the_equation() -> None:
    scores, neighbours, labels = randomly(6, 4), randomly(6, 3, 4, seed=1), torch.tensor([0, 1, 2, 3, 3, 0])
    total = 0.0
    for s, near, y in zip(scores.tolist(), neighbours.tolist(), labels.tolist(), strict=True):
        p = [math.exp(row[y]) / sum(map(math.exp, row)) for row in [s, *near]]
        total -= math.log((p[0] + sum(p[1:]) / 3) / 2)
    assert float(joint_cross_entropy(scores, neighbours, labels)) == pytest.approx(total / 6, rel=1e-5)


def test_neighbours_equal_to_the_image_give_cross_entropy_and_half_its_gradient() -> None:
    scores, labels = randomly(6, 4).requires_grad_(), torch.tensor([0, 1, 2, 3, 3, 0])
    plain, joint = cross_entropy(scores, labels), joint_cross_entropy(scores, scores.detach()[:, None], labels)
    assert joint.item() == pytest.approx(plain.item(), rel=1e-6)
    (whole,), (half,) = torch.autograd.grad(plain, scores), torch.autograd.grad(joint, scores)
    torch.testing.assert_close(half, whole / 2)


def test_a_batch_brings_the_neighbours_of_its_images(experiment: Experiment, known: State) -> None:
    task = experiment.stream.task(2)
    train = experiment.stages(task)[0]
    state = begun(known, train)
    table, batch = state.tensors["neighbours"], batch_of(train, state, 2)
    assert table.shape == (len(task.train) + len(state.memory), K)
    old, near = batch["old"].index + len(task.train), batch["neighbours"].index.view(-1, K)
    assert torch.equal(near, table[torch.cat([batch["new"].index, old])])
    assert batch["neighbours"].images.shape[0] == K * 8
    z = experiment.method.features(known, task.train)  # by the network as it was
    assert torch.equal(table[: len(task.train)], nearest(z, len(task.train), K))


def test_terms_of_an_increment(experiment: Experiment, known: State) -> None:
    train = experiment.stages(experiment.stream.task(2))[0]
    state = stirred(begun(known, train))
    batch = batch_of(train, state, 2)
    with torch.no_grad():
        found = train.losses(state, batch)
        net, labels = network(state), torch.cat([batch[name].labels for name in ("new", "old")])
        own = net(torch.cat([batch[name].images for name in ("new", "old")]))
        near = net(batch["neighbours"].images).view(len(labels), K, -1)
    assert list(found) == ["ce", "less_forget", "margin"]
    assert float(found["ce"]) == pytest.approx(float(joint_cross_entropy(own, near, labels)), rel=1e-4)
    assert abs(float(found["ce"]) - float(cross_entropy(own, labels))) > 1e-3


def test_neighbours_carry_no_gradient_and_leave_the_statistics_alone(known: State) -> None:
    """One step with and without them, from the same weights: the same statistics, other weights."""
    after = {}
    for name, settings in (("with", {"neighbours": K}), ("without", OFF)):
        experiment = tiny_experiment("dde", epochs=1, batch_size=64, **settings)
        train = experiment.stages(experiment.stream.task(2))[0]
        state = begun(known, train)
        assert train.steps == 1
        drive(experiment, state, 2, train)
        after[name] = snapshot(network(state))
    equal, statistics = same(after["with"], after["without"]), {name for name in after["with"] if "running" in name}
    assert statistics <= equal
    assert not equal & {"lower.stem.0.weight", "upper.stage4.0.conv1.weight", "head.weights.2"}


def test_a_task_of_few_images_gives_the_neighbours_it_has() -> None:
    experiment = tiny_experiment("dde", {"base": 4, "steps": 2, "memory": 6}, neighbours=100)
    state = after_task(experiment, experiment.fresh_state(), 0)
    train = experiment.stages(experiment.stream.task(1))[0]
    state = begun(state, train)
    assert state.tensors["neighbours"].shape == (12 + 4, 11)
    assert len(drive(experiment, state, 1, train)) == 2


# --- the momentum effect ---------------------------------------------------------------------------------------------


def passed_features(stage: Stage, state: State, task: int, steps: int) -> list[Tensor]:
    """Return the mean feature of each step of a stage's first epoch, of a network that does not move."""
    feed, means = Feed(stage, state, (task, stage.name), 1), []
    feed.load(0)
    for step in range(steps):
        batch = feed.read(torch.tensor([step]))
        with torch.no_grad():
            images = torch.cat([batch[name].images for name in ("new", "old")])
            means.append(network(state).features(images).double().mean(0))
            stage.losses(state, batch)
    return means


def test_h_is_the_recursion(experiment: Experiment, known: State) -> None:
    train = experiment.stages(experiment.stream.task(2))[0]
    state = begun(known, train)
    assert not state.tensors["momentum"].any()
    h = torch.zeros(64, dtype=torch.float64)
    for mean in passed_features(train, state, 2, steps=4):
        h = 0.9 * h + mean
    assert h.norm() > 0.1
    torch.testing.assert_close(state.tensors["momentum"].double(), h, rtol=1e-4, atol=1e-6)


def scores_by_loop(state: State, z: Tensor, alpha: float) -> Tensor:
    """Return sigma cos(z, w) - alpha cos(z, h) sigma h^.w^, sample by sample and class by class."""
    head, h = cast(CosineHead, network(state).head), state.tensors["momentum"].double()
    sigma, h, rows = head.scale.item(), h / h.norm(), []
    for f in z.double():
        f = f / f.norm()
        units = [w / w.norm() for w in head.weight()[:, 0].detach().double()]
        rows.append([sigma * float(f @ w) - alpha * float(f @ h) * sigma * float(h @ w) for w in units])
    return torch.tensor(rows)


def test_scores_are_those_of_the_equation(experiment: Experiment, known: State) -> None:
    images = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        z, scores = experiment.method.predict(known, images)
        plain = network(known).head(z)
    torch.testing.assert_close(scores, scores_by_loop(known, z, 0.5), rtol=1e-4, atol=1e-5)
    assert (scores - plain).abs().max() > 0.01


def test_with_all_of_it_removed_scores_do_not_see_the_direction() -> None:
    weight, h, z = randomly(4, 6), randomly(6, seed=1), randomly(5, 6, seed=2)
    along = h / h.norm()
    folded = without(weight.float(), h.float(), 1.0)
    there = z.float() @ folded.T
    torch.testing.assert_close((z + 7 * along).float() @ folded.T, there, rtol=1e-4, atol=1e-4)
    half = without(weight.float(), h.float(), 0.5)
    assert not torch.allclose((z + 7 * along).float() @ half.T, z.float() @ half.T, atol=0.1)


def test_before_the_first_step_nothing_is_removed() -> None:
    weight = randomly(4, 6).float()
    assert torch.equal(without(weight, torch.zeros(6), 0.5), weight)


def test_an_exported_network_predicts_as_the_method_does(unbroken: RunFolder, tmp_path: Path) -> None:
    experiment = tiny_experiment("dde", neighbours=K)
    found = experiment.restore(unbroken)
    assert found is not None
    state, test = found[2], experiment.stream.test
    experiment.classifier(unbroken).write_safetensors(tmp_path / "net.safetensors")
    exported = load_exported(tmp_path / "net.safetensors").scores(test.pixels.fetch(torch.arange(len(test))))
    method = experiment.method
    scores = over_images(lambda x: (method.predict(state, x).scores,), test, method.setup.prepare)[0]
    torch.testing.assert_close(exported, scores)
    plain = over_images(lambda x: (network(state)(x),), test, method.setup.prepare)[0]
    assert (exported - plain).abs().max() > 0.01


# --- UCIR, runs, refusals --------------------------------------------------------------------------------------------


def test_with_both_off_it_is_ucir_to_the_bit(tmp_path: Path) -> None:
    results, states = [], []
    for method, settings in (("ucir", {}), ("dde", OFF)):
        experiment = tiny_experiment(method, **settings)
        result = experiment.start(tmp_path / method, Watch())
        results.append({k: v for k, v in without_times(result).items() if k not in ("config", "method")})
        found = experiment.restore(RunFolder.open(tmp_path / method))
        assert found is not None
        states.append(found[2])
    assert results[0] == results[1]
    a, b = (snapshot(network(state)) for state in states)
    assert same(a, b) == set(a)
    rows = [RunFolder(tmp_path / name).metrics() for name in ("ucir", "dde")]
    losses = [[row["losses"] for row in given if row["kind"] == "epoch"] for given in rows]
    assert losses[0] == losses[1]


def test_its_term_changes_the_weights(known: State) -> None:
    """After the same steps from the same weights, nothing that trains is what UCIR makes of it."""
    ends = []
    for settings in ({"neighbours": K}, OFF):
        experiment = tiny_experiment("dde", **settings)
        train = experiment.stages(experiment.stream.task(2))[0]
        state = begun(known, train)
        drive(experiment, state, 2, train)
        ends.append(snapshot(network(state)))
    trained = {name for name, _ in network(known).named_parameters()} - {"head.weights.0", "head.weights.1"}
    assert not trained & same(*ends)


def test_it_resumes_inside_an_increment(unbroken: RunFolder, tmp_path: Path) -> None:
    experiment = tiny_experiment("dde", neighbours=K)
    with pytest.raises(Interrupted):
        experiment.start(tmp_path / "run", StopIn(2, "train"))
    stopped = RunFolder.open(tmp_path / "run")
    assert without_times(experiment.resume(stopped, Watch())) == without_times(unbroken.result)
    ends = [experiment.restore(run) for run in (stopped, unbroken)]
    assert ends[0] is not None
    assert ends[1] is not None
    assert torch.equal(ends[0][2].tensors["momentum"], ends[1][2].tensors["momentum"])
    assert set(ends[0][2].tensors) == {"momentum"}


def test_it_adds_no_parameter(unbroken: RunFolder) -> None:
    assert unbroken.result is not None
    assert (unbroken.result["parameters"], unbroken.result["head_parameters"]) == (148_624, 6 * 64 + 1)


def test_it_imagines_and_fits_the_class_weights(tmp_path: Path) -> None:
    settings = {"neighbours": K, "finetune_epochs": 1}
    run = tiny_experiment("dde", {"tasks": 2}, imagination={"imagine": True}, parts={"erase": 0.3}, **settings)
    run.start(tmp_path / "run", Watch())
    rows = [row for row in RunFolder(tmp_path / "run").metrics() if row["kind"] == "epoch"]
    terms = {(row["task"], row["stage"]): list(row["losses"]) for row in rows}
    own = ["ce", "less_forget", "margin"]
    assert terms[1, "train"] == [*own, "imagined", "pile_distill"]
    assert terms[1, "finetune"] == own


def test_its_term_falls_and_it_keeps_what_finetuning_loses(tmp_path: Path) -> None:
    result = real_training("dde", tmp_path / "run", neighbours=1, base_epochs=24, epochs=24, lr=0.1)
    assert result["last_cnn"] > 56
    assert result["tasks"][1]["cnn"]["old"] > 60
    assert result["tasks"][1]["cnn"]["new"] > 20
    rows = [row for row in RunFolder(tmp_path / "run").metrics() if row["kind"] == "epoch" and row["task"] == 1]
    joint = [row["losses"]["ce"] for row in rows]
    assert joint[-1] < 0.9 * joint[1]  # the first epoch, at the full rate, leaves the imprinted weights


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"rotations": "all"}, "--rotations all does not fit method 'dde': a turned image has no neighbours"),
    ],
)
def test_parts_that_do_not_fit_say_why(parts: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        tiny_experiment("dde", parts=parts)


def test_parts_that_fit_are_taken(tmp_path: Path) -> None:
    parts = {"rotations": "base", "blend": 0.6}
    tiny_experiment("dde", {"tasks": 2}, parts=parts, epochs=1).start(tmp_path / "run", Watch())


@pytest.mark.parametrize(("name", "value"), [("neighbours", -1), ("momentum_effect", -0.5), ("less_forget", -1.0)])
def test_settings_out_of_range(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} {value} must not be negative"):
        tiny_experiment("dde", **{name: value})


def test_exporting_changes_nothing_in_the_state(experiment: Experiment, known: State) -> None:
    state = copy.deepcopy(known)
    before = snapshot(network(state))
    cast(DDE, experiment.method).exported(state)
    assert same(before, snapshot(network(state))) == set(before)
