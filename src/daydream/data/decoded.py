"""Images that live in files: read into memory where they fit, decoded batch by batch where they do not."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from daydream.data.cache import decode_cached
from daydream.data.decode import Decoding, fits_in_memory, skipped
from daydream.data.decode_pool import num_workers, stream
from daydream.data.images import Pixels, Resident
from daydream.errors import UserError

log = logging.getLogger("daydream")

PROBE = 8
"""Side to which images are decoded only to learn whether they can be."""
CHUNK = 64
"""Images that a worker decodes at once when many are fetched."""
WORTH_WORKERS = 256
"""Fewer images than this are decoded sooner than worker processes start."""


@dataclass(frozen=True)
class Decoded:
    """Pixels decoded from files when they are asked for, ahead of use by worker processes."""

    paths: tuple[str, ...]
    canvas: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.paths), 3, self.canvas, self.canvas

    def fetch(self, index: Tensor) -> Tensor:
        return torch.cat(list(self._decode([chunk.tolist() for chunk in index.split(CHUNK)])))

    def batches(self, rows: Tensor) -> Iterator[Tensor]:
        return self._decode(rows.tolist())

    def select(self, index: Tensor) -> "Decoded":
        return replace(self, paths=tuple(self.paths[i] for i in index.tolist()))

    def to(self, device: torch.device) -> "Decoded":
        return replace(self, device=device)

    def _decode(self, groups: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        many = sum(map(len, groups)) >= WORTH_WORKERS
        workers = min(num_workers(), len(groups)) if many else 0
        named = ([self.paths[i] for i in group] for group in groups)
        with contextlib.closing(stream(named, self.canvas, workers)) as parts:
            for group, part in zip(groups, parts, strict=True):
                for i, reason in part.failures.items():
                    raise damaged(self.paths[group[i]], reason)
                yield self._land(part)

    def _land(self, part: Decoding) -> Tensor:
        tensor = torch.from_numpy(part.pixels)
        if self.device.type == "cuda":  # from pinned memory the copy overlaps with the step that runs
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)


def open_images(label: str, root: Path, paths: Sequence[str], canvas: int) -> Pixels:
    """Return the pixels of files that must all be readable: those of a published set."""
    if not fits_in_memory(len(paths), canvas):
        return Decoded(tuple(paths), canvas)
    decoding = decode_cached(label, root, paths, canvas)
    for i, reason in decoding.failures.items():
        raise damaged(paths[i], reason)
    return Resident(torch.from_numpy(decoding.pixels))


def open_readable(label: str, root: Path, paths: Sequence[str], canvas: int) -> tuple[Pixels, list[int]]:
    """Return the pixels of the files that can be decoded and their indices; name the others in the log."""
    resident = fits_in_memory(len(paths), canvas)
    decoding = decode_cached(label if resident else f"{label}-probe", root, paths, canvas if resident else PROBE)
    kept = [i for i in range(len(paths)) if i not in decoding.failures]
    if decoding.failures:
        log.warning("%s", skipped(paths, sorted(decoding.failures)))
    if not resident:
        return Decoded(tuple(paths[i] for i in kept), canvas), kept
    pixels = decoding.pixels[kept] if decoding.failures else decoding.pixels
    return Resident(torch.from_numpy(pixels)), kept


def damaged(path: str, reason: str) -> UserError:
    return UserError(f"{path} cannot be decoded ({reason}); replace it or take it away")
