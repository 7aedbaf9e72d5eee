"""DMC: "Class-incremental Learning via Deep Model Consolidation" (Zhang et al., WACV 2020). It keeps no exemplar.

An expert, a fresh network, learns the new classes alone. Then a student, fresh too, is taught by the network of the
task before and by the expert, on unlabelled images and on no others: its scores of all classes are held to those of its
teachers, each teacher's scores of a sample less their mean (equations 3 and 4). The student is the network of the task,
and a teacher in the next one, so what one consolidation loses the next cannot bring back.

Its authors published no code; numbers are those of a port (unlimitlife), which centres scores as the equation does.
Three other ports differ: FACIL takes off the mean over the batch, class by class (`--centring class`), another the mean
of all of a teacher's scores in the batch (`teacher`), a third that of a sample's scores by both teachers together
(`sample`). Adding a number to all of a teacher's scores of a sample changes what it says of no class, and only the
equation's form leaves the targets as they were.

Updates of the student are counted, not epochs of the pile: 50 epochs are 500,000 updates on all of ImageNet32, and
6,250 where a port draws 16,000 images. They are dealt out as 50 epochs, after whose 35th and 45th the rate falls. The
student's batch-norm statistics come from unlabelled images, as it sees nothing else.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

import torch
from torch import Tensor

from daydream.methods.method import Method, TrainingSettings, network, unclamped
from daydream.protocol.stream import Task
from daydream.settings import flag, require, setting
from daydream.stages import schedules
from daydream.stages.losses import centred, regression
from daydream.stages.stage import Batch, Batches, Group, Stage, State

log = logging.getLogger("daydream")

FALLS = schedules.step_down((140, 180), of=200)
PORTIONS = 50
CONSOLIDATION_FALLS = schedules.step_down((35, 45), of=PORTIONS)


@dataclass(frozen=True, kw_only=True)
class DMCSettings(TrainingSettings):
    """Settings of deep model consolidation."""

    base_epochs: int = setting(200, "epochs of the base task (unlimitlife's port)")
    epochs: int = setting(200, "epochs of the expert on the new classes (unlimitlife's port)")
    lr: float = setting(0.1, "learning rate, x0.1 after 7/10 and 9/10 of the epochs (unlimitlife's port)")
    weight_decay: float = setting(1e-4, "weight decay (unlimitlife's port)", expert=True)
    clamp: float | None = unclamped()
    updates: int = setting(
        6250, "updates of the student, up to a multiple of 50: 50 epochs of 16,000 images (ahhnchangjun's port)"
    )
    student_lr: float | None = setting(
        None,
        "learning rate of the student, x0.1 after 35/50 and 45/50; by default --lr (unlimitlife's port)",
        expert=True,
    )
    centring: Literal["sample-teacher", "sample", "teacher", "class"] = setting(
        "sample-teacher", "which mean is taken off the teachers' scores: the paper's, or that of one of three ports"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.updates >= 1, f"{flag('updates')} {self.updates} must be at least 1")
        require(self.student_lr is None or self.student_lr > 0, f"--student-lr {self.student_lr} must be above 0")


class DMC(Method[DMCSettings]):
    """Cross-entropy for an expert on new classes; then two teachers and a student, on unlabelled images alone."""

    Settings = DMCSettings
    keeps_exemplars = False
    needs_pile = True
    reports = "cnn"
    head = "linear"
    recipe = "cross-entropy; rate x0.1 at 140 and 180 of 200"
    carries = frozenset()

    def schedule(self, epoch: int, epochs: int) -> float:
        return FALLS(epoch, epochs)

    def stages(self, task: Task) -> list[Stage]:
        if task.is_base:
            return [self.classify(task, task.train, self.settings.base_epochs)]
        new = task.train.alone(range(task.num_old, task.num_seen))
        if len(new) < len(task.train):  # of a lesson that gives known classes again
            log.info(
                "dmc leaves out %d images of classes it knows: its expert is of new ones", len(task.train) - len(new)
            )
        return [self.classify(task, new, self.settings.epochs, name="expert"), self.consolidate(task)]

    def consolidate(self, task: Task) -> Stage:
        """Return the stage that teaches a fresh student, on unlabelled images, what its two teachers know."""
        settings = self.settings
        portions = min(PORTIONS, settings.updates)

        def begin(state: State) -> None:
            state.nets["student"] = self.new_network(task, "student").to(state.device)

        def streams(state: State) -> Mapping[str, Batches]:
            return {"pile": Batches(images=self.pile, size=settings.batch_size, augment=self.setup.augment)}

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            images = batch["pile"].images
            with torch.no_grad():
                taught = [network(state, teacher)(images) for teacher in ("net", "expert")]
            scores = network(state, "student")(images)
            return {"consolidate": regression(scores, centred(taught, settings.centring))}

        def finish(state: State) -> None:
            state.nets = {"net": state.nets["student"]}

        return Stage(
            name="consolidate",
            epochs=portions,
            steps=ceil(settings.updates / portions),
            trains=lambda state: [Group(list(state.nets["student"].parameters()))],
            streams=streams,
            losses=losses,
            optimizer=replace(settings.sgd(), lr=settings.student_lr or settings.lr),
            schedule=CONSOLIDATION_FALLS,
            clamp=settings.clamp,
            train_mode=frozenset({"student"}),
            split=settings.centring in ("sample-teacher", "sample"),  # the other means are those of a whole batch
            begin=begin,
            finish=finish,
        )
