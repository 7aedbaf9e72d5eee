"""Imagination in whole tiny runs: what it adds, what it is without, and that it carries on after a stop."""

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from imagining import STEPS, increment
from tiny_runs import Watch, tiny_experiment, without_times
from torch import Tensor

from daydream.engine import Interrupted
from daydream.experiment.experiment import Experiment
from daydream.methods.method import network
from daydream.stages.stage import State
from daydream.storage import checkpoint_files
from daydream.storage.checkpoint_files import load_checkpoint
from daydream.storage.run_folder import RunFolder
from daydream.storage.state import Ledger


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
    inner = checkpoint_files._write_component

    def noting(folder: Path, name: str, tensors: Mapping[str, Tensor]) -> str:
        written.append(name)
        return inner(folder, name, tensors)

    class LastStep(StageWatch):
        """Stops at the last step of the first increment's four epochs."""

        def stop_asked(self) -> bool:
            if self.stages == ["train", "select", "imagine", "train"]:
                self.asked += 1
            return self.asked == 20

    monkeypatch.setattr(checkpoint_files, "_write_component", noting)
    with pytest.raises(Interrupted):
        tiny_experiment("imagine", epochs=4).start(tmp_path / "run", LastStep())
    assert written.count("net.generators") == 1  # when they had been trained
    assert written.count("net.old") == 1
    assert written[written.index("net.old") - 1 :].count("net.net") == 4  # three epochs and the stop
    found = load_checkpoint(tmp_path / "run" / "checkpoint")
    assert found is not None
    assert {"net.net", "net.old", "net.generators"} < set(found[1])
