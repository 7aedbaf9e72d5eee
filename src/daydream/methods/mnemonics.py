"""Mnemonics: "Mnemonics Training: Multi-Class Incremental Learning without Forgetting" (CVPR 2020): learnt exemplars.

UCIR's training; then, before a task's images go, the pixels of its exemplars are moved so that a classifier which
learns from the exemplars is right on the images they stand for. The problem has two levels. Inner: from the head as it
is, some steps of gradient descent on the exemplars' cross-entropy. Outer: the cross-entropy, under the head so made, of
the task's real images, whose gradient goes back through every inner step into the pixels. Then all class weights are
fitted to the memory.

No released code does this: in the early one the inner gradient is cut off, so that nothing reaches the pixels; the
final one has a single level, at a rate that moves a pixel by less than a grey level, and its cast to bytes wraps round.
Ours follows the paper's idea: only the head is stepped, at one constant rate; a step takes at most a batch of
exemplars, and the network that looks at them rests, by its running statistics; pixels stay within 0 and 255 and are
rounded at the end. Left out: the adjusting of old exemplars by halves that judge each other, and the weight transfer
that learns a scale for each kernel, so a number of this file is not that of the paper's best row.

Shapes: M exemplars of a task's classes, H x W stored pixels.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from daydream.data.augment import Plain
from daydream.data.images import ImageSet, Resident
from daydream.errors import UserError
from daydream.methods.method import memory_names, network
from daydream.methods.unified import Unified, UnifiedSettings
from daydream.nets.heads import CosineHead
from daydream.nets.network import Network
from daydream.protocol.stream import Stream, Task
from daydream.settings import flag, require, setting
from daydream.stages import schedules
from daydream.stages.losses import cosine_cross_entropy, learnt_cosines
from daydream.stages.stage import Adam, Batch, Batches, Group, Stage, State

FALLS = schedules.step_down([10, 20, 30, 40], factor=0.5, of=50)
BETAS = (0.5, 0.999)  # of Adam on pixels (early released code)


@dataclass(frozen=True, kw_only=True)
class MnemonicsSettings(UnifiedSettings):
    """Settings of Mnemonics; the common ones are UCIR's."""

    finetune_epochs: int = setting(
        20, "epochs in which all class weights are fitted to the memory after an increment (paper)", expert=True
    )
    exemplar_epochs: int = setting(50, "epochs in which exemplars' pixels are moved; 0 leaves them as they are (paper)")
    exemplar_lr: float = setting(
        0.01, "rate of Adam on normalised pixels, halved after each fifth of these epochs (paper)", expert=True
    )
    inner_steps: int = setting(
        20, "steps in which the head learns from the exemplars (early released code)", expert=True
    )
    inner_lr: float = setting(0.1, "learning rate of those steps (ours; there learnt, one for each step)", expert=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.exemplar_epochs >= 0, f"--exemplar-epochs {self.exemplar_epochs} must not be negative")
        require(self.inner_steps >= 1, f"--inner-steps {self.inner_steps} must be at least 1")
        for name in ("exemplar_lr", "inner_lr"):
            require(getattr(self, name) > 0, f"{flag(name)} {getattr(self, name)} must be above 0")


class Mnemonics(Unified[MnemonicsSettings]):
    """UCIR, its new exemplars moved by a bilevel gradient, its class weights then fitted to the memory."""

    Settings = MnemonicsSettings

    def stages(self, task: Task) -> list[Stage]:
        train, select, *balance = super().stages(task)
        return [train, select, *([self.moving(task)] if self.settings.exemplar_epochs else []), *balance]

    def check(self, stream: Stream) -> None:
        if self.settings.exemplar_epochs and not isinstance(stream.train.pixels, Resident):
            raise UserError(
                "--method mnemonics trains exemplars' pixels on images held in memory, and these are decoded ahead: "
                "give fewer or smaller images, raise DAYDREAM_RESIDENT_GB, or take --exemplar-epochs 0"
            )

    def moving(self, task: Task) -> Stage:
        """Return the stage that moves the pixels of the new classes' exemplars; network and old exemplars rest."""
        settings, prepare = self.settings, self.setup.prepare

        def begin(state: State) -> None:
            kept = self.exemplars(state, task)
            state.tensors["exemplars"] = images = kept.pixels.fetch(torch.arange(len(kept)))
            state.tensors["moved"] = torch.zeros_like(images, dtype=torch.float32)

        def streams(state: State) -> Mapping[str, Batches]:
            kept = self.exemplars(state, task)
            size = min(settings.batch_size, len(kept))
            return {
                "exemplars": Batches(images=kept, size=size, augment=Plain(prepare)),
                "real": Batches(images=task.train, size=settings.batch_size, augment=self.setup.augment),
            }

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            own, real = batch["exemplars"], batch["real"]
            images = own.images + prepare.crop(state.tensors["moved"].index_select(0, own.index))
            return {"outer": self.foresight(network(state), images, own.labels, real.images, real.labels)}

        def after_step(state: State) -> None:
            moved = state.tensors["moved"]
            moved.copy_((self.pixels(state) - state.tensors["exemplars"]) / levels(prepare.std, moved.device))

        def finish(state: State) -> None:
            pixels = self.pixels(state).detach().round()
            state.tensors["grey_levels"] = (pixels - state.tensors.pop("exemplars")).abs().mean()
            del state.tensors["moved"]
            images = state.memory.images.clone()
            images[(state.memory.labels >= task.num_old).to(images.device)] = pixels.to(torch.uint8)
            state.memory = replace(state.memory, images=images)

        return Stage(
            name="mnemonics",
            epochs=settings.exemplar_epochs,
            steps=math.ceil(len(task.train) / settings.batch_size),
            trains=lambda state: [Group([state.tensors["moved"]])],
            streams=streams,
            losses=losses,
            optimizer=Adam(lr=settings.exemplar_lr, betas=BETAS),
            schedule=FALLS,
            begin=begin,
            finish=finish,
            after_step=after_step,
            report=lambda state: {"grey_levels": round(float(state.tensors["grey_levels"]), 3)},
        )

    def foresight(self, net: Network, exemplars: Tensor, labels: Tensor, real: Tensor, real_labels: Tensor) -> Tensor:
        """Return the loss on real images of the head that steps on the exemplars make."""
        head, settings = cast(CosineHead, net.head), self.settings
        z, z_real = net.features(exemplars), net.features(real)
        with torch.autocast(z.device.type, enabled=False):
            z, z_real, weight, scale = (
                x.to(torch.promote_types(x.dtype, torch.float32))
                for x in (z, z_real, head.weight().squeeze(1), head.scale)
            )
            learnt = learnt_cosines(z, labels, weight, scale, settings.inner_steps, settings.inner_lr)
            return cosine_cross_entropy(z_real, learnt, scale, real_labels)

    def exemplars(self, state: State, task: Task) -> ImageSet:
        """Return the exemplars of the task's classes."""
        return state.memory.as_set(memory_names(task)).of_classes(torch.arange(task.num_old, task.num_seen))

    def pixels(self, state: State) -> Tensor:
        """Return the exemplars as they stand, within 0 and 255 [M, 3, H, W]."""
        moved = state.tensors["moved"]
        return (state.tensors["exemplars"] + moved * levels(self.setup.prepare.std, moved.device)).clamp(0, 255)


@functools.lru_cache
def levels(std: tuple[float, ...], device: torch.device) -> Tensor:
    """Keep how many grey levels a unit of each normalised channel is [3, 1, 1]: a step need not bring it again."""
    return 255 * torch.tensor(std, device=device).view(3, 1, 1)
