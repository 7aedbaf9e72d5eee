"""PODNet: "Pooled Outputs Distillation for Small-Tasks Incremental Learning" (ECCV 2020), with its code's values.

The pooled energies of every stage's map and the embedding are held to those of the old network (section 3.1); classes
are 10 proxies each, trained by an NCA loss (3.2). New proxies are imprinted by k-means, old ones frozen; then all are
fitted to a balanced memory. The released code has a configuration for each accuracy, `cnn` and `nme`. Its margin takes
0.6 off every class's score, which has no effect; `--margin paper` takes it off the target's alone, as the equation
says. The equation's hinge is in neither. Ours alone: the learned scale does not learn from the margin, a batch holds
new images and exemplars in fixed numbers, and batch norm rests while the proxies are fitted, so that the memory need
not be herded again.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from daydream.methods.method import Method, RebalancingSettings, Setup, all_but_old_classes, by_both, network
from daydream.nets.heads import ScaledProxyHead
from daydream.nets.resnet import pooled
from daydream.protocol.stream import Task
from daydream.settings import setting
from daydream.stages.losses import cosine_distillation, nca, pod_spatial
from daydream.stages.stage import Stage, State, constant

HEADS = {"cnn": "scaled-proxy", "nme": "proxy"}  # similarities times 1 and a learned scale, or times 3 squared
SPATIAL = {"cnn": 3.0, "nme": 5.0}  # weight of POD-spatial, times sqrt(seen / new); of POD-flat 1 (released)
FINETUNE_LR = 0.05  # constant (released code)
MARGIN = 0.6  # both released configurations


@dataclass(frozen=True, kw_only=True)
class PODNetSettings(RebalancingSettings):
    """Settings of PODNet, whose recipe is the common one."""

    configuration: Literal["cnn", "nme"] = setting("cnn", "the released configuration, by the accuracy it reports")
    margin: Literal["released", "paper"] = setting(
        "released", "margin of the NCA loss: none in effect, or the paper's", expert=True
    )


class PODNet(Method[PODNetSettings]):
    """NCA over proxies, POD-spatial and POD-flat."""

    Settings = PODNetSettings
    replays = True

    def __init__(self, settings: PODNetSettings, setup: Setup) -> None:
        super().__init__(settings, setup)
        self.reports = settings.configuration
        self.head = HEADS[settings.configuration]
        self.recipe = f"nca, {settings.margin} margin"

    def stages(self, task: Task) -> list[Stage]:
        if task.is_base:
            return [self.classify(task, task.train, self.settings.base_epochs), self.select(task)]
        train = replace(self.rehearse(task, task.train, imprinted=True), trains=all_but_old_classes)
        return [train, self.select(task), self.rebalance(task, self.settings, FINETUNE_LR, constant)]

    def classification(self, state: State, z: Tensor, labels: Tensor) -> Tensor:
        head = network(state).head
        # Detached: a scale that learnt from the margin would turn negative, where the margin is a bonus.
        eta = head.scale.detach() if isinstance(head, ScaledProxyHead) else 1.0
        return nca(head(z), labels, MARGIN * eta if self.settings.margin == "paper" else 0.0)

    def terms(self, task: Task, state: State, images: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Return the losses of section 3 on new images and exemplars alike."""
        settings = self.settings
        maps, maps_old = by_both(state, lambda net: net.maps(images))
        z, z_old = pooled(maps[-1]), pooled(maps_old[-1])
        strength = math.sqrt(task.num_seen / task.num_new)
        return {
            "ce": self.classification(state, z, labels),
            "pod_spatial": strength * SPATIAL[settings.configuration] * pod_spatial(maps, maps_old),
            "pod_flat": strength * cosine_distillation(z, z_old),
        }
