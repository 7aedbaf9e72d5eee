"""Blank a random square of every training image: Cutout (DeVries and Taylor, 2017, arXiv 1708.04552).

A network that never sees all of an image must know its class by any part of it, and finds it harder to learn the few
exemplars by heart. The square has the colour of the mean. Its middle may lie anywhere in the image, so it may reach
beyond the edge (section 3). Counterparts are imagined from whole exemplars.

Shapes: B images of h x h pixels.
"""

import functools
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from daydream.stages.stage import Batch, Batches, Stage, State


def erased(stage: Stage, share: float) -> Stage:
    """Return a stage whose losses see images with a blank square, its side a share of theirs."""

    def streams(state: State) -> Mapping[str, Batches]:
        given = stage.streams(state)
        return {name: replace(own, noise={**own.noise, "blank": draw_middles}) for name, own in given.items()}

    def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
        seen = {
            name: replace(samples, images=blanked(samples.images, samples.fields["blank"], share))
            if "blank" in samples.fields  # a stream that was added to the stage's own has none
            else samples
            for name, samples in batch.streams.items()
        }
        return stage.losses(state, replace(batch, streams=seen))

    shared_as = stage.shared_as and {**stage.shared_as, "erase": share}
    return replace(stage, streams=streams, losses=losses, shared_as=shared_as)


def draw_middles(generator: torch.Generator, steps: int, size: int) -> Tensor:
    """Draw the middle of each image's square, down and across, as shares of its sides."""
    return torch.rand(steps, size, 2, generator=generator)


def blanked(images: Tensor, middles: Tensor, share: float) -> Tensor:
    """Return images [B, 3, h, h] with zeros in squares around middles [B, 2]."""
    near = (_places(images.shape[2], images.device) - middles[:, :, None]).abs() < share / 2  # [B, 2, h]
    return torch.where((near[:, 0, :, None] & near[:, 1, None, :])[:, None], 0.0, images)


@functools.lru_cache
def _places(side: int, device: torch.device) -> Tensor:
    """Keep where the middles of a side's pixels lie, as shares of it: a step need not make them again."""
    return (torch.arange(side, device=device) + 0.5) / side
