"""Downsampled ImageNet, 32x32 (Chrabaszcz et al., 2017): ten pickled training batches and one of validation images.

Class ids in the files count from 1; `--classes` counts from 0, so `first:100` means the ids 1 to 100. Where the folder
also has `map_clsloc.txt` of ImageNet's development kit, classes are named by their WordNet ids.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from daydream.data import found, required_root
from daydream.data.images import Dataset, ImageSet, Resident
from daydream.data.sources import class_slice
from daydream.data.sources.cifar import image_rows, label_row
from daydream.data.sources.unpickle import read_pickle
from daydream.errors import UserError
from daydream.settings import setting

log = logging.getLogger("daydream")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCHES = tuple(f"train_data_batch_{number}" for number in range(1, 11))
CLASS_IDS = "map_clsloc.txt"
WHERE = "the folder with train_data_batch_1 to _10 and val_data, from https://image-net.org/download-images"


@dataclass(frozen=True, kw_only=True)
class Settings:
    classes: str = setting("", "range of classes to read, e.g. first:100 or 100:200; all if empty")

    def __post_init__(self) -> None:
        class_slice.parse(self.classes, "classes")


def load(root: Path | None, settings: Settings) -> Dataset:
    """Return all ten training batches, and the validation images as the test set."""
    folder = required_root(root, "imagenet32", WHERE)
    present = _batches(folder)
    missing = [name for name in (*BATCHES, "val_data") if not (folder / name).is_file()]
    if missing:
        raise UserError(f"--root {folder} lacks {', '.join(missing)}; data set 'imagenet32' needs {WHERE}")
    wanted = class_slice.parse(settings.classes, "classes")
    train_pixels, train_ids = _read(present, wanted)
    test_pixels, test_ids = _read([folder / "val_data"], wanted)
    ids = np.unique(train_ids)
    absent = np.setxor1d(ids, test_ids)
    if len(absent):
        raise UserError(f"{folder}: class id {absent[0]} has images in only one of the training batches and val_data")
    names = _names(folder, ids)
    train, test = (_image_set(p, i, ids, names) for p, i in ((train_pixels, train_ids), (test_pixels, test_ids)))
    return Dataset("imagenet32", train, test, MEAN, STD, augmentation="cifar")


def unlabeled(root: Path | None, settings: Settings) -> ImageSet:
    """Return the training images of however many batches are there; their labels are kept, but no method reads them."""
    folder = required_root(root, "imagenet32", WHERE)
    present = _batches(folder)
    if len(present) < len(BATCHES):
        log.info("the pile of unlabelled images holds %d of imagenet32's %d batches", len(present), len(BATCHES))
    pixels, ids = _read(present, class_slice.parse(settings.classes, "classes"))
    known = np.unique(ids)
    return _image_set(pixels, ids, known, _names(folder, known))


def _batches(folder: Path) -> list[Path]:
    present = [folder / name for name in BATCHES if (folder / name).is_file()]
    if not present:
        raise UserError(f"--root {folder} holds no downsampled ImageNet: expected {WHERE}; found {found(folder)}")
    return present


def _read(paths: Sequence[Path], wanted: slice) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the rows [N, 3072] and class ids [N] of the wanted classes; at most one batch is in memory beside them."""
    # A file is a little larger than its pixels: its size bounds the rows, and pages never written cost nothing.
    pixels = np.empty((sum(path.stat().st_size for path in paths) // 3072, 3072), np.uint8)
    ids: list[NDArray[np.int64]] = []
    filled, seen = 0, np.empty(0, np.int64)
    for path in paths:
        images, labels = _read_batch(path)
        seen = np.union1d(seen, labels)
        keep = (labels > wanted.start) & (labels <= (wanted.stop or labels.max(initial=0)))
        count = int(keep.sum())
        pixels[filled : filled + count] = images if count == len(images) else images[keep]
        ids.append(labels[keep])
        filled += count
    if not filled:
        asked = f"{wanted.start}:{wanted.stop or ''}"
        raise UserError(f"{paths[0].parent} has no image of --classes {asked}; its class ids run {_span(seen)}")
    pixels.resize((filled, 3072), refcheck=False)
    return pixels, np.concatenate(ids)


def _read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    with path.open("rb") as file:
        content = read_pickle(file, str(path))
    if "data" not in content or "labels" not in content:
        raise UserError(f"{path} is no batch of imagenet32: expected 'data' and 'labels'; has {', '.join(content)}")
    images, labels = image_rows(content["data"], str(path)), label_row(content["labels"], str(path))
    if len(images) != len(labels) or labels.min(initial=1) < 1:
        raise UserError(f"{path} has labels that do not fit its {len(images)} images (ids count from 1)")
    return images, labels


def _span(ids: NDArray[np.int64]) -> str:
    return f"from {ids[0]} to {ids[-1]}" if len(ids) else "over nothing: it is empty"


def _names(folder: Path, known: NDArray[np.int64]) -> tuple[str, ...]:
    """Return the WordNet ids of the known class ids, or numbered names where no file says them."""
    path = folder / CLASS_IDS
    if not path.is_file():
        return tuple(f"class-{number:04d}" for number in known)
    names: dict[int, str] = {}
    for line_number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        match = re.fullmatch(r"(n\d{8}) (\d{1,9})( .*)?", line.strip())
        if match is None or int(match[2]) in names:
            raise UserError(f"{path}, line {line_number} is not a new class like 'n02119789 1 kit_fox'")
        names[int(match[2])] = match[1]
    absent = sorted(set(known.tolist()) - set(names))
    if absent:
        raise UserError(
            f"{path} has no line for class {absent[0]}, which the batches have: take the file of ILSVRC 2012"
        )
    return tuple(names[number] for number in known.tolist())


def _image_set(
    pixels: NDArray[np.uint8], ids: NDArray[np.int64], known: NDArray[np.int64], names: tuple[str, ...]
) -> ImageSet:
    images = torch.from_numpy(pixels).view(-1, 3, 32, 32)
    return ImageSet(Resident(images), torch.from_numpy(np.searchsorted(known, ids)), names)
