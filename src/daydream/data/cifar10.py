"""CIFAR-10: 50,000 training and 10,000 test images of 32x32 pixels in 10 classes."""

from pathlib import Path

from daydream.data.cifar import Layout, load_cifar, load_labelled, load_others
from daydream.data.class_slice import Labelled
from daydream.data.images import Dataset, ImageSet

LAYOUT = Layout(
    name="cifar10",
    title="CIFAR-10",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
    labels_key="labels",
    names_key="label_names",
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)


Settings = Labelled


def load(root: Path | None, settings: Settings) -> Dataset:
    return load_labelled(LAYOUT, root, settings)


def unlabeled(root: Path | None, settings: Settings) -> ImageSet:
    return load_others(LAYOUT, root, settings)


def whole(root: Path | None) -> ImageSet:
    return load_cifar(LAYOUT, root).train
