"""ImageNet-Subset: 100 classes of ILSVRC 2012, from `train/<class id>/` and `val/<class id>/`.

Which 100 differs between papers, so the choice is a setting and travels with the results in `Dataset.note`: the paper's
released split files hold the first 100 of the sorted class ids, others shuffle with seed 1993 first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from daydream.data import found, required_root
from daydream.data.decode import canvas_size, folders_in, images_in
from daydream.data.decoded import open_images
from daydream.data.images import Dataset, ImageSet
from daydream.data.sources.class_slice import parse
from daydream.errors import UserError
from daydream.settings import require, setting

FIRST = "0:100"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WHERE = "an ILSVRC 2012 tree with train/<class id>/*.JPEG and val/<class id>/*.JPEG, from https://image-net.org"


@dataclass(frozen=True, kw_only=True)
class Settings:
    subset: str = setting("first", "which classes are labelled: first, seed1993, or a file with one class id per line")
    labelled: str = setting("", "range of those classes that are labelled, the others the pile; the first 100 if empty")
    image_size: int = setting(224, "height and width in pixels that the network sees")

    def __post_init__(self) -> None:
        parse(self.labelled, "labelled")
        require(self.image_size >= 8, f"--image-size is {self.image_size}, but takes 8 or more")


def load(root: Path | None, settings: Settings) -> Dataset:
    """Return the labelled classes; the test images are those of `val`."""
    tree = _locate(root)
    wnids = labelled_classes(folders_in(tree / "train"), settings)
    train, test = (_image_set(tree, part, part, wnids, settings) for part in ("train", "val"))
    which = {"first": "first of the sorted class ids", "seed1993": "first of the class ids shuffled with seed 1993"}
    note = f"{len(wnids)} classes: {which.get(settings.subset, f'listed in {settings.subset}')}"
    crop = settings.image_size
    return Dataset("imagenet-subset", train, test, MEAN, STD, augmentation="imagenet", note=note, crop=crop)


def unlabeled(root: Path | None, settings: Settings) -> ImageSet:
    """Return the training images of all other classes; no method reads their labels."""
    tree = _locate(root)
    wnids = folders_in(tree / "train")
    labelled = set(labelled_classes(wnids, settings))
    others = [wnid for wnid in wnids if wnid not in labelled]
    if not others:
        raise UserError(
            f"all {len(wnids)} classes of {tree / 'train'} are labelled, none is left: label fewer by --labelled"
        )
    return _image_set(tree, "train", "pile", others, settings)


def labelled_classes(wnids: Sequence[str], settings: Settings) -> list[str]:
    """Choose the labelled classes among the sorted class ids, in the convention's order."""
    if settings.subset == "first":
        chosen = list(wnids)
    elif settings.subset == "seed1993":
        order = np.arange(len(wnids))
        np.random.RandomState(1993).shuffle(order)
        chosen = [wnids[i] for i in order.tolist()]
    else:
        chosen = _listed(Path(settings.subset), wnids)
    wanted = parse(settings.labelled or FIRST, "labelled")
    if (wanted.stop or wanted.start + 1) > len(chosen):
        raise UserError(
            f"--labelled is {settings.labelled or FIRST}, but --subset {settings.subset} has {len(chosen)} classes"
        )
    return chosen[wanted]


def _listed(path: Path, wnids: Sequence[str]) -> list[str]:
    if not path.is_file():
        raise UserError(f"--subset is '{path}', but takes first, seed1993 or a file with one class id per line")
    lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    listed = [line for line in lines if line]
    known, seen = set(wnids), set[str]()
    for wnid in listed:
        if wnid not in known or wnid in seen:
            raise UserError(
                f"{path} lists {wnid[:40]!r}, which is {'twice there' if wnid in seen else 'no folder of train/'}"
            )
        seen.add(wnid)
    return listed


def _locate(root: Path | None) -> Path:
    tree = required_root(root, "imagenet-subset", WHERE)
    if not all((tree / part).is_dir() and folders_in(tree / part) for part in ("train", "val")):
        raise UserError(f"--root {tree} holds no ImageNet tree: expected {WHERE}; found {found(tree)}")
    return tree


def _image_set(tree: Path, part: str, label: str, wnids: Sequence[str], settings: Settings) -> ImageSet:
    paths: list[str] = []
    labels: list[int] = []
    for number, wnid in enumerate(wnids):
        folder = tree / part / wnid
        images = images_in(folder) if folder.is_dir() else []
        if not images:
            raise UserError(f"{folder} holds no image; data set 'imagenet-subset' needs {WHERE}")
        paths += images
        labels += [number] * len(images)
    canvas = canvas_size(settings.image_size, "imagenet")
    pixels = open_images(f"imagenet-subset-{label}", tree, paths, canvas)
    return ImageSet(pixels, torch.tensor(labels), tuple(wnids))
