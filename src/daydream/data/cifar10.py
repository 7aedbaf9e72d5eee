"""CIFAR-10: 50,000 training and 10,000 test images of 32x32 pixels in 10 classes."""

from dataclasses import dataclass
from pathlib import Path

from daydream.data.cifar import Layout, load_cifar
from daydream.data.images import Dataset

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


@dataclass(frozen=True, kw_only=True)
class Settings:
    """CIFAR-10 has nothing to set."""


def load(root: Path | None, settings: Settings) -> Dataset:
    return load_cifar(LAYOUT, root)
