"""PODNet on tiny trainings: its terms in both configurations, what trains when, and that it carries on after a stop."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from stages_driven import after_task, batch_of, begun, drive, same, snapshot, stirred
from tiny_runs import StopIn, Watch, tiny_experiment, without_times
from torch import Tensor

from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.experiment.experiment import Experiment
from daydream.methods.method import network
from daydream.stages.stage import State
from daydream.storage.run_folder import RunFolder

SEEN, NEW = 6, 2
"""Classes in the second increment of the tiny run."""
CONFIGURATIONS = ["cnn", "nme"]


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def experiment(request: pytest.FixtureRequest) -> Experiment:
    return tiny_experiment("podnet", configuration=request.param)


@pytest.fixture(scope="module")
def known(experiment: Experiment) -> State:
    """The state when the second increment begins; to be copied, not changed."""
    return after_task(experiment, after_task(experiment, experiment.fresh_state(), 0), 1)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return tiny_experiment("podnet").start(tmp_path_factory.mktemp("podnet") / "run", Watch())


def energies(stage_map: Tensor) -> Tensor:
    """Energy along each row and each column of one sample's map [C, H, W], as one unit vector."""
    found = []
    for channel in stage_map.double():
        found += [float((row**2).sum()) for row in channel] + [float((column**2).sum()) for column in channel.T]
    return F.normalize(torch.tensor(found, dtype=torch.float64), dim=0)


def nca_by_loop(scores: list[float], y: int) -> float:
    top = max(scores)
    return -(scores[y] - top) + math.log(1 + sum(math.exp(s - top) for j, s in enumerate(scores) if j != y))


def scores_by_loop(f: Tensor, proxies: Tensor, a: float, eta: float) -> list[float]:
    scores = []
    for of_class in proxies:
        near = torch.stack([-((a * F.normalize(f, dim=0) - a * F.normalize(w, dim=0)) ** 2).sum() for w in of_class])
        scores.append(eta * float((near.softmax(0) * near).sum()))
    return scores


def test_terms_of_an_increment(experiment: Experiment, known: State) -> None:
    cnn = experiment.method.reports == "cnn"
    train, *_ = experiment.stages(experiment.stream.task(2))
    state = stirred(begun(known, train))
    batch = batch_of(train, state, 2)
    with torch.no_grad():
        terms = train.losses(state, batch)
        images = torch.cat([batch["new"].images, batch["old"].images])
        maps, maps_old = (network(state, name).maps(images) for name in ("net", "old"))
        proxies = network(state).head.weight().double()
    labels = torch.cat([batch["new"].labels, batch["old"].labels]).tolist()
    nca = spatial = flat = 0.0
    for i, y in enumerate(labels):
        f, f_old = (stages[-1][i].double().mean((1, 2)) for stages in (maps, maps_old))
        nca += nca_by_loop(scores_by_loop(f, proxies, *((1.0, 3.0) if cnn else (3.0, 1.0))), y)
        flat += 1 - float(f @ f_old / (f.norm() * f_old.norm()))
        spatial += sum(float((energies(a[i]) - energies(b[i])).norm()) for a, b in zip(maps, maps_old, strict=True))
    strength, count = math.sqrt(SEEN / NEW), len(labels)
    assert list(terms) == ["ce", "pod_spatial", "pod_flat"]
    assert len(maps) == 4
    assert flat > 0.01
    assert float(terms["ce"]) == pytest.approx(nca / count, rel=1e-4)
    assert float(terms["pod_flat"]) == pytest.approx(strength * flat / count, rel=1e-3)
    assert float(terms["pod_spatial"]) == pytest.approx((3 if cnn else 5) * strength * spatial / 4 / count, rel=1e-4)


def test_old_proxies_are_frozen_in_training(experiment: Experiment, known: State) -> None:
    train, *_ = experiment.stages(experiment.stream.task(2))
    state = begun(known, train)
    before, old = snapshot(network(state)), snapshot(network(state, "old"))
    drive(experiment, state, 2, train)
    assert same(before, snapshot(network(state))) == {"head.weights.0", "head.weights.1"}
    assert same(old, snapshot(network(state, "old"))) == set(old)
    assert train.clamp == 5


def test_only_proxies_change_in_the_finetuning(experiment: Experiment, known: State) -> None:
    task = experiment.stream.task(2)
    train, select, finetune = experiment.stages(task)
    state = begun(known, train)
    drive(experiment, state, 2, select)
    assert torch.bincount(state.memory.labels).tolist() == [2] * SEEN
    before, images = snapshot(network(state)), state.memory.images.clone()
    assert torch.equal(finetune.streams(state)["memory"].images.labels, torch.arange(SEEN).repeat_interleave(2))
    drive(experiment, state, 2, finetune)
    after = snapshot(network(state))
    assert same(before, after) == before.keys() - {"head.weights.0", "head.weights.1", "head.weights.2"}
    assert torch.equal(images, state.memory.images)
    assert (finetune.optimizer.lr, finetune.schedule(19, 20), finetune.exemplars) == (0.05, 1, None)


def test_the_base_task_is_not_finetuned(experiment: Experiment) -> None:
    names = [[stage.name for stage in row.stages] for row in experiment.plan()]
    assert names == [["train", "select"], *[["train", "select", "finetune"]] * 2]


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_the_papers_margin_is_on_the_target_alone(configuration: str) -> None:
    released, paper = (tiny_experiment("podnet", configuration=configuration, margin=m) for m in ("released", "paper"))
    state = released.fresh_state()
    state.nets["net"] = released.method.new_network(released.stream.task(2))
    stirred(state)
    eta = 3.0 if configuration == "cnn" else 1.0
    z, labels = torch.randn(5, 64, generator=torch.Generator().manual_seed(2)), torch.tensor([0, 5, 3, 3, 1])
    scores = network(state).head(z).detach().double().tolist()
    expected = [
        sum(
            nca_by_loop([s - margin * (j == y) for j, s in enumerate(row)], y)
            for row, y in zip(scores, labels.tolist(), strict=True)
        )
        / 5
        for margin in (0, 0.6 * eta)
    ]
    found = [run.method.classification(state, z, labels).item() for run in (released, paper)]
    assert found == pytest.approx(expected, rel=1e-5)
    assert found[1] > found[0] + 0.1


def test_the_scale_does_not_learn_from_the_margin() -> None:
    """With all proxies of all classes alike the scores say nothing, so nothing may pull at the scale."""
    run = tiny_experiment("podnet", margin="paper")
    state = run.fresh_state()
    net = state.nets["net"] = run.method.new_network(run.stream.task(0))
    for block in net.head.weights:
        block.data.fill_(1.0)
    run.method.classification(state, torch.randn(4, 64), torch.tensor([0, 1, 1, 0])).backward()
    [scale] = net.head.shared()
    assert scale.grad is not None
    assert scale.grad.item() == pytest.approx(0, abs=1e-5)


def test_base_tasks_of_different_losses_are_not_shared() -> None:
    values = [{}, {"margin": "paper"}, {"configuration": "nme"}]
    runs = [tiny_experiment("podnet", **own) for own in values]
    default, *others = [run.stages(run.stream.task(0))[0].shared_as for run in runs]
    assert [shared == default for shared in others] == [False, False]


@pytest.mark.parametrize("place", [(0, "train"), (1, "train"), (1, "finetune")])
def test_it_resumes_in_each_stage(place: tuple[int, str], tmp_path: Path, unbroken: dict[str, Any]) -> None:
    run = tiny_experiment("podnet")
    with pytest.raises(Interrupted):
        run.start(tmp_path / "run", StopIn(*place))
    result = run.resume(RunFolder.open(tmp_path / "run"), Watch())
    assert without_times(result) == without_times(unbroken)


@pytest.mark.parametrize(("configuration", "scales"), [("cnn", 1), ("nme", 0)])
def test_what_a_configuration_reports_and_counts(configuration: str, scales: int, tmp_path: Path) -> None:
    result = tiny_experiment("podnet", configuration=configuration).start(tmp_path / "run", Watch())
    assert result["reports"] == configuration
    assert result["forgetting"] == result[f"forgetting_{configuration}"]
    assert result["parameters"] == 148_624
    assert result["head_parameters"] == 6 * 10 * 64 + scales


def test_it_imagines(tmp_path: Path) -> None:
    tiny_experiment("podnet", imagination={"imagine": True}).start(tmp_path / "run", Watch())
    rows = [row for row in RunFolder(tmp_path / "run").metrics() if row["kind"] == "epoch"]
    terms = {(row["task"], row["stage"]): list(row["losses"]) for row in rows}
    own = ["ce", "pod_spatial", "pod_flat"]
    assert terms[0, "train"] == ["ce"]
    assert terms[1, "train"] == terms[2, "train"] == [*own, "imagined", "pile_distill"]
    assert terms[1, "finetune"] == own
    assert {(0, "imagine"), (1, "imagine")} <= terms.keys()


@pytest.mark.parametrize(("name", "value"), [("finetune_epochs", -1)])
def test_settings_out_of_range(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} {value} must "):
        tiny_experiment("podnet", **{name: value})


def test_a_configuration_that_is_none() -> None:
    with pytest.raises(UserError, match="setting 'configuration' of podnet is 'mean', but takes one of cnn, nme"):
        tiny_experiment("podnet", configuration="mean")
