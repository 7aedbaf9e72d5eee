"""One suite over every registered method: a new method is tested the day it is registered."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from forked import killed
from tiny_runs import KillAt, Watch, tiny_experiment, without_times

from daydream.engine import Interrupted
from daydream.methods import METHODS, load_method
from daydream.storage.run_folder import RunFolder

RESULT_KEYS = {
    "method", "data", "reports", "average_nme", "average_cnn", "last_nme", "last_cnn", "forgetting", "parameters",
    "head_parameters", "seconds", "tasks", "config", "evaluated_on",
}  # fmt: skip


@pytest.fixture(scope="module", params=sorted(METHODS))
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("contract") / request.param
    tiny_experiment(request.param).start(folder, Watch())
    return RunFolder(folder)


def test_the_run_folder_is_whole(finished: RunFolder) -> None:
    result = json.loads((finished.path / "result.json").read_text())
    assert result.keys() >= RESULT_KEYS
    assert result["config"] == finished.config
    tasks = [row for row in finished.metrics() if row["kind"] == "task"]
    assert [{k: v for k, v in row.items() if k != "kind"} for row in tasks] == result["tasks"]
    for row in tasks:
        assert 0 <= row["cnn"]["top1"] <= row["cnn"]["top5"] <= 100
        assert len(row["cnn"]["per_task"]) == row["task"] + 1


def test_memory_keeps_to_its_budget(finished: RunFolder) -> None:
    for row in finished.result["tasks"]:
        if load_method(finished.config["run"]["method"]).keeps_exemplars:
            assert row["exemplars"] == 12 // row["classes"] * row["classes"]
        else:
            assert row["exemplars"] == 0
            assert row["nme"] is None


@pytest.mark.slow
def test_the_same_seed_gives_the_same_metrics_to_the_bit(finished: RunFolder, tmp_path: Path) -> None:
    name = finished.config["run"]["method"]
    tiny_experiment(name).start(tmp_path / "again", Watch())
    assert without_times(RunFolder(tmp_path / "again").metrics()) == without_times(finished.metrics())


@pytest.mark.slow
def test_another_seed_gives_others(finished: RunFolder, tmp_path: Path) -> None:
    name = finished.config["run"]["method"]
    tiny_experiment(name, {"seed": 2}).start(tmp_path / "other", Watch())
    losses = [
        [row["losses"] for row in run.metrics() if row["kind"] == "epoch"]
        for run in (finished, RunFolder(tmp_path / "other"))
    ]
    assert losses[0] != losses[1]


@pytest.mark.slow
def test_it_resumes(finished: RunFolder, tmp_path: Path) -> None:
    name, folder = finished.config["run"]["method"], tmp_path / "stopped"
    with pytest.raises(Interrupted):
        tiny_experiment(name).start(folder, Watch(stop_at=3))
    result = tiny_experiment(name).resume(RunFolder.open(folder), Watch())
    assert without_times(result) == without_times(finished.result)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="a process with a GPU cannot be forked")
def test_it_resumes_after_being_killed(finished: RunFolder, tmp_path: Path) -> None:
    """With SIGKILL, when two thirds of its steps are done: in an increment, whose stages it then goes on with."""
    name, folder = finished.config["run"]["method"], tmp_path / "killed"
    experiment = tiny_experiment(name)
    killed(lambda: experiment.start(folder, KillAt(max(4, experiment.num_steps * 2 // 3))))
    assert RunFolder.open(folder).tasks_done < len(finished.result["tasks"])
    result = tiny_experiment(name).resume(RunFolder.open(folder), Watch())
    assert without_times(result) == without_times(finished.result)


def test_the_plan_is_what_happens(finished: RunFolder) -> None:
    planned = [
        (row.task, stage.name, stage.epochs)
        for row in tiny_experiment(finished.config["run"]["method"]).plan()
        for stage in row.stages
    ]
    epochs = [(row["task"], row["stage"]) for row in finished.metrics() if row["kind"] == "epoch"]
    assert epochs == [(task, name) for task, name, count in planned for _ in range(count)]


def test_every_setting_has_its_line_of_help(finished: RunFolder) -> None:
    for field in dataclasses.fields(load_method(finished.config["run"]["method"]).Settings):
        assert field.metadata.get("help"), field.name
