"""Expandable representation: what DER ("Dynamically Expandable Representation", CVPR 2021) trains, pruned or not.

No method by itself: `der` is this and nothing else; `der-pruned` builds on it. Every task adds an extractor that starts
as a copy of the newest; those before it are frozen, statistics too. One head without bias reads all features end to end
(section 3.2); an auxiliary one tells the new classes from each other and from all old ones as a single class, by the
new features alone. Then the head is fitted anew to as many images of each class, its scores divided by a temperature
(3.4). The released code starts the head anew with every task, where the paper keeps its old part: so do we. Both heads
begin once more when the warm-up ends.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream import rng
from daydream.methods.method import Method, RehearsalSettings, joined, memory_names, network, unclamped
from daydream.nets.extractor import PAST, Extractor, newest, past, whole, with_weights_of
from daydream.protocol.stream import Task
from daydream.settings import flag, require, setting
from daydream.stages import schedules
from daydream.stages.losses import cross_entropy
from daydream.stages.stage import Batch, Batches, Group, Kinds, Stage, State

BASE_FALLS = schedules.step_down((60, 120, 160), of=200)
LENGTH, WARM_UP, FALLS = 170, 10, (110, 130)  # epochs of an increment (released code)
RECIPE = "cross-entropy; rate x0.1 at 60, 120 and 160 of 200"
HEAD_FALLS = schedules.step_down((15,), of=30)


@dataclass(frozen=True, kw_only=True)
class ExpandingSettings(RehearsalSettings):
    """Settings of DER, pruned or not."""

    base_epochs: int = setting(200, "epochs of the base task (released code)")
    epochs: int = setting(170, "epochs of each increment (released code)")
    lr: float = setting(
        0.1,
        "learning rate, x0.1 at 60, 120 and 160 of 200 epochs of the base task; in increments rising for the first 10 "
        "of 170 and x0.1 at 110 and 130 (released code)",
    )
    clamp: float | None = unclamped()
    auxiliary: float = setting(1.0, "weight of the auxiliary loss (released code)")
    head_epochs: int = setting(30, "epochs in which the head is fitted to a balanced subset (released code)")
    head_lr: float = setting(0.1, "learning rate of that, x0.1 after half of its epochs (released code)", expert=True)
    temperature: float = setting(5.0, "what the scores are divided by meanwhile (released code)", expert=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.auxiliary >= 0, f"--auxiliary {self.auxiliary} must not be negative")
        require(self.head_epochs >= 1, f"--head-epochs {self.head_epochs} must be at least 1")
        for name in ("head_lr", "temperature"):
            require(getattr(self, name) > 0, f"{flag(name)} {getattr(self, name)} must be above 0")


def warm_up(epochs: int) -> int:
    """Return in how many epochs of a training the learning rate rises."""
    return epochs * WARM_UP // LENGTH


def rising(epoch: int, epochs: int) -> float:
    """Rise to 1 in equal steps, and then fall as the released code does."""
    rise = warm_up(epochs)
    return (epoch + 1) / rise if epoch < rise else schedules.step_down(FALLS, of=LENGTH)(epoch, epochs)


E = TypeVar("E", bound=ExpandingSettings)


class Expanding(Method[E]):
    """An extractor for each task, a head over all of them."""

    Settings: ClassVar[type[ExpandingSettings]] = ExpandingSettings
    kinds: ClassVar[Kinds] = {"Extractor": Extractor}
    reports = "cnn"
    head = "plain"
    recipe = RECIPE
    carries = frozenset({"erase", "augment"})
    refuses = MappingProxyType(
        {
            "imagine": "a counterpart has features under the newest extractor alone, the head reads those of all",
            "blend": "an increment trains a new extractor, so there is none before it to blend with",
            "rotations": "the auxiliary head has no place for turned classes",
            "pile_teach": "unlabelled images teach the features of one extractor, the head reads those of all",
            "pile_distill": "past extractors are frozen, so there is nothing to distil",
        }
    )

    source: str = "net"
    """The network that a new extractor starts as."""

    def schedule(self, epoch: int, epochs: int) -> float:
        return BASE_FALLS(epoch, epochs)

    def expected_parameters(self, task: Task) -> tuple[int, int]:
        body, head = super().expected_parameters(task)
        return body * (task.index + 1), head * (task.index + 1)

    def stages(self, task: Task) -> list[Stage]:
        if task.is_base:
            return [self.classify(task, task.train, self.settings.base_epochs), self.select(task)]
        return [self.expand(task), self.balance(task), self.select(task)]

    def new_network(self, task: Task, name: str = "net", classes: int | None = None) -> Extractor:
        return self.extractor(task)

    def extractor(self, task: Task, inputs: int | None = None) -> Extractor:
        """Build a fresh extractor whose head sees so many inputs, or its own features alone."""
        with rng.seeded(self.setup.seed, "init", task.index):
            return Extractor(self.setup.backbone, self.head, (task.num_seen,), self.setup.cut, inputs)

    def expand(self, task: Task) -> Stage:
        """Return the stage that trains a new extractor and both heads (section 3.2)."""
        settings = self.settings

        def begin(state: State) -> None:
            before = newest(state.nets)
            state.nets[PAST.format(len(past(state.nets)))] = before.alone()
            grown = self.extractor(task, before.head.dim + before.width)
            state.nets["net"] = with_weights_of(grown, network(state, self.source))
            with rng.seeded(self.setup.seed, "auxiliary", task.index):
                auxiliary = torch.randn(task.num_new + 1, before.width) / math.sqrt(before.width)
            state.tensors["auxiliary"] = auxiliary.to(state.device)
            state.tensors["epoch"] = torch.zeros((), dtype=torch.int64, device=state.device)

        def after_epoch(state: State) -> None:
            state.tensors["epoch"] += 1
            if int(state.tensors["epoch"]) == warm_up(settings.epochs):
                self.restart(task, "warm", [*network(state).head.weights, state.tensors["auxiliary"]])

        def finish(state: State) -> None:
            del state.tensors["auxiliary"], state.tensors["epoch"]

        return replace(
            self.rehearse(task, task.train),
            name="expand",
            begin=begin,
            trains=lambda state: [Group([*network(state).parameters(), state.tensors["auxiliary"]])],
            schedule=rising,
            after_epoch=after_epoch,
            finish=finish,
        )

    def terms(self, task: Task, state: State, images: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Return the losses of section 3.2 on new images and exemplars alike."""
        with torch.no_grad():
            before = [net.features(images) for net in past(state.nets)]
        z = network(state).features(images)
        terms = {"ce": self.classification(state, torch.cat([*before, z], dim=1), labels)}
        if self.settings.auxiliary:
            scores = F.linear(z, state.tensors["auxiliary"])
            terms["auxiliary"] = self.settings.auxiliary * cross_entropy(scores, old_as_one(labels, task.num_old))
        return terms

    def balance(self, task: Task) -> Stage:
        """Return the stage that fits the head anew to a random subset with as many images of each class (3.4)."""
        settings = self.settings
        fewest = int(task.train.counts()[task.num_old : task.num_seen].min())
        count = min(max(1, self.held(task) // task.num_old), fewest) * task.num_seen
        size = min(settings.batch_size, count)

        def streams(state: State) -> Mapping[str, Batches]:
            draws = rng.generator(self.setup.seed, "balance", task.index)
            images = state.memory.balanced_with(task.train, draws, memory_names(task))
            return {"balanced": Batches(images=images, size=size, augment=self.setup.augment)}

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            images, labels = joined(batch, "balanced")
            return {"ce": cross_entropy(whole(state.nets)(images) / settings.temperature, labels)}

        return Stage(
            name="balance",
            epochs=settings.head_epochs,
            steps=math.ceil(count / size),
            trains=lambda state: [Group(list(network(state).head.weights))],
            streams=streams,
            losses=losses,
            optimizer=replace(settings.sgd(), lr=settings.head_lr),
            schedule=HEAD_FALLS,
            clamp=settings.clamp,
            begin=lambda state: self.restart(task, "balance", network(state).head.weights),
        )

    @torch.no_grad()
    def restart(self, task: Task, when: str, weights: Iterable[Tensor]) -> None:
        """Draw weights [..., D] again, uniform within 1 / sqrt(D) of 0."""
        draws = rng.generator(self.setup.seed, "restart", when, task.index)
        for weight in weights:
            bound = 1 / math.sqrt(weight.shape[-1])
            weight.copy_((2 * torch.rand(weight.shape, generator=draws) - 1) * bound)


def old_as_one(labels: Tensor, num_old: int) -> Tensor:
    """Return labels of the auxiliary head: 0 for every old class, and from 1 on for the new ones."""
    return (labels - num_old + 1).clamp(min=0)
