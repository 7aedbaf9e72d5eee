"""Parts that any method can carry, none of which costs anything at inference.

Each is off by default, and a run without them is what it would be without this file. They change a task's one stage
that trains the network with its batch norm: blank squares within rotations within averaging within blending. The one
that needs unlabelled images, `pile_teaching.py`, comes around all of them, as imagination does.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from daydream.components.blending import Blending
from daydream.components.ema import averaged
from daydream.components.erasing import erased
from daydream.components.rotations import rotated, settled
from daydream.methods.method import Method
from daydream.protocol.stream import Stream, Task
from daydream.settings import require, setting
from daydream.stages.stage import Stage

OFF = "1"


@dataclass(frozen=True, kw_only=True)
class PartsSettings:
    """Settings of the parts."""

    blend: str = setting(
        OFF,
        "share A of the trained network when it is blended with the one before the increment: a number, counts (by "
        "class counts) or held-out (chosen on held-out images); 1 is no blending (arXiv 2404.04002, 2312.08977)",
    )
    blend_statistics: Literal["blend", "measure"] = setting(
        "blend", "batch-norm statistics of a blended network: blended too, or measured on new images and exemplars"
    )
    rotations: Literal["none", "base", "all"] = setting(
        "none", "train each new class's four rotations as four classes: never, in the base task, in all (ICML 2020)"
    )
    rotation_views: Literal["four", "one"] = setting(
        "four", "an image appears in all four rotations (a step costs four times as much) or in a random one"
    )
    rotation_settle: float = setting(
        0.2, "share of the base task's epochs, the last ones, that train upright images alone, at a quarter of the cost"
    )
    ema: float = setting(0.0, "decay of an average of the weights that replaces them after an increment; 0 is none")
    erase: float = setting(
        0.0, "side of a square blanked in every training image, as a share of the image's; 0 is none (arXiv 1708.04552)"
    )

    pile_distill: float = setting(
        0.0,
        "for a method that does not imagine: weight of feature distillation on mined unlabelled images, times "
        "sqrt(seen / new); 0 is none",
    )

    def __post_init__(self) -> None:
        share = self.blend
        if share not in ("counts", "held-out"):
            number = _number(share)
            wanted = "must be a number above 0 and at most 1, 'counts' or 'held-out'"
            require(number is not None and 0 < number <= 1, f"--blend {share} {wanted}")
        measured = self.blend_statistics == "measure"
        require(not measured or "blend" in self.wanted, "--blend-statistics measure needs --blend with less than 1")
        settle = self.rotation_settle
        require(0 <= settle < 1, f"--rotation-settle {settle} must be at least 0 and below 1")
        for name in ("ema", "erase"):
            value = getattr(self, name)
            require(0 <= value < 1, f"--{name} {value} must be at least 0 and below 1")
        require(self.pile_distill >= 0, f"--pile-distill {self.pile_distill} must not be negative")

    @property
    def switches(self) -> dict[str, bool]:
        """Say of every part, by the setting that has its name, whether it is on."""
        return {
            "blend": _number(self.blend) != 1,
            "rotations": self.rotations != "none",
            "ema": self.ema > 0,
            "erase": self.erase > 0,
            "pile_distill": self.pile_distill > 0,
        }

    @property
    def wanted(self) -> dict[str, str]:
        """Name the parts that are on, with the value that says so."""
        return {name: str(getattr(self, name)) for name, on in self.switches.items() if on}

    @property
    def in_use(self) -> dict[str, Any]:
        """Return the settings of parts that are on: each begins with its part's name, in the singular."""
        names = [name.removesuffix("s") for name in self.wanted]
        return {key: value for key, value in asdict(self).items() if any(key.startswith(name) for name in names)}


class Parts:
    """Puts the parts that are wanted into a method's stages."""

    def __init__(self, settings: PartsSettings, method: Method[Any]) -> None:
        self.settings, self.method = settings, method
        self.blending = Blending(settings.blend, settings.blend_statistics, method)

    def check(self, stream: Stream) -> None:
        """Raise the user's mistake if stream and parts do not fit; called before anything is written."""
        self.blending.check(stream)

    def stages(self, task: Task, stages: Sequence[Stage]) -> list[Stage]:
        """Return a method's stages of a task with the parts in the last one that trains the network.

        Blank squares are in those before it too, where a method trains one network to teach another.
        """
        training = [place for place, stage in enumerate(stages) if "net" in stage.train_mode]
        if not training:
            return list(stages)
        place, share = training[-1], self.settings.erase
        before = [erased(stage, share) if share and "net" in stage.train_mode else stage for stage in stages[:place]]
        return [*before, *self.carried(task, stages[place]), *stages[place + 1 :]]

    def rotates(self, task: Task) -> bool:
        """Say whether the head has turned classes while the task trains."""
        return self.settings.rotations == "all" or (self.settings.rotations == "base" and task.is_base)

    def carried(self, task: Task, stage: Stage) -> list[Stage]:
        """Return a training stage with its parts: in the base task it may become two."""
        settings, wanted = self.settings, self.settings.wanted
        if "erase" in wanted:
            stage = erased(stage, settings.erase)
        if self.rotates(task):
            turn = partial(rotated, views=settings.rotation_views, seed=self.method.setup.seed, task=task.index)
            if task.is_base:
                return settled(stage, turn, settings.rotation_settle)
            stage = turn(stage)
        if "ema" in wanted and not task.is_base:
            stage = averaged(stage, settings.ema)
        if "blend" in wanted and not task.is_base:
            stage = self.blending.blended(task, stage)
        return [stage]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
