"""Small runs for tests: the whole loop on a handful of shapes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from daydream.config import make_config
from daydream.experiment import Experiment

torch.set_num_threads(1)

TINY_DATA = {"classes": 6, "train_per_class": 12, "test_per_class": 6, "image_size": 16}
TINY_RUN = {"backbone": "resnet10", "base": 2, "steps": 2, "memory": 12, "checkpoint_every": 1}
TINY_RECIPE = {"base_epochs": 2, "epochs": 2, "batch_size": 8, "lr": 0.05}


class Watch:
    """Progress that shows nothing and can end a run at a step: politely (`stop_at`) or by a crash (`crash_at`)."""

    def __init__(self, stop_at: int | None = None, crash_at: int | None = None) -> None:
        self.stop_at, self.crash_at, self.asked = stop_at, crash_at, 0

    def run_begins(self, experiment: Any, folder: Path, resumed: bool) -> None: ...

    def task_begins(self, task: Any, stages: Any) -> None: ...

    def stage_begins(self, task: Any, stage: Any, from_epoch: int) -> None: ...

    def epoch_ends(self, task: Any, stage: Any, report: Any) -> None: ...

    def task_ends(self, row: Mapping[str, Any]) -> None: ...

    def stop_asked(self) -> bool:
        self.asked += 1
        if self.asked == self.crash_at:
            raise RuntimeError("the machine fell over")
        return self.asked == self.stop_at


def tiny_experiment(method: str = "replay", run: Mapping[str, Any] = {}, **settings: Any) -> Experiment:
    values = {**TINY_RUN, "method": method, **run}
    return Experiment(make_config(values, TINY_DATA, {**TINY_RECIPE, **settings}))


def without_times(value: Any) -> Any:
    """Return a result with its times left out."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k != "seconds"}
    return [without_times(v) for v in value] if isinstance(value, list) else value


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("DAYDREAM_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
