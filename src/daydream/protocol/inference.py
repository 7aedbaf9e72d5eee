"""Run a function of images over an image set, outside of training.

On a GPU, cuDNN tries out its kernels for every shape of batch that it has not met before, which takes far longer than
to pass the batch. So batches come in few shapes: the last of a set is filled up with copies of its last image.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from daydream.data.augment import Prepare
from daydream.data.images import ImageSet

BATCH = 512
LEAST = 8  # of large images too: fewer at once leave cores idle


def batch_size(images: ImageSet, side: int) -> int:
    """Return how many images of a side to pass at once: on a CPU few, whose maps stay in its cache.

    Of large images there are fewer, so that a batch has no more pixels than 128 of side 32 have, on a GPU 512 of 64.
    """
    on_cpu = images.pixels.device.type == "cpu"
    most, usual = (BATCH // 4, 32) if on_cpu else (BATCH, 64)
    fitting = max(LEAST, most * usual**2 // side**2)
    most = min(most, 1 << (fitting.bit_length() - 1))
    return most if on_cpu else portion(len(images), most)


def portion(count: int, most: int) -> int:
    """Return the next power of two, or `most` if that is smaller: a batch for so many rows."""
    return min(most, 1 << max(0, count - 1).bit_length())


def filled(rows: Tensor, size: int) -> Tensor:
    """Repeat the last of rows [B, ...] until there are `size`; on a CPU, where a shape costs nothing, leave them."""
    if rows.device.type == "cpu" or len(rows) == size:
        return rows
    return torch.cat([rows, rows[-1:].expand(size - len(rows), *rows.shape[1:])])


@contextlib.contextmanager
def plainly(tuned: bool) -> Iterator[None]:
    """Run passes inside as plain code: a shape met once is not worth a compilation.

    Without `tuned` it is not worth cuDNN's trying out of kernels either, which then come by its rules.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before and tuned
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        torch.backends.cudnn.benchmark = before


@torch.no_grad()
def over_images(
    call: Callable[[Tensor], tuple[Tensor, ...]], images: ImageSet, prepare: Prepare, mirror: bool = False
) -> tuple[Tensor, ...]:
    """Return `call` of every image, prepared as at test time, concatenated; `mirror` flips the images first."""
    found: list[tuple[Tensor, ...]] = []
    size = batch_size(images, prepare.size)
    whole = len(images) // size * size
    rows = torch.arange(whole).view(-1, size)
    tails = [torch.arange(whole, len(images))] if whole < len(images) else []
    with plainly(tuned=len(images) > size):
        for batch in itertools.chain(images.pixels.batches(rows), map(images.pixels.fetch, tails)):
            x = prepare(filled(batch, size))
            found.append(tuple(part[: len(batch)] for part in call(x.flip(3) if mirror else x)))
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


@torch.no_grad()
def over_rows(call: Callable[..., Tensor], *aligned: Tensor, most: int) -> Tensor:
    """Return `call` of rows that belong together, at most so many at a time, concatenated."""
    count = len(aligned[0])
    assert len({tensor.device.type for tensor in aligned}) == 1, "rows that belong together are filled up together"
    size = portion(count, most)
    with plainly(tuned=False):
        portions = zip(*(tensor.split(size) for tensor in aligned), strict=True)
        found = [call(*(filled(rows, size) for rows in together)) for together in portions]
    return torch.cat(found)[:count]
