"""Small real trainings on shapes: what each method is for must show."""

from pathlib import Path

import pytest
from tiny_runs import Watch

from daydream.experiment.config import make_config
from daydream.experiment.experiment import Experiment

pytestmark = pytest.mark.slow

DATA = {"classes": 6, "train_per_class": 80, "test_per_class": 30, "image_size": 20}
RUN = {"backbone": "resnet10", "base": 2, "steps": 2, "memory": 60}
RECIPE = {"base_epochs": 20, "epochs": 15, "batch_size": 16, "lr": 0.05}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    folder: Path = tmp_path_factory.mktemp("behaviour")
    return {
        name: Experiment(make_config({**RUN, "method": name}, DATA, RECIPE)).start(folder / name, Watch())
        for name in ("finetune", "replay", "joint")
    }


def test_finetuning_forgets(results: dict[str, dict[str, float]]) -> None:
    assert results["finetune"]["forgetting_cnn"] > 50
    assert results["finetune"]["last_cnn"] < 45  # it knows little but its last two classes of six


def test_replay_keeps_what_finetuning_loses(results: dict[str, dict[str, float]]) -> None:
    assert results["replay"]["last_cnn"] > results["finetune"]["last_cnn"] + 15
    assert results["replay"]["forgetting_cnn"] < results["finetune"]["forgetting_cnn"] - 20


def test_joint_training_is_the_upper_bound(results: dict[str, dict[str, float]]) -> None:
    assert results["joint"]["last_cnn"] > results["replay"]["last_cnn"]
    assert results["joint"]["average_cnn"] == results["joint"]["last_cnn"]


def test_joint_per_task_is_another_number(tmp_path: Path) -> None:
    settings = {**RECIPE, "base_epochs": 4, "kind": "per-task"}
    result = Experiment(make_config({**RUN, "method": "joint"}, DATA, settings)).start(tmp_path / "run", Watch())
    assert len(result["tasks"]) == 3
    assert result["average_cnn"] != result["last_cnn"]


@pytest.mark.parametrize(("method", "own"), [("ucir", {}), ("podnet", {"finetune_epochs": 10})])
def test_others_keep_it_too(method: str, own: dict[str, int], tmp_path: Path) -> None:
    """Against the bounds that finetuning, which can know a third of the classes at best, stays within above."""
    config = make_config({**RUN, "method": method}, DATA, {**RECIPE, "lr": 0.1, **own})
    result = Experiment(config).start(tmp_path / "run", Watch())
    assert result["last_cnn"] > 52
    assert result["forgetting_cnn"] < 30
