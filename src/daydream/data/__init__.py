"""Sources of images by name; a source's module is imported when it is asked for.

A source is a module with a frozen dataclass `Settings` and `load(root, settings) -> Dataset`; one that also has a pile
of unlabelled images offers `unlabeled(root, settings) -> ImageSet`.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from daydream.errors import UserError, unknown

if TYPE_CHECKING:  # listing the sources, or decoding in a worker process, must not pay for importing torch
    from daydream.data.images import Dataset

SOURCES: dict[str, tuple[str, str]] = {
    "shapes": ("daydream.data.shapes", "procedural shapes, made on the spot: the embedded default"),
    "cifar100": ("daydream.data.cifar100", "CIFAR-100, the official python archive or its unpacked folder"),
    "cifar10": ("daydream.data.cifar10", "CIFAR-10, the official python archive or its unpacked folder"),
    "imagenet32": ("daydream.data.imagenet32", "downsampled ImageNet, the 32x32 batch files"),
    "tiny-imagenet": ("daydream.data.tiny_imagenet", "Tiny-ImageNet-200, the official folder tree, 64x64"),
    "imagenet-subset": ("daydream.data.imagenet_subset", "100 classes of an ILSVRC train/ and val/ tree, 224x224"),
    "folder": ("daydream.data.folder", "your own images: DIR/<class>/*.{png,jpg,jpeg,webp,bmp,gif}"),
}


class Source(Protocol):
    """What a source's module offers."""

    Settings: type

    def load(self, root: Path | None, settings: Any) -> "Dataset": ...


def source(name: str) -> Source:
    """Import the module of a source by its name."""
    if name not in SOURCES:
        raise unknown("data set", name, SOURCES)
    return cast(Source, importlib.import_module(SOURCES[name][0]))


def required_root(root: Path | None, name: str, where: str) -> Path:
    """Return the data set's root, or say where to get it."""
    if root is None:
        raise UserError(f"data set '{name}' needs --root DIR: {where}")
    if not root.exists():
        raise UserError(f"--root {root} does not exist; data set '{name}' needs {where}")
    return root


def found(root: Path) -> str:
    """Say in a few names what lies at a path that is not what was expected."""
    if not root.is_dir():
        return "a file"
    names = sorted(entry.name for entry in root.iterdir())
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "") or "an empty folder"
