"""Pictures as people give them (a file, a Pillow image, an array), and as a learner stores them."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from daydream.data.decode import decode, square
from daydream.data.images import Resident
from daydream.errors import UserError

Picture = str | Path | Image.Image | NDArray[np.uint8]
"""A file, a Pillow image, or an array [H, W], [H, W, 3] or [H, W, 4] of uint8."""


def stored(pictures: Picture | Sequence[Picture], canvas: int) -> Resident:
    """Return one picture or several as a learner stores them."""
    several = [pictures] if isinstance(pictures, str | Path | Image.Image | np.ndarray) else list(pictures)
    if not several:
        return Resident(torch.zeros(0, 3, canvas, canvas, dtype=torch.uint8))
    return Resident(torch.from_numpy(np.stack([pixels_of(picture, canvas) for picture in several])))


def pixels_of(picture: Picture, canvas: int) -> NDArray[np.uint8]:
    """Return a picture [3, canvas, canvas]."""
    if isinstance(picture, Image.Image):
        return square(picture, canvas)
    if isinstance(picture, np.ndarray):
        return square(Image.fromarray(picture), canvas)
    try:
        return decode(os.fspath(picture), canvas)
    except Exception as error:  # a damaged file can raise nearly anything
        raise UserError(f"{picture} cannot be read as a picture: {' '.join(str(error).split())}") from error
