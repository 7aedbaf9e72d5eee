"""Read CIFAR's python pickles, from the official archive or from its unpacked folder.

The archive's members are read in memory: nothing is extracted, so a hostile archive cannot write anywhere.
"""

import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from daydream.data import found, required_root
from daydream.data.class_slice import Labelled
from daydream.data.images import Dataset, ImageSet, Resident
from daydream.data.unpickle import read_pickle
from daydream.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What sets one of the two CIFARs apart."""

    name: str
    title: str
    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    meta: str
    labels_key: str
    names_key: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train, self.test, self.meta)

    @property
    def where(self) -> str:
        return f"{self.archive} or its folder {self.folder}/, from https://www.cs.toronto.edu/~kriz/cifar.html"


def load_cifar(layout: Layout, root: Path | None) -> Dataset:
    """Return the data set found at `root`: the archive, the folder, or a folder that contains either."""
    place = _locate(layout, required_root(root, layout.name, layout.where))
    contents = _from_folder(layout, place) if place.is_dir() else _from_archive(layout, place)
    meta = contents[layout.meta]
    if layout.names_key not in meta:
        raise UserError(f"{place}: '{layout.meta}' has no '{layout.names_key}'; expected {layout.where}")
    names = tuple(_text(name) for name in meta[layout.names_key])
    train = _image_set(layout, [(f"{place}: '{part}'", contents[part]) for part in layout.train], names)
    test = _image_set(layout, [(f"{place}: '{layout.test}'", contents[layout.test])], names)
    return Dataset(layout.name, train, test, layout.mean, layout.std, augmentation="cifar")


def load_labelled(layout: Layout, root: Path | None, settings: Labelled) -> Dataset:
    """Return the data set's labelled classes; `Dataset.note` says which, where not all are."""
    data = load_cifar(layout, root)
    if not settings.labelled:
        return data
    chosen = settings.choose(len(data.class_names), layout.title)
    note = f"classes {settings.labelled} of {layout.title} alone"
    return replace(data, train=data.train.alone(chosen), test=data.test.alone(chosen), note=note)


def load_others(layout: Layout, root: Path | None, settings: Labelled) -> ImageSet:
    """Return the training images of the classes that are not labelled; no method reads their labels."""
    train = load_cifar(layout, root).train
    return train.alone(settings.others(len(train.class_names), layout.title))


def _locate(layout: Layout, root: Path) -> Path:
    if root.is_file():
        return root
    for folder in (root, root / layout.folder):
        if (folder / layout.train[0]).is_file() and (folder / layout.meta).is_file():
            return folder
    if (root / layout.archive).is_file():
        return root / layout.archive
    raise UserError(f"--root {root} holds no {layout.title}: expected {layout.where}; found {found(root)}")


def _from_folder(layout: Layout, folder: Path) -> dict[str, dict[str, Any]]:
    contents = {}
    for name in layout.files:
        path = folder / name
        if not path.is_file():
            raise UserError(f"{folder} lacks the file '{name}' of {layout.title}; download it again")
        with path.open("rb") as file:
            contents[name] = read_pickle(file, str(path))
    return contents


def _from_archive(layout: Layout, path: Path) -> dict[str, dict[str, Any]]:
    wanted = {f"{layout.folder}/{name}": name for name in layout.files}
    raw: dict[str, bytes] = {}
    others: list[str] = []
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isreg() else None
                if file is None:
                    continue
                name = member.name.removeprefix("./")
                if name in wanted:
                    raw[wanted[name]] = file.read()
                else:
                    others.append(name)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise UserError(f"{path} is truncated, damaged or no tar archive; download {layout.archive} again") from error
    missing = [name for name in layout.files if name not in raw]
    if missing:
        seen = ", ".join(sorted([*others, *raw])[:6]) or "nothing"
        raise UserError(f"{path} holds no {layout.title}: expected {layout.folder}/{missing[0]} in it; found {seen}")
    return {name: read_pickle(BytesIO(raw.pop(name)), f"{path}: '{name}'") for name in layout.files}


def _image_set(layout: Layout, parts: list[tuple[str, Mapping[str, Any]]], names: tuple[str, ...]) -> ImageSet:
    arrays, labels = [], []
    for where, part in parts:
        if "data" not in part or layout.labels_key not in part:
            keys = ", ".join(sorted(part)[:6])
            raise UserError(
                f"{where} is no part of {layout.title}: expected 'data' and '{layout.labels_key}'; has {keys}"
            )
        images, targets = image_rows(part["data"], where), label_row(part[layout.labels_key], where)
        if len(images) != len(targets) or targets.min(initial=0) < 0 or targets.max(initial=0) >= len(names):
            raise UserError(f"{where} has labels that fit neither its {len(images)} images nor {len(names)} classes")
        arrays.append(images)
        labels.append(targets)
    pixels = torch.from_numpy(np.concatenate(arrays)).view(-1, 3, 32, 32)
    return ImageSet(Resident(pixels), torch.from_numpy(np.concatenate(labels)), names)


def image_rows(value: Any, where: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Check that a value read from a file is [N, 3072] uint8: 32x32 images, channel after channel."""
    images = np.asarray(value)
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != 3072:
        raise UserError(f"{where} has data of shape {images.shape}, {images.dtype}; expected N rows of 3072 uint8")
    return images


def label_row(value: Any, where: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Check that a value read from a file is [N] whole numbers."""
    try:
        labels = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        labels = np.empty(0)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise UserError(f"{where} has labels that are not a list of whole numbers; download it again")
    return labels.astype(np.int64)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
