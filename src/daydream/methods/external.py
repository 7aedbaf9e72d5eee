"""Unlabelled images beside labelled ones in every batch, chosen anew for each task: what `gd` trains on.

No method by itself. A task takes as many unlabelled images as there are labelled ones (GD, section 3.3): 30 % of them
are those that the network scores highest before the task, as many for each old class, and 70 % are any. A batch holds
new images, exemplars and unlabelled images in fixed numbers, in the proportion of what there is.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import ClassVar, TypeVar

import torch

from daydream import rng
from daydream.methods.method import Method, RebalancingSettings, memory_names, split_batch
from daydream.protocol.inference import over_images
from daydream.protocol.stream import Stream, Task
from daydream.settings import require, setting
from daydream.stages.global_distillation import sampled
from daydream.stages.stage import Batches, Stage, State

log = logging.getLogger("daydream")

SAMPLED = "pile.external"
"""The index of a task's unlabelled images, among the tensors of the state."""


@dataclass(frozen=True, kw_only=True)
class ExternalSettings(RebalancingSettings):
    """Settings of a method that trains on unlabelled images too."""

    external: float = setting(1.0, "unlabelled images of a task for each labelled one (released code)")
    ood: float = setting(
        0.7, "share of them that is drawn at random, not by the old classes' scores (released code)", expert=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.batch_size >= 3, "--batch-size must be at least 3: new images, exemplars and unlabelled ones")
        require(self.external >= 0, f"--external {self.external} must not be negative")
        require(0 <= self.ood <= 1, f"--ood {self.ood} must lie between 0 and 1")


X = TypeVar("X", bound=ExternalSettings)


class External(Method[X]):
    """New images, exemplars and unlabelled images in a batch."""

    Settings: ClassVar[type[ExternalSettings]] = ExternalSettings
    needs_pile = True

    def check(self, stream: Stream) -> None:
        counts, most = stream.train.counts(), 0
        for task, size in enumerate(stream.sizes):
            old = sum(stream.sizes[:task])
            labelled = int(counts[old : old + size].sum()) + self.setup.budget.held(old)
            most = max(most, round(self.settings.external * labelled))
        name, there = type(self).__name__.lower(), len(self.pile)
        if there < most:
            log.info("%s would take %d unlabelled images; the pile has %d: it takes what there is", name, most, there)

    def sampled(self, task: Task) -> int:
        """Return how many unlabelled images a task uses."""
        return min(len(self.pile), round(self.settings.external * (len(task.train) + self.held(task))))

    def sizes(self, task: Task) -> dict[str, int]:
        """Return how many images of each stream make a batch, in the proportion of what there is."""
        new, old, external = len(task.train), self.held(task), self.sampled(task)
        size = self.settings.batch_size
        labelled = max(2, split_batch(size, new + old, external)[0]) if external else size
        num_new = split_batch(labelled, new, old)[0] if old else labelled
        found = {"new": num_new, "old": labelled - num_new, "external": size - labelled}
        return {name: count for name, count in found.items() if count}

    def steps(self, task: Task) -> int:
        """Return how many batches make an epoch: all images count, unlabelled ones too."""
        return ceil((len(task.train) + self.held(task) + self.sampled(task)) / self.settings.batch_size)

    def streams(self, task: Task, state: State) -> Mapping[str, Batches]:
        """Return new images, exemplars and unlabelled images, those there are."""
        sets = {"new": task.train, "old": state.memory.as_set(memory_names(task))}
        sets["external"] = self.pile.select(state.tensors[SAMPLED])
        augment = self.setup.augment
        return {name: Batches(images=sets[name], size=size, augment=augment) for name, size in self.sizes(task).items()}

    def sample(self, task: Task) -> Stage:
        """Return the stage that chooses the unlabelled images of a task by the network as it is, or at random."""

        def begin(state: State) -> None:
            draws, count = rng.generator(self.setup.seed, "external", task.index), self.sampled(task)
            scores = torch.zeros(len(self.pile), 0)
            if not task.is_base:
                scores = over_images(lambda x: (self.predict(state, x).scores,), self.pile, self.setup.prepare)[0]
            state.tensors[SAMPLED] = sampled(scores, count, self.settings.ood, draws)

        return Stage(name="sample", begin=begin)
