"""What components that use the unlabelled pile share: which of its images are in use, and how they pass beside a batch.

The pile is mined when a task ends, and serves until the next one has: the state keeps which images, and their classes.
"""

import contextlib
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from daydream.components import mining
from daydream.components.component import Component
from daydream.data.images import ImageSet
from daydream.methods.method import Method, network
from daydream.nets.network import Company
from daydream.protocol.inference import over_images
from daydream.protocol.stream import Task
from daydream.stages.losses import cosine_distillation, soft_labels
from daydream.stages.stage import Batch, Samples, Stage, State

SUITED, WORTH = 24.0, 5.0  # V_0 and K of `suited_weight`


@dataclass(frozen=True)
class Teaching:
    """What is taught on unlabelled images, as numbers."""

    distill: float
    """W of the distillation: its strength is W sqrt(seen / new)."""
    labels: float = 0.0
    """Weight of the cross-entropy on predicted classes (the released code's term)."""
    soft: float = 0.0
    """Weight of the cross-entropy on what the old network says of them."""
    mining: Literal["entropy", "uniform"] = "entropy"
    batch: int | None = None
    """Unlabelled images in a step, where there are no counterparts; None is what is usual."""
    suited: bool = False
    """Whether soft labels, where they have no weight, have the one that suits memory and classes."""
    base: float = 0.0
    """Weight of naming the turn of unlabelled images in the base task."""

    @property
    def anything(self) -> bool:
        return bool(self.distill or self.labels or self.softens)

    @property
    def softens(self) -> bool:
        """Say whether there are soft labels."""
        return bool(self.soft or self.suited)

    @property
    def asks_old(self) -> bool:
        """Say whether the old network sees the unlabelled images too."""
        return bool(self.distill or self.softens)

    def samples(self, count: int, real: int, suits: float) -> dict[str, float]:
        """Return as how many samples `count` unlabelled images count beside real ones, by cross-entropy.

        `suits` is the weight of soft labels that suits; with it they count as if they were half as many as real images.
        """
        soft = suits * real / 2 if self.suited and not self.soft else self.soft * count
        return {name: size for name, size in (("pile_labels", self.labels * count), ("pile_soft", soft)) if size}

    def strength(self, task: Task) -> float:
        return self.distill * math.sqrt(task.num_seen / task.num_new)

    def terms(
        self, method: Method[Any], state: State, z: Tensor, pile: Samples, strength: float, z_old: Tensor | None
    ) -> dict[str, Tensor]:
        """Return the losses on unlabelled images of features z, and of z_old under the old network, if it is asked."""
        terms = dict[str, Tensor]()
        if self.labels:
            terms["pile_labels"] = method.classification(state, z, pile.labels)
        if self.softens and z_old is not None:
            head, old_head = network(state).head, network(state, "old").head
            terms["pile_soft"] = soft_labels(head(z), old_head(z_old))
        if self.distill and z_old is not None:
            terms["pile_distill"] = strength * cosine_distillation(z, z_old)
        return terms


def suited_weight(num_old: int, num_seen: int, held: int) -> float:
    """Return the weight of soft labels that suits: V = V_0 (old / seen) K / (K + k), with k exemplars per old class.

    They speak of old classes alone, and say less than exemplars where there are many of them: K per class are worth as
    much as the pile. Both numbers were chosen on held-out images (docs/unlabelled.md).
    """
    return SUITED * (num_old / num_seen) * WORTH / (WORTH + held / num_old)


def in_one_mean(terms: dict[str, Tensor], samples: Mapping[str, float]) -> dict[str, Tensor]:
    """Return terms of which those named are weighted as one mean over all their samples, each a mean over its own."""
    whole = sum(samples.values())
    return {key: term * (samples[key] / whole) if key in samples else term for key, term in terms.items()}


class FromPile(Component):
    """Brings unlabelled images to the stages of a method that replay exemplars."""

    def __init__(self, method: Method[Any], pile: ImageSet, teaching: Teaching) -> None:
        self.method, self.setup, self.pile, self.teaching = method, method.setup, pile, teaching

    def stages(self, task: Task, stages: Sequence[Stage]) -> list[Stage]:
        """Return a method's stages of a task with the component in them."""
        carried = [self.replayed(task, stage) if stage.exemplars else stage for stage in stages]
        return carried if task.is_last else [*carried, self.closing(task)]

    @abstractmethod
    def replayed(self, task: Task, stage: Stage) -> Stage:
        """Return a stage that replays exemplars, with unlabelled images in it."""

    def closing(self, task: Task) -> Stage:
        """Return the stage that ends a task which another follows: it mines the pile for that one."""
        return Stage(name="mine", begin=lambda state: self.mine(state, at_least=2))

    def along(
        self, stage: Stage, state: State, batch: Batch, company: Company, taught: Tensor | None
    ) -> tuple[dict[str, Tensor], Tensor, Tensor | None]:
        """Return a stage's losses, the features of what passes along, and those the old network has of images `taught`.

        The old network sees those in the method's own pass of it, where it has one.
        """
        theirs = Company(images=taught)
        with contextlib.ExitStack() as along:
            along.enter_context(network(state).joined_by(company))
            if taught is not None and "old" in state.nets:
                along.enter_context(network(state, "old").joined_by(theirs))
            terms = dict(stage.losses(state, batch))
        assert company.features is not None, "the stage passed no images"
        if taught is not None and theirs.features is None:
            with torch.no_grad():
                theirs.features = network(state, "old").features(taught)
        return terms, company.features, theirs.features

    def suits(self, task: Task) -> float:
        """Return the weight of soft labels that suits an increment."""
        return suited_weight(task.num_old, task.num_seen, self.method.held(task)) if task.num_old else 0.0

    def mine(self, state: State, at_least: int) -> None:
        """Choose the unlabelled images to use until the next task ends; the state keeps which, and their classes."""
        scores = over_images(lambda x: (self.method.predict(state, x).scores,), self.pile, self.setup.prepare)[0]
        if self.teaching.mining == "entropy":
            index, classes = mining.most_certain(scores, at_least)
        else:
            classes, index = scores.argmax(1).sort(stable=True)
        state.tensors["pile.index"], state.tensors["pile.classes"] = index, classes

    def mined(self, state: State) -> ImageSet:
        """Return the unlabelled images in use, labelled with their predicted classes."""
        images = self.pile.select(state.tensors["pile.index"])
        classes = state.tensors["pile.classes"].cpu()
        return ImageSet(images.pixels, classes, tuple(map(str, range(int(classes.max()) + 1))))
