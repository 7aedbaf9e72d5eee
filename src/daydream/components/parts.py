"""Parts that any method can carry, none of which costs anything at inference.

Each is off by default, and a run without them is what it would be without this file. They change a task's one stage
that trains the network with its batch norm: strong augmentation and blank squares within rotations within blending.
Those that need unlabelled images, such as `pile_teaching.py`, come around all of them, as imagination does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from daydream.components.blending import Blending
from daydream.components.component import Component
from daydream.components.erasing import erased
from daydream.components.rotations import rotated, settled
from daydream.components.strengthening import strengthened
from daydream.methods.method import Method
from daydream.protocol.stream import Task
from daydream.settings import require, setting
from daydream.stages.stage import Stage

SETTLE = 0.2
"""The share of a base task's epochs, the last ones, that train upright images alone (chosen on held-out images)."""


@dataclass(frozen=True, kw_only=True)
class PartsSettings:
    """Settings of the parts."""

    blend: float = setting(
        1.0, "share of the trained network when it is blended with the one before the increment; 1 is no blending"
    )
    rotations: Literal["none", "base", "all"] = setting(
        "none", "train each new class's four rotations as four classes: never, in the base task, in all (ICML 2020)"
    )
    erase: float = setting(
        0.0, "side of a square blanked in every training image, as a share of the image's; 0 is none (arXiv 1708.04552)"
    )
    augment: Literal["plain", "strong"] = setting(
        "plain",
        "strong: one of 14 operations, drawn at random, on every training image too (TrivialAugment, ICCV 2021)",
    )

    def __post_init__(self) -> None:
        require(0 < self.blend <= 1, f"--blend {self.blend:g} must be a number above 0 and at most 1")
        require(0 <= self.erase < 1, f"--erase {self.erase:g} must be at least 0 and below 1")

    @property
    def switches(self) -> dict[str, bool]:
        """Say of every part, by the setting that has its name, whether it is on."""
        return {
            "blend": self.blend != 1,
            "rotations": self.rotations != "none",
            "erase": self.erase > 0,
            "augment": self.augment != "plain",
        }

    @property
    def wanted(self) -> dict[str, str]:
        """Name the parts that are on, with the value that says so."""
        return {name: str(getattr(self, name)) for name, on in self.switches.items() if on}

    @property
    def in_use(self) -> dict[str, Any]:
        """Return the settings of parts that are on."""
        return {name: getattr(self, name) for name in self.wanted}


class Parts(Component):
    """Puts the parts that are wanted into a method's stages."""

    def __init__(self, settings: PartsSettings, method: Method[Any]) -> None:
        self.settings, self.method = settings, method
        self.blending = Blending(settings.blend)

    def stages(self, task: Task, stages: Sequence[Stage]) -> list[Stage]:
        """Return a method's stages of a task with the parts in the last one that trains the network.

        What changes images alone is in those before it too, where a method trains one network to teach another.
        """
        training = [place for place, stage in enumerate(stages) if "net" in stage.train_mode]
        if not training:
            return list(stages)
        place = training[-1]
        before = [self.seen(stage) if "net" in stage.train_mode else stage for stage in stages[:place]]
        return [*before, *self.carried(task, stages[place]), *stages[place + 1 :]]

    def seen(self, stage: Stage) -> Stage:
        """Return a training stage with other images: augmented strongly, then with a blank square."""
        if self.settings.augment == "strong":
            stage = strengthened(stage)
        return erased(stage, self.settings.erase) if self.settings.erase else stage

    def rotates(self, task: Task) -> bool:
        """Say whether the head has turned classes while the task trains."""
        return self.settings.rotations == "all" or (self.settings.rotations == "base" and task.is_base)

    def carried(self, task: Task, stage: Stage) -> list[Stage]:
        """Return a training stage with its parts: in the base task it may become two."""
        wanted, stage = self.settings.wanted, self.seen(stage)
        if self.rotates(task):
            turn = partial(rotated, seed=self.method.setup.seed, task=task.index)
            if task.is_base:
                return settled(stage, turn, SETTLE)
            stage = turn(stage)
        if "blend" in wanted and not task.is_base:
            stage = self.blending.blended(stage)
        return [stage]
