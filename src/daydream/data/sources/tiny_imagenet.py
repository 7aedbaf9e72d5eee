"""Tiny-ImageNet-200: 500 training and 50 validation images of 64x64 pixels in each of 200 ImageNet classes.

Its labelled classes can be a range, the others' training images then are the unlabelled pile: a stand-in for
ImageNet-Subset with its 900 other classes, which it is not. Results must say so; `Dataset.note` does.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from daydream.data import found, required_root
from daydream.data.decode import folders_in, images_in
from daydream.data.decoded import open_images
from daydream.data.images import Dataset, ImageSet
from daydream.data.sources.class_slice import Labelled
from daydream.errors import UserError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZE = 64
WHERE = "the folder tiny-imagenet-200, from http://cs231n.stanford.edu/tiny-imagenet-200.zip"


Settings = Labelled


def load(root: Path | None, settings: Settings) -> Dataset:
    """Return the labelled classes; the test images are the official validation images."""
    tree = _locate(root)
    wnids, place = folders_in(tree / "train"), str(tree / "train")
    wnids = [wnids[number] for number in settings.choose(len(wnids), place)]
    names = _names(tree, wnids)
    train = _train(tree, "tiny-imagenet-train", wnids, names)
    annotated = _annotations(tree)
    pairs = [(path, label) for label, wnid in enumerate(wnids) for path in annotated.get(wnid, [])]
    bare = set(wnids) - set(annotated)
    if bare:
        raise UserError(f"{tree / 'val' / 'val_annotations.txt'} names no image of class {min(bare)}; unpack it again")
    pixels = open_images("tiny-imagenet-val", tree, [path for path, _ in pairs], SIZE)
    test = ImageSet(pixels, torch.tensor([label for _, label in pairs]), names)
    which = f"classes {settings.labelled} of the sorted list labelled: a stand-in for"
    note = f"{which} ImageNet-Subset, not ImageNet-Subset" if settings.labelled else ""
    return Dataset("tiny-imagenet", train, test, MEAN, STD, augmentation="cifar", note=note)


def unlabeled(root: Path | None, settings: Settings) -> ImageSet:
    """Return the training images of the classes that are not labelled, named by id; no method reads their labels."""
    tree = _locate(root)
    wnids = folders_in(tree / "train")
    others = [wnids[number] for number in settings.others(len(wnids), str(tree / "train"))]
    return _train(tree, "tiny-imagenet-pile", others, tuple(others))


def whole(root: Path | None) -> ImageSet:
    """Return all training images, classes named by id: the pile of another data set."""
    tree = _locate(root)
    wnids = folders_in(tree / "train")
    return _train(tree, "tiny-imagenet-train", wnids, tuple(wnids))


def _locate(root: Path | None) -> Path:
    given = required_root(root, "tiny-imagenet", WHERE)
    for tree in (given, given / "tiny-imagenet-200"):
        if (tree / "train").is_dir() and (tree / "val" / "val_annotations.txt").is_file():
            return tree
    raise UserError(
        f"--root {given} holds no Tiny-ImageNet: expected {WHERE}, with train/ and val/val_annotations.txt; "
        f"found {found(given)}"
    )


def _train(tree: Path, label: str, wnids: Sequence[str], names: tuple[str, ...]) -> ImageSet:
    paths: list[str] = []
    labels: list[int] = []
    for number, wnid in enumerate(wnids):
        folder = tree / "train" / wnid / "images"
        images = images_in(folder) if folder.is_dir() else []
        if not images:
            raise UserError(f"{folder} holds no image; unpack Tiny-ImageNet again")
        paths += images
        labels += [number] * len(images)
    return ImageSet(open_images(label, tree, paths, SIZE), torch.tensor(labels), names)


def _annotations(tree: Path) -> dict[str, list[str]]:
    """Return the validation images' paths by class id: lines of `name <tab> class id <tab> box`."""
    source = tree / "val" / "val_annotations.txt"
    annotated: dict[str, list[str]] = {}
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split("\t")
        if len(fields) < 2 or "/" in fields[0]:
            raise UserError(f"{source}, line {number} is not 'image <tab> class id ...'; unpack Tiny-ImageNet again")
        annotated.setdefault(fields[1], []).append(str(tree / "val" / "images" / fields[0]))
    return annotated


def _names(tree: Path, wnids: Sequence[str]) -> tuple[str, ...]:
    """Return the first word of each class, or its id where words.txt has none or gives it to two classes."""
    words: dict[str, str] = {}
    source = tree / "words.txt"
    if source.is_file():
        for line in source.read_text(encoding="utf-8").splitlines():
            wnid, _, text = line.partition("\t")
            words[wnid] = text.split(",")[0].strip()
    first = [words.get(wnid) or wnid for wnid in wnids]
    return tuple(wnid if first.count(name) > 1 else name for wnid, name in zip(wnids, first, strict=True))
