"""GD: "Overcoming Catastrophic Forgetting with Unlabeled Data in the Wild" (Lee et al., ICCV 2019), its code's values.

The network M has three teachers: P, M as it was; C, a copy of it trained on the new classes alone; and Q, both of them
together, with no weights of its own. An increment, of l old and k new classes and r in all, has five stages:

- `sample`: as many unlabelled images as there are labelled ones. 30 % of them are those that P scores highest, as many
  for each old class; 70 % are any (section 3.3).
- `teacher`: C learns new images by cross-entropy among new classes, and to be unsure of all others, exemplars and
  unlabelled images, by KL(uniform || C).
- `train` (section 3.2): cross-entropy of labelled images and KL(Q || M) of unlabelled ones, as one mean over all, plus
  l/r T^2 KL(P || M) among old classes and k/r T^2 KL(C || M) among new ones, of all images.
- `finetune`: the head alone by the same losses, with weights by which all classes count alike.
- `select`: random exemplars, as many of each class.

The base task is C's: it learns to be unsure of random images, so no other method shares it. The released code finds
the weights of unlabelled images under the labels -1 and -2, which are other classes'; here they are 1, as is meant. In
each task it draws from another million images, or from the same ones (`--ex-static`), as here. Ours alone: backbone and
augmentation are the run's; a batch holds new images, exemplars and unlabelled images in fixed numbers; the memory holds
no remainder that does not divide by the classes; batch norm rests while the head is fitted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from types import MappingProxyType

import torch
from torch import Tensor

from daydream import rng
from daydream.methods.external import SAMPLED, External, ExternalSettings
from daydream.methods.method import all_but_old_classes, network, unclamped
from daydream.protocol.memory import at_random
from daydream.protocol.stream import Task
from daydream.settings import flag, require, setting
from daydream.stages import losses as loss
from daydream.stages import schedules
from daydream.stages.global_distillation import balances, objective
from daydream.stages.stage import Batch, Group, Losses, Stage, State

TEACHER_FALLS = schedules.step_down((120, 160, 180), of=200)
FALLS = schedules.step_down((120, 160, 170), of=180)
FINETUNE_FALLS = schedules.step_down((10, 15), of=20)
BALANCE = "balance"


@dataclass(frozen=True, kw_only=True)
class GDSettings(ExternalSettings):
    """Settings of global distillation."""

    base_epochs: int = setting(200, "epochs of the base task (released code)")
    epochs: int = setting(180, "epochs of each increment (released code)")
    teacher_epochs: int | None = setting(
        None,
        "epochs of the teacher of new classes; by default 10/9 of --epochs (released code: 200 beside 180)",
        expert=True,
    )
    lr: float = setting(0.1, "learning rate, x0.1 after 2/3, 8/9 and 17/18 of the epochs (released code)")
    clamp: float | None = unclamped()
    finetune_epochs: int = setting(
        20, "epochs in which the head is fitted, all classes counting alike (released code)", expert=True
    )
    finetune_lr: float = setting(
        0.01, "learning rate of that, x0.1 after 1/2 and 3/4 of its epochs (released code)", expert=True
    )
    confidence: float = setting(
        1.0, "weight of the calibration by images of no class of the task (released code)", expert=True
    )
    distillation: float = setting(1.0, "weight of all that the three teachers say (released code)")
    temperature: float = setting(2.0, "temperature of P's and C's distillation, T (released code)", expert=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.temperature > 0, f"--temperature {self.temperature} must be above 0")
        for name in ("confidence", "distillation"):
            require(getattr(self, name) >= 0, f"{flag(name)} {getattr(self, name)} must not be negative")
        epochs = self.teacher_epochs
        require(epochs is None or epochs >= 1, f"--teacher-epochs {epochs} must be at least 1")


class GD(External[GDSettings]):
    """Distillation from the old network, a teacher of the new classes and both together, on unlabelled images too."""

    Settings = GDSettings
    reports = "cnn"
    head = "linear"
    carries = frozenset({"blend", "erase", "augment"})
    refuses = MappingProxyType(
        {
            "imagine": "its three teachers judge images, and a counterpart is a map inside the network",
            "pile_teach": "three teachers judge unlabelled images already",
            "pile_distill": "three teachers judge unlabelled images already",
        }
    )

    def schedule(self, epoch: int, epochs: int) -> float:
        return TEACHER_FALLS(epoch, epochs)

    def stages(self, task: Task) -> list[Stage]:
        if task.is_base:
            return [self.sample(task), self.base(task), self.select(task)]
        train = self.train(task)
        return [self.sample(task), self.teacher(task), train, self.finetune(task, train), self.select(task)]

    def calibrated(self, task: Task, name: str) -> Losses:
        """Return cross-entropy of new images among new classes, and the divergence from uniform of all others."""

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            images = torch.cat([samples.images for samples in batch.streams.values()])
            scores, labels = network(state, name)(images)[:, task.num_old :], batch["new"].labels
            unsure = loss.divergence_from_uniform(scores[len(labels) :])
            ce = loss.cross_entropy(scores[: len(labels)], labels - task.num_old)
            return {"ce": ce, "confidence": self.settings.confidence * unsure.sum() / max(1, len(unsure))}

        return losses

    def base(self, task: Task) -> Stage:
        """Return the stage that trains the first network as a teacher of its classes: no other method shares it."""
        return replace(
            self.classify(task, task.train, self.settings.base_epochs),
            steps=self.steps(task),
            streams=lambda state: self.streams(task, state),
            losses=self.calibrated(task, "net"),
            shared_as=None,
        )

    def teacher(self, task: Task) -> Stage:
        """Return the stage that trains C: a copy of the network, grown, the weights of old classes as they are."""

        def begin(state: State) -> None:
            state.nets["teacher"] = network(state).frozen_copy()
            self.grow(state, task, name="teacher")

        settings = self.settings
        return replace(
            self.classify(task, task.train, settings.teacher_epochs or ceil(settings.epochs * 10 / 9), "teacher"),
            steps=self.steps(task),
            trains=lambda state: all_but_old_classes(state, "teacher"),
            streams=lambda state: self.streams(task, state),
            losses=self.calibrated(task, "teacher"),
            begin=begin,
        )

    def train(self, task: Task) -> Stage:
        """Return the stage that trains the network on labels and on what its three teachers say."""
        return replace(
            self.rehearse(task, task.train),
            steps=self.steps(task),
            streams=lambda state: self.streams(task, state),
            losses=lambda state, batch: self.objective(task, state, batch),
            schedule=FALLS,
        )

    def finetune(self, task: Task, train: Stage) -> Stage:
        """Return the stage that fits the head by the same losses, classes weighted alike; batch norm rests."""
        settings, num_old = self.settings, task.num_old

        def begin(state: State) -> None:
            labelled = [stream.images.counts() for name, stream in train.streams(state).items() if name != "external"]
            counts = torch.stack(labelled).sum(0)[: task.num_seen]
            state.tensors[BALANCE] = balances(counts, num_old).to(state.device)

        def finish(state: State) -> None:
            del state.tensors[BALANCE], state.nets["teacher"]

        return replace(
            train,
            name="finetune",
            epochs=settings.finetune_epochs,
            trains=lambda state: [Group(list(network(state).head.parameters()))],
            optimizer=replace(settings.sgd(), lr=settings.finetune_lr),
            schedule=FINETUNE_FALLS,
            train_mode=frozenset(),
            begin=begin,
            finish=finish,
            exemplars=None,
        )

    def select(self, task: Task) -> Stage:
        """Return the stage that shrinks the memory at random and fills it with random images of the new classes."""

        def begin(state: State) -> None:
            draws, quota = rng.generator(self.setup.seed, "memory", task.index), self.setup.budget.quota(task.num_seen)
            chosen = at_random(task.train.labels, quota, draws)
            state.memory = state.memory.extended(task.train, *chosen, task.num_seen)
            del state.tensors[SAMPLED]

        return Stage(name="select", begin=begin)

    def choose(self, features: Tensor, labels: Tensor, quota: int) -> tuple[Tensor, Tensor]:
        """Choose at random too where a lesson gives known classes again."""
        return at_random(labels, quota, rng.generator(self.setup.seed, "memory"))

    def objective(self, task: Task, state: State, batch: Batch) -> Mapping[str, Tensor]:
        """Return the losses of section 3.2, each image by its class's weight where there are such: in `finetune`."""
        settings, strength = self.settings, self.settings.distillation
        images = torch.cat([samples.images for samples in batch.streams.values()])
        labels = torch.cat([samples.labels for name, samples in batch.streams.items() if name != "external"])
        with torch.no_grad():
            p, c = network(state, "old")(images), network(state, "teacher")(images)[:, task.num_old :]
        weights = self.weights(state, labels, len(images))
        return objective(network(state)(images), labels, p, c, weights, strength, settings.temperature)

    def weights(self, state: State, labels: Tensor, count: int) -> Sequence[Tensor]:
        """Return an image's weights [count] among classes seen, old and new: 1 outside of them, and of no label."""
        whole = torch.ones(3, count, device=state.device)
        if BALANCE in state.tensors:
            whole[:, : len(labels)] = state.tensors[BALANCE].index_select(1, labels)
        return whole.unbind()
