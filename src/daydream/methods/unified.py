"""The unified classifier: what UCIR ("Learning a Unified Classifier Incrementally via Rebalancing", CVPR 2019) trains.

No method by itself: `ucir` is this and nothing else; `dde` and `mnemonics` build on it, as their papers do. Cosine
scores with a learned scale (section 3.2), features held to those of the old network (3.3), and old classes kept a
margin away from the new ones they are confused with (3.4). Weights of new classes are imprinted, of old ones frozen.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar, cast

from torch import Tensor

from daydream.methods.method import Method, RebalancingSettings, all_but_old_classes, by_both, network, unclamped
from daydream.nets.heads import CosineHead
from daydream.protocol.stream import Task
from daydream.settings import flag, require, setting
from daydream.stages import schedules
from daydream.stages.losses import cosine_distillation, margin_ranking
from daydream.stages.stage import Stage, State

FALLS = schedules.step_down([80, 120], of=160)
NEGATIVES = 2  # new classes, nearest first, that an old sample is kept from, K (released code)
FINETUNE_LR = 0.01  # x0.1 after half of its epochs (released code)
FINETUNE_FALLS = schedules.step_down([10], of=20)


@dataclass(frozen=True, kw_only=True)
class UnifiedSettings(RebalancingSettings):
    """Settings of UCIR; the common recipe but for its schedule and the clamp it does not have."""

    lr: float = setting(0.1, "learning rate, x0.1 after 1/2 and 3/4 of the epochs (released code)")
    clamp: float | None = unclamped()
    less_forget: float = setting(
        5.0, "weight of the less-forget loss, times sqrt(old / new) (released code)", expert=True
    )
    margin: float = setting(
        0.5, "margin between a sample's own cosine and those with new classes (released code)", expert=True
    )
    finetune_epochs: int = setting(
        0, "epochs in which all class weights are fitted to the memory (20 in the ImageNet script)", expert=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("less_forget", "margin"):
            require(getattr(self, name) >= 0, f"{flag(name)} {getattr(self, name)} must not be negative")


U = TypeVar("U", bound=UnifiedSettings)


class Unified(Method[U]):
    """Cross-entropy, less-forget and margin ranking over a cosine head."""

    Settings: ClassVar[type[UnifiedSettings]] = UnifiedSettings
    reports = "cnn"
    head = "cosine"
    recipe = "cross-entropy; rate x0.1 at 80 and 120 of 160"
    replays = True

    def stages(self, task: Task) -> list[Stage]:
        if task.is_base:
            return [self.classify(task, task.train, self.settings.base_epochs), self.select(task)]
        return [self.increment(task), self.select(task), *self.balance(task)]

    def schedule(self, epoch: int, epochs: int) -> float:
        return FALLS(epoch, epochs)

    def increment(self, task: Task) -> Stage:
        """Return the stage that trains all but the weights of old classes, those of new ones imprinted."""
        return replace(self.rehearse(task, task.train, imprinted=True), trains=all_but_old_classes)

    def balance(self, task: Task) -> list[Stage]:
        """Return the stage that fits all class weights to the memory, where it is asked for."""
        if not self.settings.finetune_epochs:
            return []
        return [self.rebalance(task, self.settings, FINETUNE_LR, FINETUNE_FALLS)]

    def terms(self, task: Task, state: State, images: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Return the losses of section 3.5 on new images and exemplars alike."""
        z, z_old = by_both(state, lambda net: net.features(images))
        return {"ce": self.classification(state, z, labels), **self.holding(task, state, z, z_old, labels)}

    def holding(self, task: Task, state: State, z: Tensor, z_old: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Return what holds on to old classes, of features [B, D] and those of the old network."""
        settings = self.settings
        cosines = cast(CosineHead, network(state).head).cosines(z)
        strength = settings.less_forget * math.sqrt(task.num_old / task.num_new)
        return {
            "less_forget": strength * cosine_distillation(z, z_old),
            "margin": margin_ranking(cosines, labels, task.num_old, settings.margin, NEGATIVES),
        }
