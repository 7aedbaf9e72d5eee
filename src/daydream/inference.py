"""Run a function of images over an image set, outside of training."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from daydream.data.augment import Prepare
from daydream.data.images import ImageSet

BATCH = 512


@torch.no_grad()
def over_images(
    call: Callable[[Tensor], tuple[Tensor, ...]], images: ImageSet, prepare: Prepare, mirror: bool = False
) -> tuple[Tensor, ...]:
    """Return `call` of every image, prepared as at test time, concatenated; `mirror` flips the images first.

    Compiled halves run as plain code here: a shape met once is not worth a compilation.
    """
    found: list[tuple[Tensor, ...]] = []
    whole = len(images) // BATCH * BATCH
    rows = torch.arange(whole).view(-1, BATCH)
    tails = [torch.arange(whole, len(images))] if whole < len(images) else []
    with torch.compiler.set_stance("force_eager"):
        for batch in itertools.chain(images.pixels.batches(rows), map(images.pixels.fetch, tails)):
            x = prepare(batch)
            found.append(call(x.flip(3) if mirror else x))
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))
