"""UCIR: "Learning a Unified Classifier Incrementally via Rebalancing" (CVPR 2019), with its released code's values.

Cosine scores with a learned scale (section 3.2), features held to those of the old network (3.3), and old classes kept
a margin away from the new ones they are confused with (3.4). Weights of new classes are imprinted, those of old classes
frozen. The class-balanced fine-tuning of the released ImageNet script is `--balanced-finetune`; its CIFAR script has
none. Ours alone: the backbone is the run's, and a batch holds new images and exemplars in fixed numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from torch import Tensor

from daydream.methods.method import Method, RebalancingSettings, all_but_old_classes, by_both, network
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
class UCIRSettings(RebalancingSettings):
    """Settings of UCIR; the common recipe but for its schedule and the clamp it does not have."""

    lr: float = setting(0.1, "learning rate, x0.1 after 1/2 and 3/4 of the epochs (released code)")
    clamp: float | None = setting(
        None, "clamp every gradient entry to plus or minus this; by default not (paper)", expert=True
    )
    less_forget: float = setting(5.0, "weight of the less-forget loss, times sqrt(old / new) (released code)")
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


class UCIR(Method[UCIRSettings]):
    """Cross-entropy, less-forget and margin ranking over a cosine head."""

    Settings = UCIRSettings
    reports = "cnn"
    head = "cosine"
    recipe = "cross-entropy; rate x0.1 at 80 and 120 of 160"
    replays = True

    def stages(self, task: Task) -> list[Stage]:
        if task.is_base:
            return [self.classify(task, task.train, self.settings.base_epochs), self.select(task)]
        train = replace(self.rehearse(task, task.train, imprinted=True), trains=all_but_old_classes)
        balance = (
            [self.rebalance(task, self.settings, FINETUNE_LR, FINETUNE_FALLS)] if self.settings.finetune_epochs else []
        )
        return [train, self.select(task), *balance]

    def schedule(self, epoch: int, epochs: int) -> float:
        return FALLS(epoch, epochs)

    def terms(self, task: Task, state: State, images: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Return the losses of section 3.5 on new images and exemplars alike."""
        settings = self.settings
        z, z_old = by_both(state, lambda net: net.features(images))
        cosines = cast(CosineHead, network(state).head).cosines(z)
        strength = settings.less_forget * math.sqrt(task.num_old / task.num_new)
        return {
            "ce": self.classification(state, z, labels),
            "less_forget": strength * cosine_distillation(z, z_old),
            "margin": margin_ranking(cosines, labels, task.num_old, settings.margin, NEGATIVES),
        }
