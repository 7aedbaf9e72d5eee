"""`arrays`: images given from Python as NumPy arrays. There is nothing to read: the command cannot name them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from daydream.data.images import Dataset, ImageSet, Resident
from daydream.errors import UserError

NAME = "arrays"
SMALLEST = 8


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Arrays have none."""


def load(root: Path | None, settings: Settings) -> Dataset:
    raise UserError("data set 'arrays' is given from Python: daydream.run(data=(images, labels, images, labels))")


def dataset(train: NDArray[Any], train_labels: NDArray[Any], test: NDArray[Any], test_labels: NDArray[Any]) -> Dataset:
    """Return a data set of images [N, H, W, 3] or [N, 3, H, W] of uint8 and labels [N] of any kind.

    Classes are the different training labels, sorted. Mean and deviation are those of the training images.
    """
    pixels = [_pixels(images, f"the {part} images") for images, part in ((train, "training"), (test, "test"))]
    if pixels[0].shape[1:] != pixels[1].shape[1:]:
        raise UserError(f"training images are {_size(pixels[0])}, test images {_size(pixels[1])}: make them one size")
    names, places = np.unique(_checked(train_labels, pixels[0], "training"), return_inverse=True)
    if len(names) < 2:
        raise UserError("the training labels name one class: two or more are needed")
    asked = _checked(test_labels, pixels[1], "test")
    unknown = np.setdiff1d(asked, names)
    if len(unknown):
        raise UserError(f"the test labels name class {unknown[0]!r}, which has no training image")
    words = tuple(str(name) for name in names.tolist())
    sets = [
        ImageSet(Resident(torch.from_numpy(images)), torch.from_numpy(index.astype(np.int64).reshape(-1)), words)
        for images, index in zip(pixels, (places, np.searchsorted(names, asked)), strict=True)
    ]
    values = pixels[0].transpose(1, 0, 2, 3).reshape(3, -1)
    mean, std = values.mean(1, dtype=np.float64) / 255, np.maximum(values.std(1, dtype=np.float64), 1) / 255
    return Dataset(NAME, sets[0], sets[1], _three(mean), _three(std), augmentation="cifar")


def _three(values: NDArray[np.float64]) -> tuple[float, float, float]:
    red, green, blue = values.tolist()
    return red, green, blue


def _pixels(images: NDArray[Any], what: str) -> NDArray[np.uint8]:
    """Return images as [N, 3, S, S], or say what is wrong with them."""
    if images.dtype != np.uint8 or images.ndim != 4 or 3 not in (images.shape[1], images.shape[3]):
        raise UserError(
            f"{what} are {images.dtype} of shape {images.shape}, but must be uint8 [N, H, W, 3] or [N, 3, H, W]"
        )
    rows = images if images.shape[1] == 3 else images.transpose(0, 3, 1, 2)
    if not len(rows) or rows.shape[2] != rows.shape[3] or rows.shape[2] < SMALLEST:
        raise UserError(f"{what} are {len(rows)} of {_size(rows)}, but must be square, of side {SMALLEST} or more")
    return np.ascontiguousarray(rows)


def _checked(labels: NDArray[Any], images: NDArray[np.uint8], part: str) -> NDArray[Any]:
    if labels.shape != (len(images),):
        raise UserError(f"there are {len(images)} {part} images, but labels of shape {labels.shape}")
    return labels


def _size(pixels: NDArray[Any]) -> str:
    return f"{pixels.shape[2]}x{pixels.shape[3]} pixels"
