"""FOSTER: "Feature Boosting and Compression for Class-Incremental Learning" (ECCV 2022), as its code has it.

Boosting: beside the frozen old network a second extractor, a copy of it at first, learns what the old one lacks. One
head reads both, its old part starting as the old head; its scores are divided by class weights that balance old and new
classes (logits alignment). The new extractor also classifies by a head of its own (feature enhancement), and scores of
old classes stay near the old network's. Compression: a network that starts as the old one is taught by the pair alone,
whose answers are weighted by class. It is what predicts, and the parameters do not grow. As in the released code,
exemplars are herded by the pair, and neither weights are aligned nor parts of the head held at zero: all of its
configurations of CIFAR-100 have that off.

Its published numbers use AutoAugment and Cutout of 16 pixels; their like here is `--augment strong --erase 0.5`. Ours
alone: the backbone is the run's, a batch holds new images and exemplars in fixed numbers, and class weights count the
images there are (the released code takes 500 of a new class for granted).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream import rng
from daydream.methods.method import Method, RehearsalSettings, joined, network, unclamped
from daydream.nets.extractor import PAST, Extractor, Joined, newest, with_weights_of
from daydream.nets.heads import LinearHead
from daydream.protocol.inference import over_images
from daydream.protocol.stream import Task
from daydream.settings import flag, require, setting
from daydream.stages.losses import balanced_distillation, class_weights, cross_entropy, soft_cross_entropy
from daydream.stages.stage import Batch, Group, Kinds, Stage, State

OLD, PAIR = PAST.format(0), ("old", "boosted")
"""The old network's name while a second one grows beside it; the names of both while they teach a third."""


@dataclass(frozen=True, kw_only=True)
class FOSTERSettings(RehearsalSettings):
    """Settings of FOSTER; its rates fall along a cosine."""

    base_epochs: int = setting(200, "epochs of the base task (released code)")
    epochs: int = setting(170, "epochs of each boosting (released code)")
    compression_epochs: int = setting(130, "epochs of each compression, without weight decay (released code)")
    clamp: float | None = unclamped()
    temperature: float = setting(2.0, "temperature of both distillations (released code)", expert=True)
    distillation: float = setting(1.0, "weight of the old network's answers in boosting (released code)")
    beta: float = setting(
        0.94, "how class weights differ in boosting, 0 for not at all (released code, 50 base classes)", expert=True
    )
    compression_beta: float = setting(0.97, "the same in compression (released code, 50 base classes)", expert=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.compression_epochs >= 1, f"--compression-epochs {self.compression_epochs} must be at least 1")
        require(self.temperature > 0, f"--temperature {self.temperature} must be above 0")
        require(self.distillation >= 0, f"--distillation {self.distillation} must not be negative")
        for name in ("beta", "compression_beta"):
            value = getattr(self, name)
            require(0 <= value < 1, f"{flag(name)} {value} must be at least 0 and below 1")


class FOSTER(Method[FOSTERSettings]):
    """Boosting by a second extractor, then compression to one."""

    Settings = FOSTERSettings
    kinds: ClassVar[Kinds] = {"Extractor": Extractor}
    reports = "cnn"
    head = "linear"
    carries = frozenset({"erase", "augment"})
    refuses = MappingProxyType(
        {
            "imagine": "a counterpart has features under the new extractor alone, the head reads those of both",
            "blend": "what compression leaves is taught by the pair anew, and no training went on from the network",
            "rotations": "the head of the pair has no place for turned classes",
            "pile_teach": "unlabelled images teach the features of one extractor, the head reads those of two",
            "pile_distill": "the old network stands beside the new one, so there is nothing to distil",
        }
    )

    def stages(self, task: Task) -> list[Stage]:
        if task.is_base:
            return [self.classify(task, task.train, self.settings.base_epochs), self.select(task)]
        return [self.boost(task), self.compress(task), self.select(task)]

    def new_network(self, task: Task, name: str = "net", classes: int | None = None) -> Extractor:
        return self.extractor(task)

    def extractor(self, task: Task, sizes: tuple[int, ...] = (), inputs: int | None = None) -> Extractor:
        with rng.seeded(self.setup.seed, "init", task.index, inputs or 0):
            return Extractor(self.setup.backbone, self.head, sizes or (task.num_seen,), self.setup.cut, inputs)

    def successor(self, task: Task, old: Extractor, inputs: int | None = None) -> Extractor:
        """Return a network for all classes that starts as the old one, its head in what the old one's head had."""
        net = self.extractor(task, (*old.head.sizes, task.num_new), inputs)
        ours, theirs = cast(LinearHead, net.head), cast(LinearHead, old.head)
        with torch.no_grad():
            for i, (weight, bias) in enumerate(zip(theirs.weights, theirs.biases, strict=True)):
                ours.weights[i][..., : old.width] = weight
                ours.biases[i].copy_(bias)
        return with_weights_of(net, old)

    def weigh(self, state: State, task: Task, beta: float) -> None:
        """Keep the class weights of the images at hand: exemplars of old classes, all images of new ones."""
        old = torch.bincount(state.memory.labels, minlength=task.num_old)
        counts = torch.cat([old, task.train.counts()[task.num_old : task.num_seen]])
        state.tensors["class weights"] = class_weights(counts, beta).to(state.device)

    def boost(self, task: Task) -> Stage:
        """Return the stage that trains a second extractor beside the frozen network."""

        def begin(state: State) -> None:
            old = newest(state.nets)
            state.nets[OLD] = old.frozen_copy()
            state.nets["net"] = self.successor(task, old, 2 * old.width)
            with rng.seeded(self.setup.seed, "own", task.index):
                own = torch.randn(task.num_seen, old.width) / math.sqrt(old.width)
            state.tensors["own weight"] = own.to(state.device)
            state.tensors["own bias"] = torch.zeros(task.num_seen, device=state.device)
            self.weigh(state, task, self.settings.beta)

        def trains(state: State) -> list[Group]:
            own = [state.tensors["own weight"], state.tensors["own bias"]]
            return [Group([*network(state).parameters(), *own])]

        def finish(state: State) -> None:
            del state.tensors["own weight"], state.tensors["own bias"]

        stage = self.rehearse(task, task.train)
        return replace(stage, name="boost", begin=begin, trains=trains, finish=finish)

    def terms(self, task: Task, state: State, images: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Return the losses of boosting on new images and exemplars alike."""
        settings, tensors = self.settings, state.tensors
        with torch.no_grad():
            z_old = network(state, OLD).features(images)
            old_scores = network(state, OLD).head(z_old)
        z = network(state).features(images)
        scores = network(state).head(torch.cat([z_old, z], dim=1))
        return {
            "ce": cross_entropy(scores / tensors["class weights"], labels),
            "own": cross_entropy(F.linear(z, tensors["own weight"], tensors["own bias"]), labels),
            "distill": settings.distillation * soft_cross_entropy(scores, old_scores, settings.temperature),
        }

    def compress(self, task: Task) -> Stage:
        """Return the stage that teaches the pair's answers to one network."""
        settings = self.settings

        def begin(state: State) -> None:
            state.nets.update(old=state.nets.pop(OLD), boosted=state.nets.pop("net"))
            state.nets["net"] = self.successor(task, cast(Extractor, state.nets["old"]))
            self.weigh(state, task, settings.compression_beta)

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            images, _ = joined(batch, "new", "old")
            with torch.no_grad():
                taught = pair(state)(images)
            weights = state.tensors["class weights"]
            scores = network(state)(images)
            return {"compress": balanced_distillation(scores, taught, weights, settings.temperature)}

        return replace(
            self.rehearse(task, task.train),
            name="compress",
            epochs=settings.compression_epochs,
            losses=losses,
            optimizer=replace(settings.sgd(), weight_decay=0.0),
            begin=begin,
        )

    def select(self, task: Task) -> Stage:
        if task.is_base:
            return super().select(task)

        def begin(state: State) -> None:
            features, *_ = over_images(lambda x: (pair(state).features(x),), task.train, self.setup.prepare)
            state.memory = state.memory.updated(task.train, features, task.num_seen)
            for name in PAIR:
                del state.nets[name]
            del state.tensors["class weights"]

        return Stage(name="select", begin=begin)


def pair(state: State) -> Joined:
    """Return the old network and the one beside it as one."""
    return Joined([network(state, name) for name in PAIR])
