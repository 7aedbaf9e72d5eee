"""BiC (Wu et al., CVPR 2019): distillation, then two numbers that correct the head's bias towards its new classes.

Stage `train` (section 3): lambda L_d + (1 - lambda) L_c with lambda = old / (old + new) classes, on all images but
those held out; L_d without the factor T^2, its teacher's scores corrected. Stage `correct` (section 4): with the
network fixed, alpha and beta turn the new classes' scores s into alpha s + beta so as to minimise the cross-entropy of
held-out images of all classes, plus 0.1 beta^2 / 2. Numbers are those quoted for CIFAR-100.

Held out are the exemplars of herding ranks 1, 11, 21, ... of each old class, and equally many random images of each new
one. A spread over the ranks, not their end, because late ranks are what herding needs to mend a mean, not typical of a
class, and because a memory that shrinks drops its end: with fixed ranks an exemplar stays on its side of the split. As
in the paper, it was trained on once, when its class was new.

Each correction is folded into the linear head, which is exact: W <- alpha W, b <- alpha b + beta. So corrections chain
(the authors' code applies the latest alone, ports chain them), and the network that predicts, teaches and is exported
is the corrected one, with no parameter added. Ours alone: a step of `correct` sees all held-out images, as at test
time, whose scores are computed once; an epoch has as many steps as it would have batches.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from daydream import rng
from daydream.data.images import ImageSet
from daydream.errors import UserError
from daydream.methods.method import Method, RehearsalSettings, by_both, joined, memory_names, network, unclamped
from daydream.nets.heads import LinearHead
from daydream.protocol.inference import over_images
from daydream.protocol.memory import EVERY_HELD, FIRST_HELD
from daydream.protocol.stream import Stream, Task, places_in_class
from daydream.settings import require, setting
from daydream.stages import schedules
from daydream.stages.losses import cross_entropy, soft_cross_entropy
from daydream.stages.stage import SGD, Batch, Group, Stage, State

FALLS = schedules.step_down((100, 150, 200), of=250)
TEMPERATURE = 2.0  # of the distillation, T (paper)
CORRECTION_LR = 0.1  # of alpha and beta (FACIL's port)
SHIFT_PENALTY = 0.1  # on beta^2 / 2 (released code)


@dataclass(frozen=True, kw_only=True)
class BiCSettings(RehearsalSettings):
    """Settings of BiC."""

    base_epochs: int = setting(250, "epochs of the base task (paper, CIFAR-100)")
    epochs: int = setting(250, "epochs of each increment (paper, CIFAR-100)")
    lr: float = setting(0.1, "learning rate, x0.1 after 2/5, 3/5 and 4/5 of the epochs (paper, CIFAR-100)")
    weight_decay: float = setting(2e-4, "weight decay (paper, CIFAR-100)", expert=True)
    clamp: float | None = unclamped()
    correction_epochs: int = setting(200, "epochs in which alpha and beta are learnt (FACIL's port)", expert=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.correction_epochs >= 1, f"--correction-epochs {self.correction_epochs} must be at least 1")


class BiC(Method[BiCSettings]):
    """Cross-entropy and distillation on new images and exemplars, then bias correction on held-out ones."""

    Settings = BiCSettings
    head = "linear"
    reports = "cnn"
    replays = True
    needs = 2  # one to train on and one to correct by
    recipe = "cross-entropy; rate x0.1 at 100, 150 and 200 of 250"

    def schedule(self, epoch: int, epochs: int) -> float:
        return FALLS(epoch, epochs)

    def check(self, stream: Stream) -> None:
        for index in range(1, len(stream)):
            old, new = sum(stream.sizes[:index]), stream.sizes[index]
            held, out = self.setup.budget, self.held_ranks(old)
            if not len(out):
                raise UserError(
                    f"--memory {held.size} with --budget {held.rule} leaves {held.quota(old)} exemplar per class once "
                    f"{old} classes are seen; bic needs 2, one to train on and one to correct by: raise --memory"
                )
            images = stream.train.counts()[old : old + new]
            if images.min() <= len(out):
                name = stream.train.class_names[old + int(images.argmin())]
                raise UserError(
                    f"class '{name}' has {int(images.min())} training images, of which bic would hold out {len(out)}, "
                    f"a tenth of the exemplars of an old class: lower --memory {held.size}"
                )

    def held_ranks(self, num_old: int) -> Tensor:
        """Return the herding ranks of old classes' exemplars that are held out."""
        return torch.arange(FIRST_HELD, self.setup.budget.quota(num_old), EVERY_HELD)

    def trains_on(self, quota: int) -> int:
        return quota - len(range(FIRST_HELD, quota, EVERY_HELD))

    def split(self, task: Task, count: int) -> tuple[ImageSet, ImageSet]:
        """Return the new images to train on, and `count` of each class held out."""
        order = torch.randperm(len(task.train), generator=rng.generator(self.setup.seed, "held out", task.index))
        out = places_in_class(task.train.labels[order]) < count
        return task.train.select(order[~out].sort().values), task.train.select(order[out].sort().values)

    def stages(self, task: Task) -> list[Stage]:
        if task.is_base:
            return [self.classify(task, task.train, self.settings.base_epochs), self.select(task)]
        out = self.held_ranks(task.num_old)
        images, held_out = self.split(task, len(out))
        return [self.train(task, images, out), self.correct(task, held_out, out), self.select(task)]

    def train(self, task: Task, images: ImageSet, without: Tensor) -> Stage:
        """Return the stage that learns new classes and is taught the old ones by the corrected old network."""
        share = task.num_old / task.num_seen

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            images, labels = joined(batch, "new", "old")
            scores, old_scores = by_both(state, lambda net: net(images))
            distill = soft_cross_entropy(scores, old_scores, TEMPERATURE)
            return {"ce": (1 - share) * cross_entropy(scores, labels), "distill": share * distill}

        return replace(self.rehearse(task, images, without=without), losses=losses)

    def correct(self, task: Task, held_out: ImageSet, ranks: Tensor) -> Stage:
        """Return the stage that learns alpha and beta of the new classes and folds them into the head."""
        settings = self.settings

        def begin(state: State) -> None:
            parts = [state.memory.as_set(memory_names(task), ranks), held_out]
            scores = [over_images(lambda x: (network(state)(x),), part, self.setup.prepare)[0] for part in parts]
            state.tensors["scores"] = torch.cat(scores)
            state.tensors["labels"] = torch.cat([part.labels for part in parts]).to(state.device)
            state.tensors["alpha"] = torch.ones((), device=state.device)
            state.tensors["beta"] = torch.zeros((), device=state.device)

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            alpha, beta = state.tensors["alpha"], state.tensors["beta"]
            old, new = state.tensors["scores"].split([task.num_old, task.num_new], dim=1)
            corrected = torch.cat([old, alpha * new + beta], dim=1)
            ce = cross_entropy(corrected, state.tensors["labels"])
            return {"ce": ce, "shift": SHIFT_PENALTY * beta.square() / 2}

        def finish(state: State) -> None:
            del state.tensors["scores"], state.tensors["labels"]
            pair = {name: state.tensors[name].detach() for name in ("alpha", "beta")}
            state.tensors.update(pair)
            cast(LinearHead, network(state).head).rescale(-1, **pair)

        return Stage(
            name="correct",
            epochs=settings.correction_epochs,
            steps=math.ceil((len(held_out) + len(ranks) * task.num_old) / settings.batch_size),
            trains=lambda state: [Group([state.tensors["alpha"], state.tensors["beta"]])],
            losses=losses,
            optimizer=SGD(lr=CORRECTION_LR, weight_decay=0.0),
            begin=begin,
            finish=finish,
            report=lambda state: {name: float(state.tensors[name]) for name in ("alpha", "beta")},
        )
