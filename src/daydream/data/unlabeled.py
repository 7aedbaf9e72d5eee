"""The pile of unlabelled images: which source it comes from, which of its classes, at what size.

A pile's class names serve only to choose classes; where they are ImageNet's class ids ("n02206856"), the classes that
CIFAR-100 has too can be left out. What is returned has one class, so no method can read a label by mistake.

Shapes: N images, 3 channels, S x S pixels. Importing this module imports no torch, as `--help` needs the settings.
"""

import json
import logging
import re
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from daydream.data import source
from daydream.errors import UserError
from daydream.settings import require, setting

if TYPE_CHECKING:
    from daydream.data.images import ImageSet, Pixels

log = logging.getLogger("daydream")

OWN_PILE = ("shapes", "imagenet-subset")
"""Data sets that always leave images unlabelled: those of the classes that are not learnt."""
CHUNK = 1024
"""Images resized at once."""


@dataclass(frozen=True, kw_only=True)
class PileSource:
    """Where the unlabelled images come from."""

    unlabeled: str = setting(
        "",
        "unlabelled images: NAME:DIR, e.g. imagenet32:DIR, folder:DIR; by default the data set's own, if it has any",
    )
    pile_classes: int | None = setting(
        None, "only the first N classes of the source, after --pile-exclude", expert=True
    )
    pile_exclude: Literal["", "cifar100"] = setting(
        "",
        "cifar100 leaves out the source's classes that mean the same as one of CIFAR-100 (the paper's ImageNet-ec)",
        expert=True,
    )

    def __post_init__(self) -> None:
        require(
            self.pile_classes is None or self.pile_classes >= 1,
            f"--pile-classes is {self.pile_classes}, but takes 1 or more",
        )


def load_pile(
    settings: PileSource, data_name: str, root: Path | None, data_settings: Any, image_size: int
) -> "ImageSet":
    """Return the unlabelled images, stored at `image_size` as those of the data set are; all labels are 0."""
    import torch

    from daydream.data.images import ImageSet

    name, _, folder = settings.unlabeled.partition(":")
    place = Path(folder).expanduser() if folder else None
    own = not settings.unlabeled or (name == data_name and has_own_pile(data_name, data_settings))
    try:
        images = _own(data_name, place or root, data_settings) if own else _borrowed(name, place, image_size)
    except UserError as error:
        if own and not place:
            raise
        # a source's words are about the data set's own folder
        raise UserError(str(error).replace("--root ", f"--unlabeled {name}:")) from None
    images = _chosen(images, settings, name or data_name)
    pixels = _resized(images.pixels, image_size)
    return ImageSet(pixels, torch.zeros(len(images), dtype=torch.int64), ("unlabelled",))


def classes_in_cifar100() -> frozenset[str]:
    """Return the ids of ImageNet's classes that mean the same as a class of CIFAR-100, or are kinds of it."""
    text = resources.files("daydream.data").joinpath("cifar100_in_imagenet.json").read_text(encoding="utf-8")
    listed = {name: ids for name, ids in json.loads(text).items() if name != "about"}
    return frozenset(wnid for ids in listed.values() for wnid in ids)


def has_own_pile(data_name: str, data_settings: Any) -> bool:
    """Say whether a data set leaves images unlabelled: always, or since a part of its classes is labelled."""
    return data_name in OWN_PILE or bool(getattr(data_settings, "labelled", ""))


def _own(data_name: str, root: Path | None, data_settings: Any) -> "ImageSet":
    module: Any = source(data_name)
    if not has_own_pile(data_name, data_settings):
        part = ", or label a part of it, e.g. --labelled 0:50" if hasattr(data_settings, "labelled") else ""
        raise UserError(
            f"data set '{data_name}' has no unlabelled images of its own: "
            f"say where they are with --unlabeled NAME:DIR, e.g. imagenet32:DIR or folder:DIR{part}"
        )
    return cast("ImageSet", module.unlabeled(root, data_settings))


def _borrowed(name: str, folder: Path | None, image_size: int) -> "ImageSet":
    """Return another source's pile: what it leaves unlabelled by default, or else all of its training images."""
    module: Any = source(name)
    settings = _settings(name, module.Settings, image_size)
    if hasattr(module, "whole"):
        images = module.whole(folder)
    elif hasattr(module, "unlabeled"):
        images = module.unlabeled(folder, settings)
    else:
        images = module.load(folder, settings).train
    return cast("ImageSet", images)


def _settings(name: str, kind: type, image_size: int) -> Any:
    """Return a source's default settings, such that it stores images of the wanted size where it can choose."""
    if "image_size" not in {field.name for field in fields(kind)}:
        return kind()
    from daydream.data.decode import canvas_size
    from daydream.data.sources.folder import LARGE

    margin = name == "imagenet-subset" or (name == "folder" and image_size > canvas_size(LARGE, "imagenet"))
    return kind(image_size=max(8, round(image_size * 224 / 256) if margin else image_size))


def _chosen(images: "ImageSet", settings: PileSource, name: str) -> "ImageSet":
    """Leave out the classes of --pile-exclude, and then all but the first of --pile-classes."""
    import torch

    kept = list(range(len(images.class_names)))
    if settings.pile_exclude:
        _require_ids(images.class_names, settings, name)
        known = classes_in_cifar100()
        kept = [label for label in kept if images.class_names[label] not in known]
    if settings.pile_classes is not None:
        if settings.pile_classes > len(kept):
            left = " left" if settings.pile_exclude else ""
            raise UserError(
                f"--pile-classes is {settings.pile_classes}, but the pile of '{name}' has {len(kept)} classes{left}"
            )
        kept = kept[: settings.pile_classes]
    if len(kept) < len(images.class_names):
        images = images.of_classes(torch.tensor(kept, dtype=torch.int64))
    if not len(images):
        raise UserError(f"no image is left in the pile of '{name}': choose another --unlabeled or other classes of it")
    return images


def _require_ids(class_names: tuple[str, ...], settings: PileSource, name: str) -> None:
    unnamed = [text for text in class_names if not re.fullmatch(r"n\d{8}", text)]
    if unnamed and name == "imagenet32":
        from daydream.data.sources.imagenet32 import CLASS_IDS

        raise UserError(
            f"--pile-exclude {settings.pile_exclude} needs ImageNet's class ids, but the folder of 'imagenet32' lacks "
            f"{CLASS_IDS}: put that file of ImageNet's development kit beside the batches"
        )
    if unnamed:
        raise UserError(
            f"--pile-exclude {settings.pile_exclude} needs classes named by ImageNet's class ids such as n02206856, "
            f"but '{name}' has the class '{unnamed[0]}': use imagenet32, tiny-imagenet or imagenet-subset"
        )


def _resized(pixels: "Pixels", size: int) -> "Pixels":
    """Bring pixels [N, 3, H, W] to [N, 3, S, S], with the filter that images are decoded with."""
    import torch
    import torch.nn.functional as F

    from daydream.data.decoded import Decoded, open_images
    from daydream.data.images import Resident

    num, _, height, width = pixels.shape
    if (height, width) == (size, size):
        return pixels
    log.info("the pile's images are resized from %dx%d to %dx%d pixels", height, width, size, size)
    if isinstance(pixels, Decoded):
        return open_images("resized-pile", Path(pixels.paths[0]).parent, pixels.paths, size)
    images = torch.empty((num, 3, size, size), dtype=torch.uint8)
    for index in torch.arange(num).split(CHUNK):
        images[index] = F.interpolate(pixels.fetch(index).cpu(), (size, size), mode="bilinear", antialias=True)
    return Resident(images)
