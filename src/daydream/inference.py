"""Run a function of images over an image set, outside of training."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from daydream.data.augment import Prepare
from daydream.data.images import ImageSet, Resident

BATCH = 512


def batch_size(images: ImageSet) -> int:
    """Return how many images to pass at once: on a CPU few, whose maps stay in its cache."""
    on_cpu = isinstance(images.pixels, Resident) and images.pixels.tensor.device.type == "cpu"
    return BATCH // 4 if on_cpu else BATCH


@torch.no_grad()
def over_images(
    call: Callable[[Tensor], tuple[Tensor, ...]], images: ImageSet, prepare: Prepare, mirror: bool = False
) -> tuple[Tensor, ...]:
    """Return `call` of every image, prepared as at test time, concatenated; `mirror` flips the images first.

    Compiled halves run as plain code here: a shape met once is not worth a compilation.
    """
    found: list[tuple[Tensor, ...]] = []
    size = batch_size(images)
    whole = len(images) // size * size
    rows = torch.arange(whole).view(-1, size)
    tails = [torch.arange(whole, len(images))] if whole < len(images) else []
    with torch.compiler.set_stance("force_eager"):
        for batch in itertools.chain(images.pixels.batches(rows), map(images.pixels.fetch, tails)):
            x = prepare(batch)
            found.append(call(x.flip(3) if mirror else x))
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))
