"""Small runs for tests: the whole loop on a handful of shapes."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daydream.engine import Display, Place
from daydream.experiment.config import make_config
from daydream.experiment.experiment import Experiment
from daydream.methods import load_method
from daydream.stages import Stage

TINY_DATA = {"classes": 6, "train_per_class": 12, "test_per_class": 6, "image_size": 16, "pile_size": 60}
TINY_RUN = {"backbone": "resnet10", "base": 2, "steps": 2, "memory": 12, "checkpoint_every": 1}
TINY_RECIPE = {"base_epochs": 2, "epochs": 2, "batch_size": 8, "lr": 0.05}
TINY_STAGES: dict[str, dict[str, int]] = {
    "bic": {"correction_epochs": 4},
    "podnet": {"finetune_epochs": 3},
    "der": {"head_epochs": 3},
    "der-pruned": {"head_epochs": 3},
    "foster": {"compression_epochs": 2},
    "mnemonics": {"exemplar_epochs": 3, "inner_steps": 3, "finetune_epochs": 2},
    "dmc": {"updates": 4},
    "gd": {"finetune_epochs": 2},
    "simplecil": {"base_epochs": 4},
    "ranpac": {"base_epochs": 4, "width": 64},
}
"""Lengths of the stages that are a method's own."""
TINY_IMAGINATION = {
    "generator_epochs": 2,
    "generator_updates": 2,
    "generator_width": 16,
    "generator_start": "noise",
}


class Watch(Display):
    """A display that shows nothing and can end a run at a step: politely (`stop_at`) or by a crash (`crash_at`)."""

    def __init__(self, stop_at: int | None = None, crash_at: int | None = None) -> None:
        super().__init__()
        self.stop_at, self.crash_at, self.asked = stop_at, crash_at, 0

    def stop_asked(self) -> bool:
        self.asked += 1
        if self.asked == self.crash_at:
            raise RuntimeError("the machine fell over")
        return self.asked == self.stop_at


class KillAt(Watch):
    """A display that kills its process at a step, with SIGKILL: nothing is written, nothing tidied."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.kill_at = step

    def stop_asked(self) -> bool:
        if super().stop_asked() or self.asked == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return False


class StopIn(Watch):
    """A display that ends a run politely at the second step of a stage of a task."""

    def __init__(self, task: int, stage: str) -> None:
        super().__init__()
        self.place, self.here = (task, stage), False

    def stage_begins(self, place: Place, stage: Stage, from_epoch: int) -> None:
        self.here, self.asked = (place.task, stage.name) == self.place, 0

    def stop_asked(self) -> bool:
        self.asked += 1
        return self.here and self.asked == 2


def tiny_experiment(
    method: str = "replay",
    run: Mapping[str, Any] = {},
    imagination: Mapping[str, Any] = {},
    parts: Mapping[str, Any] = {},
    pile: Mapping[str, Any] = {},
    **settings: Any,
) -> Experiment:
    values = {**TINY_RUN, "method": method, **run}
    imagination = {**TINY_IMAGINATION, **imagination} if load_method(method).replays else None
    return Experiment(
        make_config(
            values, TINY_DATA, {**TINY_RECIPE, **TINY_STAGES.get(method, {}), **settings}, imagination, pile, parts
        )
    )


def real_training(method: str, folder: Path, **settings: Any) -> dict[str, Any]:
    """Train on two classes, then on two more, long enough to learn; fine-tuning, which forgets, cannot pass 50%."""
    data = {"classes": 4, "train_per_class": 80, "test_per_class": 40, "image_size": 20}
    run = {"method": method, "backbone": "resnet10", "base": 2, "steps": 1, "memory": 40}
    recipe = {"base_epochs": 12, "epochs": 12, "batch_size": 16, **settings}
    return Experiment(make_config(run, data, recipe)).start(folder, Watch())


def without_times(value: Any) -> Any:
    """Return a result with its times left out."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k != "seconds"}
    return [without_times(v) for v in value] if isinstance(value, list) else value
