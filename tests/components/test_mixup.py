"""MixUp replay: what is mixed, by which shares, and that no generator is trained."""

from pathlib import Path

import pytest
import torch
from stages_driven import after_task, begun
from tiny_runs import Watch, tiny_experiment

from daydream.cli.main import main
from daydream.components.mixup import PixelMixup
from daydream.engine.feed import Feed
from daydream.methods.method import network
from daydream.stages.stage import Samples
from daydream.storage.run_folder import RunFolder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("mixup") / "run"
    tiny_experiment("mixup").start(folder, Watch())
    return RunFolder(folder)


def samples(images: torch.Tensor, **fields: torch.Tensor) -> Samples:
    nothing = torch.zeros(len(images), dtype=torch.int64)
    return Samples(images, nothing, nothing, fields)


def test_a_counterpart_is_a_mixture_of_its_exemplar_and_its_unlabelled_image() -> None:
    experiment = tiny_experiment("mixup")
    component = experiment.carried.imagination
    assert isinstance(component, PixelMixup)
    net = experiment.method.new_network(experiment.stream.task(0))
    m, u, mu = torch.randn(3, 3, 24, 24), torch.randn(6, 3, 24, 24), torch.rand(6)
    company = component.company(experiment.fresh_state(), net, samples(m), samples(u, share=mu))
    assert company.maps is None
    assert company.images is not None
    torch.testing.assert_close(company.images, torch.stack([mu[i] * m[i // 2] + (1 - mu[i]) * u[i] for i in range(6)]))


def test_shares_follow_the_beta_distribution() -> None:
    experiment = tiny_experiment("mixup")
    assert experiment.carried.imagination is not None
    share = experiment.carried.imagination.noise["share"](torch.Generator().manual_seed(1), 100, 200)
    assert share.shape == (100, 200)
    assert float(share.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(share.var()) == pytest.approx(1 / 12, rel=0.03)


def test_the_pile_is_mined_and_no_generator_trains(finished: RunFolder) -> None:
    stages = {row["stage"] for row in finished.metrics() if row["kind"] == "epoch"}
    assert stages == {"train"}
    losses = [row["losses"] for row in finished.metrics() if row["kind"] == "epoch" and row["task"] > 0]
    assert all(row["imagined"] > 0 for row in losses)


def test_there_is_nothing_to_look_at(finished: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["look", str(finished.path), "--out", str(tmp_path / "x.png")])
    assert stop.value.code == 2
    assert "has no generators" in capsys.readouterr().err


def test_mixtures_do_not_enter_the_statistics_of_real_images() -> None:
    experiment = tiny_experiment("mixup")
    state = after_task(experiment, experiment.fresh_state(), 0)
    task = experiment.stream.task(1)
    found = []
    for stage in (experiment.stages(task)[0], experiment.method.stages(task)[0]):
        own = begun(state, stage)
        net = network(own).train()
        feed = Feed(stage, own, (1, 0), 1)
        feed.load(0)
        stage.losses(own, feed.read(torch.zeros(1, dtype=torch.int64)))
        found.append(net.upper.stage4[0].norm1.running_mean.clone())
    torch.testing.assert_close(*found)


def test_mixtures_alone_are_its_default() -> None:
    """As measured beside the paper's row; `imagine` distils on the pile too."""
    found = {name: tiny_experiment(name).config.carried.pile_distill for name in ("mixup", "imagine")}
    assert found == {"mixup": 0.0, "imagine": 0.5}
