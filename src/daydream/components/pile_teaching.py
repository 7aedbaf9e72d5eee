"""Teaching on the mined pile, without generators.

Distillation: what the network says of unlabelled images stays what it was,

L = ... + W sqrt(seen / new) mean over mined images u of (1 - cos(z_u, z_u^old)).

The released code of "Learning to Imagine" (CVPR 2022) adds this term to its counterparts, and a cross-entropy on
predicted classes (`--pile-labels`). Ours is the cross-entropy on what the old network says of them (`--pile-soft`): of
weight V beside R real and P unlabelled images it has V P / (R + V P) of the mean, that of real images R / (R + V P).
`--pile-teach` gives it and distillation weights that suit (`suited_weight`). Alone, these terms are the part of
unlabelled data that needs no generator, and so the measure of what generators add.

Unlabelled images pass as guests of the batch: by the statistics of its own images, which they do not enter.
"""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from daydream.components.pile import FromPile, in_one_mean
from daydream.nets.network import Company
from daydream.protocol.stream import Task
from daydream.stages.stage import Batch, Batches, Stage, State

EACH = 2
"""Unlabelled images for an exemplar in a batch: as many as imagination mixes by default."""


class PileTeaching(FromPile):
    """Adds unlabelled images, and what is taught on them, to the stages that replay exemplars."""

    def replayed(self, task: Task, stage: Stage) -> Stage:
        """Return a stage with some unlabelled images for an exemplar, and their losses."""
        name, teaching, strength = stage.exemplars, self.teaching, self.teaching.strength(task)
        suits = self.suits(task)
        assert name is not None

        def streams(state: State) -> Mapping[str, Batches]:
            given = stage.streams(state)
            old = given[name]
            real = sum(own.size for own in given.values())
            size = teaching.batch or (max(1, real // 2) if teaching.suited else EACH * old.size)
            return {**given, "pile": Batches(images=self.mined(state), size=size, augment=old.augment)}

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            pile = batch["pile"]
            company = Company(images=pile.images)
            taught = pile.images if teaching.asks_old else None
            terms, z, z_old = self.along(stage, state, batch, company, taught)
            terms |= teaching.terms(self.method, state, z, pile, strength, z_old)
            unlabelled = teaching.samples(len(pile.labels), company.hosts, suits)
            return in_one_mean(terms, {"ce": company.hosts, **unlabelled}) if unlabelled else terms

        return replace(stage, streams=streams, losses=losses)
