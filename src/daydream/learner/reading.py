"""Folders of pictures to features, a few pictures at a time: more are never held, and no pixels are kept anywhere.

Shapes: N pictures, D features.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from daydream.data import found
from daydream.data.decode import images_in, skipped
from daydream.data.decode_pool import few_at_a_time
from daydream.data.images import ImageSet, Resident
from daydream.data.sources.folder import pile_images
from daydream.engine import Display, Interrupted
from daydream.errors import UserError
from daydream.learner.embedding import Embedder, pixel_digests
from daydream.learner.intake import checked_folder

if TYPE_CHECKING:
    from daydream.learner.opening import Teachable

log = logging.getLogger("daydream")

GROUP = 32
"""Pictures that are held at once."""


@dataclass(frozen=True)
class Seen:
    """Pictures that could be read: where they lie, what names them, and what the network makes of them."""

    paths: tuple[str, ...]
    digests: Tensor
    """[N] int64."""
    features: Tensor
    """[N, D] float32; [N, 0] where none were asked for."""
    index: Tensor
    """[N]: their places among those that were to be read."""


@dataclass(frozen=True)
class Labelled:
    """Pictures with labels [N], which index names."""

    names: tuple[str, ...]
    labels: Tensor
    seen: Seen


def read_classes(folder: Path, embed: Embedder, canvas: int, display: Display) -> Labelled:
    """Read a sub-folder of pictures for each class; one without a readable picture is the user's mistake."""
    names = checked_folder(folder)
    files = [images_in(folder / name) for name in names]
    seen = see([path for own in files for path in own], canvas, embed, display)
    labels = torch.repeat_interleave(torch.tensor([len(own) for own in files]))[seen.index]
    for name, count in zip(names, torch.bincount(labels, minlength=len(names)).tolist(), strict=True):
        if not count:
            raise UserError(f"class '{name}' has no readable image in {folder / name}: add images or remove the folder")
    return Labelled(tuple(names), labels, seen)


def read_tests(folder: Path, known: tuple[str, ...], embed: Embedder, canvas: int, display: Display) -> Labelled:
    """Read test pictures of known classes, labelled by them."""
    for name in checked_folder(folder):
        if name not in known:
            shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
            raise UserError(f"{folder} has the class '{name}', which the model does not know (it knows: {shown})")
    given = read_classes(folder, embed, canvas, display)
    place = torch.tensor([known.index(name) for name in given.names])
    return Labelled(known, place[given.labels], given.seen)


def check_folder(folder: Path) -> None:
    """Refuse what is no folder, or may not be read."""
    if not os.path.isdir(folder) or not os.access(folder, os.R_OK | os.X_OK):
        what = "cannot be read" if os.path.isdir(folder) else "is not a folder"
        raise UserError(f"{folder} {what}: give a folder of images, nested or not")


def read_folder(folder: Path, embed: Embedder | None, canvas: int, display: Display) -> Seen:
    """Read every picture under a folder, nested or not."""
    check_folder(folder)
    seen = see(pile_images(folder), canvas, embed, display)
    if not seen.paths:
        raise UserError(f"{folder} holds no readable image; found {found(folder)}")
    return seen


def see(paths: Sequence[str], canvas: int, embed: Embedder | None, display: Display) -> Seen:
    """Decode pictures and, where a network is given, turn them into features; name in the log what cannot be read."""
    digests, features = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, 0 if embed is None else embed.dim)]
    failures: dict[int, str] = {}
    display.counts("pictures", 0, len(paths))
    with contextlib.closing(few_at_a_time(paths, canvas, GROUP)) as parts:
        for start, part in parts:
            failures |= {start + i: reason for i, reason in part.failures.items()}
            fine = [i for i in range(len(part.pixels)) if i not in part.failures]
            pixels = Resident(torch.from_numpy(part.pixels[fine]))
            digests.append(pixel_digests(pixels))
            features.append(torch.zeros(len(fine), 0) if embed is None else embed(pixels, digests[-1]))
            display.counts("pictures", min(start + GROUP, len(paths)), len(paths))
            if display.stop_asked():
                raise Interrupted
    if failures:
        log.warning("%s", skipped(paths, sorted(failures)))
    kept = [i for i in range(len(paths)) if i not in failures]
    return Seen(tuple(paths[i] for i in kept), torch.cat(digests), torch.cat(features), torch.tensor(kept).long())


def judged(
    learner: "Teachable", paths: Sequence[str]
) -> Iterator[tuple[int, dict[int, str], list[list[float]], list[float]]]:
    """Yield, for some pictures at a time, the first one's place, what cannot be read, and of the rest what is told."""
    with contextlib.closing(few_at_a_time(paths, learner.size, GROUP)) as parts:
        for start, part in parts:
            fine = [i for i in range(len(part.pixels)) if i not in part.failures]
            pixels = Resident(torch.from_numpy(part.pixels[fine]))
            images = ImageSet(pixels, torch.zeros(len(fine), dtype=torch.int64), learner.names)
            probabilities, looks = learner.told(images) if fine else (torch.zeros(0), torch.zeros(0))
            yield start, part.failures, probabilities.tolist(), looks.tolist()
