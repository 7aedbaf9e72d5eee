"""Decode image files with Pillow to squares of one size.

Imports no torch, as the worker processes of `decode_pool.py` import this module.
"""

import contextlib
import hashlib
import logging
import os
import stat
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from daydream.errors import UserError

log = logging.getLogger("daydream")

VERSION = 1
"""Raise when the pixels that `decode` returns change: cached sets are then made anew."""
RESIDENT_GIB = 24.0
"""A set whose decoded pixels take at most this much is held in memory; $DAYDREAM_RESIDENT_GB overrides it."""
MAX_PIXELS = 2**26
"""A picture of more pixels is refused: a small file can be a large one. $DAYDREAM_MAX_PIXELS overrides it."""
DRAFTED = 4
"""How many times as large a picture may be that is not decoded whole."""
ROWS = 64
NAMED = 10
"""Skipped files that are named one by one."""
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif"})
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
"""What Pillow may take a file for, whatever its name says; a GIF called .jpg is common."""


@dataclass(frozen=True)
class Decoding:
    """Decoded images [N, 3, canvas, canvas], and for each that failed (its pixels are 0) the reason by its index."""

    pixels: NDArray[np.uint8]
    failures: dict[int, str]


def canvas_size(image_size: int, augmentation: str) -> int:
    """Return the side to store: `imagenet` crops at random, from 256 pixels for 224."""
    return round(image_size * 256 / 224) if augmentation == "imagenet" else image_size


def fits_in_memory(num_images: int, canvas: int) -> bool:
    """Tell whether a decoded set is small enough to be held in memory."""
    text = os.environ.get("DAYDREAM_RESIDENT_GB", str(RESIDENT_GIB))
    try:
        limit = float(text) * 2**30
    except ValueError:
        raise UserError(f"DAYDREAM_RESIDENT_GB is '{text}', but takes a number of GiB such as 24") from None
    return num_images * 3 * canvas**2 <= limit


def images_in(folder: Path) -> list[str]:
    """Return the paths of a folder's image files, by name; hidden files, such as macOS leaves, are none."""
    names = _visible(folder, lambda entry: entry.is_file())
    return [os.path.join(folder, name) for name in names if os.path.splitext(name)[1].lower() in SUFFIXES]


def folders_in(folder: Path) -> list[str]:
    """Return the sorted names of a folder's visible sub-folders."""
    return _visible(folder, lambda entry: entry.is_dir())


def skipped(paths: Sequence[str], failed: Sequence[int]) -> str:
    """Say which pictures cannot be decoded, by their places; the first of them by name."""
    named = ", ".join(paths[i] for i in failed[:NAMED])
    more = f" and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
    return f"skipped {len(failed)} of {len(paths)} images that cannot be decoded: {named}{more}"


def unreadable(folder: Path, error: OSError) -> UserError:
    return UserError(f"{folder} cannot be read ({error.strerror or error}); make it readable or take it away")


def _visible(folder: Path, wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
    """Return the sorted names of a folder's visible entries of a kind; one that cannot be read is a user's mistake."""
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if not e.name.startswith(".") and wanted(e))
    except OSError as error:
        raise unreadable(folder, error) from error


def nested_images(top: Path) -> Iterator[str]:
    """Yield the images of a folder and of its visible sub-folders, by name; name in the log what cannot be read."""
    for folder, names, _ in os.walk(top, onerror=_warn):
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield from images_in(Path(folder))


def _warn(error: OSError) -> None:
    log.warning("skipped the folder %s, which cannot be read: %s", error.filename, error.strerror)


def paths_of(words: Sequence[str]) -> list[str]:
    """Return the image files that words name: files as they are, folders by the images under them."""
    paths: list[str] = []
    for word in words:
        paths += nested_images(Path(word)) if os.path.isdir(word) else [word]
    return paths


class Refused(Exception):
    """A file is not opened as a picture, whatever it holds."""


def max_pixels() -> int:
    """Return the most pixels a picture may have."""
    text = os.environ.get("DAYDREAM_MAX_PIXELS", str(MAX_PIXELS))
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"DAYDREAM_MAX_PIXELS is '{text}', but takes a whole number such as {MAX_PIXELS}")
    return int(text)


@contextlib.contextmanager
def opened(path: str, canvas: int) -> Iterator[Image.Image]:
    """Open a picture, of which nothing is decoded yet; what is no file, or would take too much memory, is refused.

    A large JPEG is decoded at a fraction of its size, never below the canvas, so it may be larger.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise Refused("it is no file but a folder, a device or a pipe")
    with opened_bytes(path, canvas) as file:
        yield file


@contextlib.contextmanager
def opened_bytes(source: str | IO[bytes], canvas: int) -> Iterator[Image.Image]:
    """Open a picture that is in memory, with the same limits."""
    most, usual = max_pixels(), Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = None  # ours is the limit
    try:
        file = Image.open(source, formats=FORMATS)
    finally:
        Image.MAX_IMAGE_PIXELS = usual
    with file:
        whole = file.width * file.height
        file.draft(None, (canvas, canvas))
        if file.width * file.height > most or whole > DRAFTED * most:
            raise Refused(f"it has {whole:,} pixels, and {most:,} is the limit ($DAYDREAM_MAX_PIXELS, --max-pixels)")
        yield file


def decode(path: str, canvas: int) -> NDArray[np.uint8]:
    """Return the image as [3, canvas, canvas]: upright, RGB, short side scaled to `canvas`, centre kept."""
    with opened(path, canvas) as file:
        return square(file, canvas)


def square(picture: Image.Image, canvas: int) -> NDArray[np.uint8]:
    """Return an opened picture as `decode` returns a file."""
    image = _rgb(ImageOps.exif_transpose(picture))
    (width, height), side = image.size, min(image.size)
    left, top = (width - side) // 2, (height - side) // 2
    scaled = image.resize((canvas, canvas), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
    return np.asarray(scaled).transpose(2, 0, 1)


def digest_of(image: NDArray[np.uint8]) -> int:
    """Return a number for a stored picture [3, S, S], equal for equal pixels: what a model knows a picture by."""
    digest = hashlib.blake2b(image.tobytes(), digest_size=8, salt=str(image.shape[1]).encode())
    return int.from_bytes(digest.digest(), "little", signed=True)


def decode_group(paths: Sequence[str], canvas: int) -> Decoding:
    """Decode a few images, one after the other; what cannot be decoded is reported, not raised."""
    pixels = np.zeros((len(paths), 3, canvas, canvas), np.uint8)
    failures = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's remarks on odd but readable files
        for i, path in enumerate(paths):
            try:
                pixels[i] = decode(path, canvas)
            except MemoryError:
                raise
            except Exception as error:  # a damaged file can raise nearly anything
                failures[i] = why(error)
    return Decoding(pixels, failures)


def why(error: Exception) -> str:
    """Say in words why a file could not be decoded."""
    if isinstance(error, UnidentifiedImageError):
        return "it is no picture that can be read"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(f"{type(error).__name__}: {error}".split())


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale a picture of 16 bits per pixel, which Pillow would clip, a few rows at a time."""
    width, height = image.size
    grey = np.empty((height, width), np.uint8)
    for top in range(0, height, ROWS):
        bottom = min(top + ROWS, height)
        grey[top:bottom] = (np.asarray(image.crop((0, top, width, bottom))) // 257).clip(0, 255)
    return Image.fromarray(grey)


def _rgb(image: Image.Image) -> Image.Image:
    """Convert to RGB, transparent parts over white: what a picture with them is mostly drawn for."""
    if image.mode.startswith("I"):
        return _eight_bits(image).convert("RGB")
    if "transparency" in image.info or {"A", "a"} & set(image.getbands()):
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")
