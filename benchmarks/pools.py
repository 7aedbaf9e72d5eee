"""Pictures of some classes for the benchmarks of one's own images, and their features, computed once.

Classes are spread evenly over a data set's sorted list. Tiny-ImageNet's pictures and those of a folder are read from
their files, as `daydream learn` reads them; those of CIFAR-100 and of the drawn shapes come as arrays.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from hog import SIDE, hog
from torch import Tensor

from daydream.data import source
from daydream.data.decode import folders_in, images_in
from daydream.data.images import ImageSet
from daydream.learner.embedding import Embedder, FeatureCache
from daydream.learner.exact_learner import ExactLearner
from daydream.learner.pictures import Picture, stored

DATA = ("tiny-imagenet", "cifar100", "shapes", "folder")
TRAIN, TEST = 200, 50
"""Pictures of each class that draws take theirs from, and that are judged."""
GROUP = 250
SHAPES = {"train_per_class": TRAIN, "test_per_class": TEST, "image_size": 64}


@dataclass
class Side:
    """The training or the test pictures of each class, with the features that have been asked for."""

    pictures: list[list[Picture]]
    embed: Embedder
    frozen: dict[int, Tensor] = field(default_factory=dict)
    drawn: dict[int, Tensor] = field(default_factory=dict)

    def features(self, label: int, most: int) -> Tensor:
        """Return the frozen network's features [M, D] of a class's first pictures."""
        if len(self.frozen.get(label, ())) < min(most, len(self.pictures[label])):
            size = self.embed.prepare.size
            parts = groups(self.pictures[label][:most])
            self.frozen[label] = torch.cat([self.embed(stored(part, size)) for part in parts])
        return self.frozen[label][:most]

    def hog(self, label: int, most: int) -> Tensor:
        """Return histograms of gradients [M, 1764] of a class's first pictures."""
        if len(self.drawn.get(label, ())) < min(most, len(self.pictures[label])):
            parts = groups(self.pictures[label][:most])
            pixels = [stored(part, SIDE) for part in parts]
            self.drawn[label] = torch.cat([hog(part.fetch(torch.arange(part.shape[0]))) for part in pixels])
        return self.drawn[label][:most]


@dataclass(frozen=True)
class Pool:
    """Some classes of a data set."""

    names: list[str]
    train: Side
    test: Side


def groups(pictures: Sequence[Picture]) -> list[Sequence[Picture]]:
    return [pictures[start : start + GROUP] for start in range(0, len(pictures), GROUP)]


def options(parser: argparse.ArgumentParser) -> None:
    """Add what says which pictures and which network."""
    parser.add_argument("data", choices=DATA)
    parser.add_argument("root", type=Path, nargs="?", help="where the data set is; of `shapes`, nothing")
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--side", type=int, default=128, help="pixels that pictures are brought to")
    parser.add_argument("--pool-classes", type=int, default=50, help="classes that draws take theirs from")


def pool(given: argparse.Namespace) -> Pool:
    """Return the pictures that were asked for."""
    embed = ExactLearner.create(given.backbone, image_size=given.side, cache=FeatureCache()).embed
    names, train, test = pictures(given.data, given.root, given.pool_classes)
    return Pool(names, Side(train, embed), Side(test, embed))


def spread(count: int, wanted: int) -> list[int]:
    """Return places spread evenly over a list."""
    step = max(1, count // wanted)
    return list(range(0, count, step))[:wanted]


def pictures(data: str, root: Path | None, wanted: int) -> tuple[list[str], list[list[Picture]], list[list[Picture]]]:
    """Return names of classes, and the pictures of each to train on and to judge by."""
    if data in ("tiny-imagenet", "folder"):
        assert root is not None
        names = folders_in(root / "train")
        names = [names[place] for place in spread(len(names), wanted)]
        train = [images_in(root / "train" / name / ("images" if data != "folder" else "")) for name in names]
        test = validation(root, names) if data != "folder" else [images_in(root / "test" / name) for name in names]
        return names, [list(paths[:TRAIN]) for paths in train], [list(paths[:TEST]) for paths in test]
    module = source(data)
    loaded = module.load(root, module.Settings(classes=wanted, **SHAPES) if data == "shapes" else module.Settings())
    labels = spread(len(loaded.class_names), wanted)
    sides = [
        [arrays(images, label, most) for label in labels]
        for images, most in ((loaded.train, TRAIN), (loaded.test, TEST))
    ]
    return [loaded.class_names[label] for label in labels], sides[0], sides[1]


def validation(root: Path, names: Sequence[str]) -> list[list[str]]:
    """Return the validation pictures of Tiny-ImageNet's classes."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for line in (root / "val" / "val_annotations.txt").read_text(encoding="utf-8").splitlines():
        file, name = line.split("\t")[:2]
        if name in found:
            found[name].append(str(root / "val" / "images" / file))
    return [found[name] for name in names]


def arrays(images: ImageSet, label: int, most: int) -> list[Picture]:
    """Return the first pictures of a class as arrays [H, W, 3]."""
    index = (images.labels == label).nonzero().squeeze(1)[:most]
    return [pixels.permute(1, 2, 0).numpy() for pixels in images.pixels.fetch(index)]
