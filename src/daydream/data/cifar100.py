"""CIFAR-100: 50,000 training and 10,000 test images of 32x32 pixels in 100 classes (the fine labels)."""

from pathlib import Path

from daydream.data.cifar import Layout, load_cifar, load_labelled, load_others
from daydream.data.class_slice import Labelled
from daydream.data.images import Dataset, ImageSet

LAYOUT = Layout(
    name="cifar100",
    title="CIFAR-100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    train=("train",),
    test="test",
    meta="meta",
    labels_key="fine_labels",
    names_key="fine_label_names",
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
)


Settings = Labelled


def load(root: Path | None, settings: Settings) -> Dataset:
    return load_labelled(LAYOUT, root, settings)


def unlabeled(root: Path | None, settings: Settings) -> ImageSet:
    return load_others(LAYOUT, root, settings)


def whole(root: Path | None) -> ImageSet:
    return load_cifar(LAYOUT, root).train
