"""The pile in the base task: by which quarter is an unlabelled image turned? (RotNet, ICLR 2018, arXiv 1803.07728)

Beside its own images a base task's batch holds unlabelled ones, each turned by a random quarter, and a linear head with
four outputs names the turn from their features. The head goes when the stage ends. Features that must also serve images
of no base class may leave room for what comes. They pass as guests of the batch, as everywhere.

Shapes: P unlabelled images in a batch, D features.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream import rng
from daydream.components.pile import FromPile
from daydream.components.rotations import TURNS
from daydream.data.images import fingerprint
from daydream.methods.method import network
from daydream.nets.network import Company
from daydream.protocol.stream import Task
from daydream.stages.stage import Batch, Batches, Group, Stage, State

SHARE = 0.5
"""Unlabelled images in a batch, for each of its own."""
HEAD = "turn head"


class PileInBase(FromPile):
    """Adds turned unlabelled images to the base task's training."""

    def stages(self, task: Task, stages: Sequence[Stage]) -> list[Stage]:
        """Return a base task's stages, the first that trains the network with turned images; others as they are."""
        first = next((place for place, stage in enumerate(stages) if "net" in stage.train_mode), None)
        if not task.is_base or first is None:
            return list(stages)
        return [*stages[:first], self.replayed(task, stages[first]), *stages[first + 1 :]]

    def replayed(self, task: Task, stage: Stage) -> Stage:
        """Return a training stage with turned images in it."""
        weight = self.teaching.base

        def begin(state: State) -> None:
            assert stage.begin is not None
            stage.begin(state)
            width = network(state).width
            with rng.seeded(self.setup.seed, "turns", task.index):
                state.tensors[HEAD] = (torch.randn(TURNS, width) / math.sqrt(width)).to(state.device)

        def streams(state: State) -> Mapping[str, Batches]:
            given = stage.streams(state)
            own = given["new"]
            size = max(1, round(SHARE * own.size))
            turned = Batches(images=self.pile, size=size, augment=own.augment, noise={"turn": draw_turns})
            return {**given, "pile": turned}

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            pile = batch["pile"]
            turns = pile.fields["turn"]
            company = Company(images=turned_by(pile.images, turns))
            terms, z, _ = self.along(stage, state, batch, company, None)
            return {**terms, "pile_turns": weight * F.cross_entropy(F.linear(z, state.tensors[HEAD]), turns)}

        def finish(state: State) -> None:
            del state.tensors[HEAD]
            if stage.finish is not None:
                stage.finish(state)

        trains = stage.trains
        shared_as = stage.shared_as and {
            **stage.shared_as,
            "pile_base": weight,
            "pile": fingerprint("pile", self.pile),
        }
        return replace(
            stage,
            trains=lambda state: [*trains(state), Group([state.tensors[HEAD]])],
            begin=begin,
            streams=streams,
            losses=losses,
            finish=finish,
            shared_as=shared_as,
        )


def draw_turns(generator: torch.Generator, steps: int, size: int) -> Tensor:
    """Draw by how many quarters each image is turned [steps, size]."""
    return torch.randint(TURNS, (steps, size), generator=generator)


def turned_by(images: Tensor, turns: Tensor) -> Tensor:
    """Return images [P, 3, h, h], each turned by its number of quarters [P]."""
    every = torch.stack([torch.rot90(images, k, (2, 3)) for k in range(TURNS)])
    found = every[turns, torch.arange(len(images), device=images.device)]
    return found.contiguous(memory_format=torch.channels_last)
