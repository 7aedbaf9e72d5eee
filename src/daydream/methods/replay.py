"""Replay: the baseline of "Learning to Imagine" (CVPR 2022), Table 2, "Baseline": its method without the generators.

Where paper and released code differ we follow the code: a head of 10 proxies per class, scores as in PODNet with scale
3, new proxies imprinted by k-means and old ones frozen; distillation weighted by sqrt(seen / new), on exemplars only;
stem and stages 1 to 3 at a tenth of the learning rate in increments. Cross-entropies are averaged over new images and
exemplars together (alpha_1 = 1). Ours alone: every batch holds new images and exemplars in the proportion of the data,
where the released code shuffles them together; a fixed number of each lets a step be compiled and captured.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor

from daydream.methods.method import Method, RehearsalSettings, by_both, joined, network
from daydream.protocol.stream import Task
from daydream.settings import require, setting
from daydream.stages.losses import cosine_distillation
from daydream.stages.stage import Batch, Group, Stage, State


@dataclass(frozen=True, kw_only=True)
class ReplaySettings(RehearsalSettings):
    """Settings of the replay baseline."""

    distillation: float = setting(1.0, "weight of the distillation, times sqrt(seen / new) (alpha_2; released code)")
    lower_lr: float = setting(
        0.1, "learning rate of stem and stages 1-3 in increments, as a share of --lr (released code)", expert=True
    )
    new_share: float | None = setting(
        None,
        "share of new images in a batch, an epoch having as many steps as without; by default as in the data",
        expert=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.distillation >= 0, f"--distillation {self.distillation} must not be negative")
        share = self.new_share
        require(share is None or 0 < share < 1, f"--new-share {share} must lie between 0 and 1")


class Replay(Method[ReplaySettings]):
    """Cross-entropy on new images and exemplars, cosine distillation of the exemplars' features."""

    Settings = ReplaySettings
    replays = True

    def increment(self, task: Task) -> Stage:
        """Return the stage that learns new classes beside the exemplars of the old ones."""
        settings = self.settings
        strength = settings.distillation * math.sqrt(task.num_seen / task.num_new)

        def trains(state: State) -> Sequence[Group]:
            net = network(state)
            new = [*net.upper.parameters(), *net.head.block(-1)]
            return [Group(list(net.lower.parameters()), factor=settings.lower_lr), Group(new)]

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            images, labels = joined(batch, "new", "old")
            z, z_old = by_both(state, lambda net: net.features(images), lambda old: old.features(batch["old"].images))
            return {
                "ce": self.classification(state, z, labels),
                "distill": strength * cosine_distillation(z[-len(z_old) :], z_old),
            }

        stage = self.rehearse(task, task.train, imprinted=True, new_share=settings.new_share)
        return replace(stage, trains=trains, losses=losses)


class Imagine(Replay):
    """Replay and imagination: the paper's method. See `components/imagination.py`, which adds the generators."""

    imagines = "generators"


@dataclass(frozen=True, kw_only=True)
class DreamSettings(ReplaySettings):
    """Settings of the recipe's training."""

    epochs: int = setting(
        60, "epochs of each increment, no more than the base task has (ours: chosen on held-out images)"
    )


class Dream(Replay):
    """Rotations, blending, and what unlabelled images give: the recipe of `docs/recipe.md`.

    A long training has blank squares too and weak imagination; a short one has time for neither and is taught on the
    pile. Increments have as many epochs as the base task, 60 at most. Both were chosen on held-out images: the long one
    at 160 epochs (docs/notebook/recipe-parts.md), the short one at 40 (pile-choices.md). Nothing between was tried.
    """

    Settings = DreamSettings
    imagines = "generators"
    LONG: ClassVar[int] = 100
    """Epochs of the base task from which on a training is long."""
    defaults = MappingProxyType(
        {"blend": 0.6, "rotations": "base", "erase": 0.375, "imagined_weight": 0.25, "pile_distill": 0.0}
    )

    @classmethod
    def usual(cls, base_epochs: int | None) -> Mapping[str, Any]:
        if base_epochs is None or base_epochs >= cls.LONG:
            return cls.defaults
        epochs = min(base_epochs, cls.Settings.epochs)
        return {"epochs": epochs, "blend": 0.8, "rotations": "base", "counterparts": 0, "pile_teach": True}


class Mixup(Replay):
    """Replay and pixel mixtures in place of imagined counterparts. See `components/mixup.py`, which adds them."""

    imagines = "pixels"
    defaults = MappingProxyType({"pile_distill": 0.0})  # mixtures alone are what the paper compares with
