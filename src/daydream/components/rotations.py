"""Rotations as classes: self-supervised label augmentation (Lee, Hwang and Shin, ICML 2020, arXiv 1910.05872).

While a network trains on new classes, each of them is four classes, one per quarter turn of its images (section 3.1):
turned k quarters, an image of class c has the label c + k n, with n new classes. The turned classes are more weights in
the head's last block. They go when the stage ends, so that inference is what it was (the paper's single inference); its
aggregated inference, over four turns of an image, would cost four passes.

The last epochs of a base task can come without turns (ours): what is dropped then has no say in the features any more.

Each image of a batch appears in all four turns, as in the paper, at four times the cost of a step. Exemplars stay
upright: the turned classes of old tasks are gone.

Shapes: B images of new classes in a batch, n new classes.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from daydream import rng
from daydream.methods.method import network
from daydream.stages.stage import Batch, Samples, Stage, State

TURNS = 4


def rotated(stage: Stage, seed: int, task: int) -> Stage:
    """Return a stage in which the images of stream `new` are turned, and the turned ones are classes of their own."""

    def begin(state: State) -> None:
        assert stage.begin is not None
        stage.begin(state)
        head = network(state).head
        with rng.seeded(seed, "rotations", task):
            head.widen((TURNS - 1) * head.sizes[-1])

    def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
        classes = network(state).head.sizes[-1] // TURNS
        turned = every_turn(batch["new"], classes)
        return stage.losses(state, replace(batch, streams={**batch.streams, "new": turned}))

    def finish(state: State) -> None:
        head = network(state).head
        head.narrow(head.sizes[-1] // TURNS)
        if stage.finish is not None:
            stage.finish(state)

    shared_as = stage.shared_as and {**stage.shared_as, "rotations": "four"}
    return replace(stage, begin=begin, losses=losses, finish=finish, shared_as=shared_as)


def settled(stage: Stage, turn: Callable[[Stage], Stage], share: float) -> list[Stage]:
    """Return a stage that is turned but for its last epochs, a share of all, as one stage or two."""
    later = round(share * stage.epochs)
    first = stage.epochs - later
    if not later or not first:
        return [turn(stage)]

    def from_epoch(begun: int) -> Callable[[int, int], float]:
        return lambda epoch, _: stage.schedule(begun + epoch, stage.epochs)

    turned = turn(replace(stage, epochs=first, schedule=from_epoch(0), finish=None))
    shared_as = turned.shared_as and {**turned.shared_as, "settle": share}
    upright = replace(stage, name="settle", epochs=later, schedule=from_epoch(first), begin=None)
    return [replace(turned, shared_as=shared_as), replace(upright, shared_as=shared_as)]


def every_turn(samples: Samples, classes: int) -> Samples:
    """Return samples [4 B]: all upright, then all turned once, twice, three times."""
    return Samples(
        images=torch.cat([torch.rot90(samples.images, k, (2, 3)) for k in range(TURNS)]).contiguous(
            memory_format=torch.channels_last
        ),
        labels=torch.cat([samples.labels + k * classes for k in range(TURNS)]),
        index=samples.index.repeat(TURNS),
        fields={name: torch.cat([values] * TURNS) for name, values in samples.fields.items()},
    )
