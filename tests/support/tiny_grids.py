"""Grids small enough for tests: two tasks on a handful of shapes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from daydream.engine import Display
from daydream.reproduce import grids, protocols
from daydream.reproduce.plan import Plan, make_plan

TINY = replace(
    protocols.SMOKE,
    run={**protocols.SMOKE.run, "base": 2, "checkpoint_every": 1},
    data={"classes": 12, "train_per_class": 12, "test_per_class": 4, "image_size": 16, "pile_size": 60},
    method={"base_epochs": 2, "epochs": 2, "batch_size": 12, "finetune_epochs": 1, "correction_epochs": 1},
    imagination={"generator_epochs": 2, "generator_updates": 2, "generator_width": 16},
    exemplars=0.012,
    tasks=dict.fromkeys(grids.GRIDS, 2),
)
CHOICES = protocols.Choices(scale=TINY)


def tiny_plan(out: Path, grid: str = "ablation", *names: str, orders: int = 1, **choices: Any) -> Plan:
    every = grids.build(grid, replace(CHOICES, **choices))
    return make_plan(grid, every, grids.select(every, names, ()), TINY.orders[:orders], out)


class StopAt(Display):
    """A display that asks to stop at a step, counted over all runs."""

    def __init__(self, step: int | None = None) -> None:
        super().__init__()
        self.step, self.asked = step, 0

    def stop_asked(self) -> bool:
        self.asked += 1
        return self.asked == self.step
