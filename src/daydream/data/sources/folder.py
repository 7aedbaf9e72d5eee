"""Your own images: one folder per class, or any folder of images as the unlabelled pile.

The test images are, in this order of preference: those of `--test-folder`, those of `test/` (or `val/`) where the root
has it beside `train/`, or a share of each class that depends on the file names alone, not on the run's seed.
"""

import logging
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from daydream.data import found, required_root
from daydream.data.decode import canvas_size, folders_in, images_in, nested_images, unreadable
from daydream.data.decoded import open_readable
from daydream.data.images import Dataset, ImageSet
from daydream.errors import UserError
from daydream.settings import require, setting

log = logging.getLogger("daydream")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WHERE = "a folder with one sub-folder of images (png, jpg, jpeg, webp, bmp, gif) per class"
LARGE = 96
"""Images larger than this are augmented as ImageNet's are: by crops of random size."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    image_size: int = setting(64, "height and width in pixels that the network sees")
    test_folder: str = setting(
        "", "folder of test images, one sub-folder per class; empty: ROOT/test, ROOT/val or a share"
    )
    test_share: float = setting(0.2, "share of each class kept for testing where there is no test folder")

    def __post_init__(self) -> None:
        require(self.image_size >= 8, f"--image-size is {self.image_size}, but takes 8 or more")
        require(0 < self.test_share < 1, f"--test-share is {self.test_share}, but takes a number between 0 and 1")

    @property
    def augmentation(self) -> str:
        return "imagenet" if self.image_size > LARGE else "cifar"

    @property
    def canvas(self) -> int:
        return canvas_size(self.image_size, self.augmentation)


def load(root: Path | None, settings: Settings) -> Dataset:
    """Return the classes found in `root`, with their test images."""
    top = _root(root, WHERE)
    train_folder, test_folder = _trees(top, settings)
    names = class_names_in(train_folder)
    if test_folder is None:
        train, test = _split(
            read_classes(train_folder, "folder", names, settings.canvas), settings.test_share, train_folder
        )
        note = f"test images: a share of {settings.test_share} of each class"
    else:
        _same_classes(names, class_names_in(test_folder), train_folder, test_folder)
        train = read_classes(train_folder, "folder-train", names, settings.canvas)
        test = read_classes(test_folder, "folder-test", names, settings.canvas)
        note = f"test images: {test_folder}"
    crop = settings.image_size
    return Dataset("folder", train, test, MEAN, STD, augmentation=settings.augmentation, note=note, crop=crop)


def unlabeled(root: Path | None, settings: Settings) -> ImageSet:
    """Return every image under a folder, nested or not, as one class."""
    top = _root(root, "a folder of images, nested or not")
    paths = pile_images(top)
    pixels, kept = open_readable("folder-pile", top, paths, settings.canvas)
    if not kept:
        raise UserError(f"--root {top} holds no readable image for the unlabelled pile; found {found(top)}")
    return ImageSet(pixels, torch.zeros(len(kept), dtype=torch.int64), ("unlabelled",))


def _root(root: Path | None, where: str) -> Path:
    """Return the root; one that may not even be looked at is the user's mistake."""
    try:
        return required_root(root, "folder", where)
    except OSError as error:
        assert root is not None
        raise unreadable(root, error) from error


def pile_images(top: Path) -> list[str]:
    """Return the images under the folder of a pile, which must be readable itself."""
    if top.is_dir():
        folders_in(top)
    return list(nested_images(top))


def _trees(top: Path, settings: Settings) -> tuple[Path, Path | None]:
    """Return the folders of training and of test images; the latter may have to be split off."""
    # Unlike Path.is_dir, os.path.isdir does not raise in a folder that may not be entered.
    parts = [top / name for name in ("test", "val") if os.path.isdir(top / name)]
    split = os.path.isdir(top / "train") and bool(parts)
    train = top / "train" if split else top
    if not settings.test_folder:
        return train, parts[0] if split else None
    for test in (Path(settings.test_folder), top / settings.test_folder):
        if os.path.isdir(test):
            if test.resolve().parent == train.resolve():
                raise UserError(f"--test-folder {test} lies among the classes of {train}: move it out")
            return train, test
    raise UserError(f"--test-folder is '{settings.test_folder}', which is no folder here or in {top}")


def class_names_in(folder: Path) -> list[str]:
    """Return the names of the class folders in a folder, sorted; having none is the user's mistake."""
    names = folders_in(folder) if folder.is_dir() else []
    if not names:
        raise UserError(f"{folder} has no folder per class: expected {WHERE}; found {found(folder)}")
    for name in names:
        _check_name(folder, name)
    return names


def _check_name(folder: Path, name: str) -> None:
    """Refuse a class whose name is not text: it could not be written to results and model files."""
    readable = name.encode(errors="backslashreplace").decode()
    if readable != name:
        raise UserError(f"the name of the class folder '{readable}' in {folder} is not valid UTF-8: rename it")


def _same_classes(train: list[str], test: list[str], train_folder: Path, test_folder: Path) -> None:
    for name in sorted(set(train) ^ set(test)):
        here, there = (train_folder, test_folder) if name in train else (test_folder, train_folder)
        raise UserError(f"class '{name}' is in {here} but not in {there}; both need the same classes")


def read_classes(folder: Path, label: str, names: list[str], canvas: int) -> ImageSet:
    """Return the readable images of the classes of a folder; a class without any is the user's mistake."""
    files = [images_in(folder / name) for name in names]
    paths = [path for images in files for path in images]
    pixels, kept = open_readable(label, folder, paths, canvas)
    labels = torch.repeat_interleave(torch.tensor([len(images) for images in files]))[kept]
    images = ImageSet(pixels, labels, tuple(names))
    for name, count in zip(names, images.counts().tolist(), strict=True):
        if not count:
            raise UserError(f"class '{name}' has no readable image in {folder / name}: add images or remove the folder")
    return images


def _split(images: ImageSet, share: float, folder: Path) -> tuple[ImageSet, ImageSet]:
    """Return training and test images; a class's split does not depend on the other classes."""
    train, test = [], []
    for label, name in enumerate(images.class_names):
        rows = (images.labels == label).nonzero().squeeze(1).numpy()
        if len(rows) < 2:
            raise UserError(f"class '{name}' has 1 readable image in {folder / name}: training and testing need 2")
        num_test = min(max(1, round(share * len(rows))), len(rows) - 1)
        order = np.random.default_rng(zlib.crc32(name.encode())).permutation(rows)
        test.append(np.sort(order[:num_test]))
        train.append(np.sort(order[num_test:]))
    return tuple(images.select(torch.from_numpy(np.concatenate(part))) for part in (train, test))  # type: ignore[return-value]
