"""What folders of pictures bring to a learner: images by class, some of them held out, none of them twice."""

import hashlib
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from PIL import Image
from torch import Tensor

from daydream.data import found
from daydream.data.decode import FORMATS, images_in, unreadable
from daydream.data.decoded import open_readable
from daydream.data.images import ImageSet, Pixels, Resident
from daydream.data.sources.folder import WHERE, class_names_in, pile_images, read_classes
from daydream.errors import UserError

log = logging.getLogger("daydream")

CHUNK = 256
MEASURED = 200
"""Pictures whose size is looked at, spread over the folder."""


@dataclass(frozen=True)
class Intake:
    """The images of a lesson; labels count known classes first, then the new ones by name."""

    names: tuple[str, ...]
    """All classes, known and new."""
    train: ImageSet
    held_out: ImageSet
    """New ones only; those kept before are not among them."""


def typical_side(folder: Path) -> int:
    """Return the median short side of the pictures in a folder's class folders, looking at some of them."""
    paths = [path for name in checked_folder(folder) for path in images_in(folder / name)]
    sides = []
    for path in paths[:: max(1, len(paths) // MEASURED)]:
        try:
            with Image.open(path, formats=FORMATS) as image:
                sides.append(min(image.size))
        except Exception:  # a damaged file can raise nearly anything, and is named when it is decoded
            continue
    return int(median(sides)) if sides else 0


def checked_folder(folder: Path) -> list[str]:
    """Return the class names in a folder, or say what is wrong with it."""
    try:
        if not folder.is_dir():
            raise UserError(f"{folder} is {'a file' if folder.exists() else 'not there'}; give {WHERE}")
        return class_names_in(folder)
    except OSError as error:  # it lies in a folder that may not be entered
        raise unreadable(folder, error) from error


def read_labelled(folder: Path, known: tuple[str, ...], canvas: int) -> ImageSet:
    """Return the images of a folder, labelled by all classes: the known ones, then the new ones by name."""
    found = checked_folder(folder)
    images = read_classes(folder, "learn", found, canvas)
    names = (*known, *(name for name in found if name not in known))
    place = torch.tensor([names.index(name) for name in found])
    return ImageSet(images.pixels, place[images.labels], names)


def read_known(folder: Path, known: tuple[str, ...], canvas: int, needed: Iterable[str] = ()) -> ImageSet:
    """Return test images of known classes; a class that is not known, or a needed one that is missing, is a mistake."""
    present = checked_folder(folder)
    for name in present:
        if name not in known:
            shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
            raise UserError(f"{folder} has the class '{name}', which the model does not know (it knows: {shown})")
    for name in needed:
        if name not in present:
            raise UserError(f"{folder} has no folder '{name}': test images of every class of the lesson are needed")
    images = read_classes(folder, "learn-test", present, canvas)
    return ImageSet(images.pixels, torch.tensor([known.index(name) for name in present])[images.labels], known)


def read_pile(folder: Path, canvas: int) -> ImageSet:
    """Return every readable image under a folder, nested or not, as one class."""
    if not os.path.isdir(folder) or not os.access(folder, os.R_OK | os.X_OK):
        what = "cannot be read" if os.path.isdir(folder) else "is not a folder"
        raise UserError(f"--unlabeled {folder} {what}: give a folder of images, nested or not")
    pixels, kept = open_readable("learn-pile", folder, pile_images(folder), canvas)
    if not kept:
        raise UserError(f"--unlabeled {folder} holds no readable image; found {found(folder)}")
    return ImageSet(pixels, torch.zeros(len(kept), dtype=torch.int64), ("unlabelled",))


def digests(images: ImageSet) -> Tensor:
    """Return a number [N] for each image, equal for equal pixels of equal label."""
    numbers: list[int] = []
    for index in torch.arange(len(images)).split(CHUNK):
        pixels = images.pixels.fetch(index).cpu().numpy()
        for label, image in zip(images.labels[index].tolist(), pixels, strict=True):
            digest = hashlib.blake2b(image.tobytes(), digest_size=8, salt=label.to_bytes(8, "little"))
            numbers.append(int.from_bytes(digest.digest(), "little", signed=True))
    return torch.tensor(numbers, dtype=torch.int64)


def distinct(images: ImageSet) -> ImageSet:
    """Return the images without those that came before, in their order."""
    return images.select(_first_places(digests(images)).sort().values)


def take_in(
    given: ImageSet, num_known: int, test: ImageSet | None, held: ImageSet, seen: Tensor, share: float, keep: int
) -> Intake:
    """Sort a lesson's images into those to train on and those held out, by class, in the order of their digests.

    An image that is held out already, or comes twice, is left out; one that was trained on before (its digest is in
    `seen`) is not held out now. `test` images, where given, are held out instead of a `share`. At most `keep` images of
    a class are held out, those in `held` included.
    """
    numbers = digests(given)
    held_before = digests(ImageSet(held.pixels, held.labels, given.class_names))
    apart = torch.cat([held_before, digests(test)]) if test is not None else held_before
    first = _first_places(numbers)
    fresh = first[~torch.isin(numbers[first], apart)]
    if len(fresh) < len(given):
        log.info("%d of %d images are held out already or come twice: left out", len(given) - len(fresh), len(given))
    room = keep - torch.bincount(held.labels, minlength=len(given.class_names))
    if test is not None:
        test_numbers = digests(test)
        usable = _first_places(test_numbers)
        usable = usable[~torch.isin(test_numbers[usable], torch.cat([held_before, seen]))]
        chosen = [usable[test.labels[usable] == label][: max(0, int(left))] for label, left in enumerate(room)]
        return Intake(given.class_names, given.select(fresh), test.select(torch.cat(chosen)))
    trained, out = [], []
    for label in range(len(given.class_names)):
        mine = fresh[given.labels[fresh] == label]
        able = mine[~torch.isin(numbers[mine], seen)]
        count = min(max(1, round(share * len(able))), len(able) - 1, int(room[label])) if len(able) else 0
        if label >= num_known and count < 1:
            raise UserError(
                f"class '{given.class_names[label]}' has {len(mine)} readable image, but a new class needs 2 that "
                "differ: one to learn from and one to be tested on"
            )
        out.append(able[: max(0, count)])
        trained.append(mine[~torch.isin(mine, out[-1])])
    return Intake(given.class_names, given.select(torch.cat(trained).sort().values), given.select(torch.cat(out)))


def _first_places(numbers: Tensor) -> Tensor:
    """Return where each number occurs first, in the order of the numbers: at random, yet the same each time."""
    values, order = numbers.sort(stable=True)
    return order[torch.cat([torch.ones(min(1, len(values)), dtype=torch.bool), values[1:] != values[:-1]])]


def joined(*parts: ImageSet) -> ImageSet:
    """Return image sets as one, held in memory, under the class names of the last."""
    pixels = torch.cat([part.pixels.fetch(torch.arange(len(part))) for part in parts])
    return ImageSet(Resident(pixels), torch.cat([part.labels for part in parts]), parts[-1].class_names)


def sampled(pile: ImageSet, count: int, generator: torch.Generator) -> Tensor:
    """Return so many images of a pile, or all of a smaller one, as pixels [P, 3, S, S] on the CPU."""
    index = torch.randperm(len(pile), generator=generator)[:count].sort().values
    pixels: Pixels = pile.pixels
    return pixels.fetch(index).cpu() if len(index) else torch.zeros(0, *pixels.shape[1:], dtype=torch.uint8)
