"""Distillation on the mined pile, without generators: what the network says of unlabelled images stays what it was.

The released code of "Learning to Imagine" (CVPR 2022) adds this term to its counterparts (`--pile-distillation` of
imagination). Alone, it is the part of unlabelled data that needs no generator, and so the measure of what they add:

L = ... + W sqrt(seen / new) mean over mined images u of (1 - cos(z_u, z_u^old)).

Unlabelled images pass as guests of the batch: by the statistics of its own images, which they do not enter. There are
as many as imagination would mix, `--counterparts` for each exemplar; `--mining` says which.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from daydream.components.pile import FromPile, Mining
from daydream.data.images import ImageSet
from daydream.methods.method import Method
from daydream.nets.network import Company
from daydream.protocol.stream import Task
from daydream.stages.losses import cosine_distillation
from daydream.stages.stage import Batch, Batches, Stage, State


class PileDistillation(FromPile):
    """Adds unlabelled images, held to the old network's features, to the stages that replay exemplars."""

    def __init__(self, weight: float, each: int, method: Method[Any], pile: ImageSet, mining: Mining) -> None:
        super().__init__(method, pile, mining)
        self.weight, self.each = weight, each

    def replayed(self, task: Task, stage: Stage) -> Stage:
        """Return a stage with `each` unlabelled images for an exemplar, and their distillation."""
        name, strength = stage.exemplars, self.weight * math.sqrt(task.num_seen / task.num_new)
        assert name is not None

        def streams(state: State) -> Mapping[str, Batches]:
            given = stage.streams(state)
            old = given[name]
            return {**given, "pile": Batches(images=self.mined(state), size=self.each * old.size, augment=old.augment)}

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            images = batch["pile"].images
            terms, z, z_old = self.along(stage, state, batch, Company(images=images), images)
            assert z_old is not None
            return {**terms, "pile_distill": strength * cosine_distillation(z, z_old)}

        return replace(stage, streams=streams, losses=losses)
