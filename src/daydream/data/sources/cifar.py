"""CIFAR-10 and CIFAR-100: 50,000 training and 10,000 test images of 32x32 pixels, from the official archive or folder.

The archive's members are read in memory: nothing is extracted, so a hostile archive cannot write anywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from daydream.data import found, required_root
from daydream.data.images import Dataset, ImageSet, Resident
from daydream.data.sources.archive import DAMAGE, TooMuch, members
from daydream.data.sources.class_slice import Labelled
from daydream.data.sources.unpickle import read_pickle
from daydream.errors import UserError

MOST = 60_000 * 3072 + 2**25
"""Bytes of all images, and room for what surrounds them."""


@dataclass(frozen=True, kw_only=True)
class Cifar:
    """One of the two, and what sets it apart."""

    Settings: ClassVar[type] = Labelled

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

    def load(self, root: Path | None, settings: Labelled) -> Dataset:
        """Return the data set's labelled classes; `Dataset.note` says which, where not all are."""
        data = self._read(root)
        if not settings.labelled:
            return data
        chosen = settings.choose(len(data.class_names), self.title)
        note = f"classes {settings.labelled} of {self.title} alone"
        return replace(data, train=data.train.alone(chosen), test=data.test.alone(chosen), note=note)

    def unlabeled(self, root: Path | None, settings: Labelled) -> ImageSet:
        """Return the training images of the classes that are not labelled; no method reads their labels."""
        train = self.whole(root)
        return train.alone(settings.others(len(train.class_names), self.title))

    def whole(self, root: Path | None) -> ImageSet:
        """Return all training images."""
        return self._read(root).train

    def _read(self, root: Path | None) -> Dataset:
        """Return the data set found at `root`: the archive, the folder, or a folder that contains either."""
        place = _locate(self, required_root(root, self.name, self.where))
        contents = _from_folder(self, place) if place.is_dir() else _from_archive(self, place)
        meta = contents[self.meta]
        if self.names_key not in meta:
            raise UserError(f"{place}: '{self.meta}' has no '{self.names_key}'; expected {self.where}")
        names = tuple(_text(name) for name in meta[self.names_key])
        train = _image_set(self, [(f"{place}: '{part}'", contents[part]) for part in self.train], names)
        test = _image_set(self, [(f"{place}: '{self.test}'", contents[self.test])], names)
        return Dataset(self.name, train, test, self.mean, self.std, augmentation="cifar")


CIFAR10 = Cifar(
    name="cifar10",
    title="CIFAR-10",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
    labels_key="labels",
    names_key="label_names",
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)
CIFAR100 = Cifar(
    name="cifar100",
    title="CIFAR-100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    train=("train",),
    test="test",
    meta="meta",
    labels_key="fine_labels",
    names_key="fine_label_names",
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
)


def _locate(layout: Cifar, root: Path) -> Path:
    if root.is_file():
        return root
    for folder in (root, root / layout.folder):
        if (folder / layout.train[0]).is_file() and (folder / layout.meta).is_file():
            return folder
    if (root / layout.archive).is_file():
        return root / layout.archive
    raise UserError(f"--root {root} holds no {layout.title}: expected {layout.where}; found {found(root)}")


def _from_folder(layout: Cifar, folder: Path) -> dict[str, dict[str, Any]]:
    contents = {}
    for name in layout.files:
        path = folder / name
        if not path.is_file():
            raise UserError(f"{folder} lacks the file '{name}' of {layout.title}; download it again")
        with path.open("rb") as file:
            contents[name] = read_pickle(file, str(path))
    return contents


def _from_archive(layout: Cifar, path: Path) -> dict[str, dict[str, Any]]:
    wanted = {f"{layout.folder}/{name}": name for name in layout.files}
    try:
        raw, others = members(path, wanted, MOST)
    except TooMuch:
        raise UserError(
            f"{path} unpacks to far more than the {MOST / 1e6:.0f} MB that {layout.title} takes: it was not read; "
            f"download {layout.archive} again"
        ) from None
    except DAMAGE as error:
        raise UserError(f"{path} is truncated, damaged or no tar archive; download {layout.archive} again") from error
    missing = [name for name in layout.files if name not in raw]
    if missing:
        seen = ", ".join(sorted([*others, *raw])[:6]) or "nothing"
        raise UserError(f"{path} holds no {layout.title}: expected {layout.folder}/{missing[0]} in it; found {seen}")
    return {name: read_pickle(BytesIO(raw.pop(name)), f"{path}: '{name}'") for name in layout.files}


def _image_set(layout: Cifar, parts: list[tuple[str, Mapping[str, Any]]], names: tuple[str, ...]) -> ImageSet:
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
