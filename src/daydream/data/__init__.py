"""Images: where they come from, how they are kept and augmented, and the unlabelled pile.

A source, by its name in `SOURCES`, is a module or an object with a frozen dataclass `Settings` and
`load(root, settings) -> Dataset`; one that also has a pile of unlabelled images offers
`unlabeled(root, settings) -> ImageSet`. It is imported when it is asked for.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from daydream.errors import UserError, unknown

if TYPE_CHECKING:  # listing the sources, or decoding in a worker process, must not pay for importing torch
    from daydream.data.images import Dataset

SOURCES: dict[str, tuple[str, str]] = {
    "shapes": ("daydream.data.sources.shapes.shapes", "procedural shapes, made on the spot: the embedded default"),
    "cifar100": (
        "daydream.data.sources.cifar:CIFAR100",
        "CIFAR-100, the official python archive or its unpacked folder",
    ),
    "cifar10": ("daydream.data.sources.cifar:CIFAR10", "CIFAR-10, the official python archive or its unpacked folder"),
    "imagenet32": ("daydream.data.sources.imagenet32", "downsampled ImageNet, the 32x32 batch files"),
    "tiny-imagenet": ("daydream.data.sources.tiny_imagenet", "Tiny-ImageNet-200, the official folder tree, 64x64"),
    "imagenet-subset": (
        "daydream.data.sources.imagenet_subset",
        "100 classes of an ILSVRC train/ and val/ tree, 224x224",
    ),
    "arrays": ("daydream.data.sources.arrays", "your own images as NumPy arrays, from Python alone: daydream.run"),
    "folder": ("daydream.data.sources.folder", "your own images: DIR/<class>/*.{png,jpg,jpeg,webp,bmp,gif}"),
}


class Source(Protocol):
    """What a source's module offers."""

    Settings: type

    def load(self, root: Path | None, settings: Any) -> "Dataset": ...


def source(name: str) -> Source:
    """Import a source by its name."""
    if name not in SOURCES:
        raise unknown("data set", name, SOURCES)
    module, _, attribute = SOURCES[name][0].partition(":")
    found = importlib.import_module(module)
    return cast(Source, getattr(found, attribute) if attribute else found)


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
