"""The architecture carries a method that uses all of it, and carries it through interruptions."""

from pathlib import Path

import pytest
import torch
from tiny_runs import Watch, tiny_experiment, without_times

from daydream.engine import Interrupted
from daydream.experiment.experiment import Experiment
from daydream.storage.checkpoint_files import load_checkpoint
from daydream.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

WALLS = f"{Path(__file__).parents[1] / 'support' / 'walls_method.py'}:Walls"


def walls() -> Experiment:
    return tiny_experiment(WALLS)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("walls") / "run"
    walls().start(folder, Watch())
    return RunFolder(folder)


def test_everything_it_asked_for_happened(undisturbed: RunFolder) -> None:
    found = load_checkpoint(undisturbed.path / "checkpoint")
    assert found is not None
    info, components = found
    assert set(info["state"]["nets"]) == {"net", "critic", "tower"}
    assert info["state"]["nets"]["tower"]["config"]["depth"] == 3
    epochs = [row for row in undisturbed.metrics() if row["kind"] == "epoch" and row["stage"] == "together"]
    assert {"ce", "pull", "smooth"} == set(epochs[0]["losses"])
    exemplars = tiny_experiment(WALLS).method.setup.prepare(components["memory"]["images"])
    assert components["tensors"]["pixels"].shape[1:] == exemplars.shape[1:]


def test_pixels_really_train(tmp_path: Path) -> None:
    experiment = walls()
    with pytest.raises(Interrupted):
        experiment.start(tmp_path / "run", Watch(stop_at=6 + 4))  # a few steps into the first increment
    found = load_checkpoint(tmp_path / "run" / "checkpoint")
    assert found is not None
    tensors, memory = found[1]["tensors"], found[1]["memory"]
    moved = tensors["pixels"] - experiment.method.setup.prepare(memory["images"])
    assert 0 < moved.abs().max() < 10
    assert torch.isfinite(moved).all()


@pytest.mark.parametrize("step", [1, 2, 7, 8, 9, 11, 14, 16, 17, 21])
def test_stopped_politely_and_resumed_it_ends_the_same(undisturbed: RunFolder, tmp_path: Path, step: int) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        walls().start(folder, Watch(stop_at=step))
    result = walls().resume(RunFolder.open(folder), Watch())
    assert without_times(result) == without_times(undisturbed.result)


@pytest.mark.parametrize("step", [1, 5, 8, 13, 20])
def test_crashed_and_resumed_it_ends_the_same(undisturbed: RunFolder, tmp_path: Path, step: int) -> None:
    folder = tmp_path / "run"
    with pytest.raises(RuntimeError, match="fell over"):
        walls().start(folder, Watch(crash_at=step))
    result = walls().resume(RunFolder.open(folder), Watch())
    assert without_times(result) == without_times(undisturbed.result)
    assert without_times(RunFolder(folder).metrics()) == without_times(undisturbed.metrics())
