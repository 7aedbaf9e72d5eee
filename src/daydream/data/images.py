"""The image set: uint8 images of one size, labels and class names, wherever the pixels live.

Shapes: N images, B in a batch, S steps, C = 3 channels, H x W pixels.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor


class Pixels(Protocol):
    """N uint8 images [3, H, W], fetched by index."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(N, 3, H, W)."""
        ...

    @property
    def device(self) -> torch.device:
        """Where fetched batches land."""
        ...

    def fetch(self, index: Tensor) -> Tensor:
        """Return images [B, 3, H, W], uint8, on the device, for an index [B]."""
        ...

    def batches(self, rows: Tensor) -> Iterator[Tensor]:
        """Yield `fetch(row)` for each row of an index [S, B], prepared ahead where that takes time."""
        ...

    def select(self, index: Tensor) -> "Pixels":
        """Return the images of an index [M], in its order."""
        ...

    def to(self, device: torch.device) -> "Pixels":
        """Return the same images, fetched onto `device`."""
        ...


@dataclass(frozen=True)
class Resident:
    """Pixels held as one tensor on the device: a batch is a gather."""

    tensor: Tensor

    def __post_init__(self) -> None:
        assert self.tensor.dtype == torch.uint8, self.tensor.dtype
        assert self.tensor.ndim == 4, self.tensor.shape
        assert self.tensor.shape[1] == 3, self.tensor.shape

    @property
    def shape(self) -> tuple[int, int, int, int]:
        n, c, h, w = self.tensor.shape
        return n, c, h, w

    @property
    def device(self) -> torch.device:
        return self.tensor.device

    def fetch(self, index: Tensor) -> Tensor:
        return self.tensor[index.to(self.device)]

    def batches(self, rows: Tensor) -> Iterator[Tensor]:
        for row in rows.to(self.device):
            yield self.tensor[row]

    def select(self, index: Tensor) -> "Resident":
        return Resident(self.fetch(index))

    def to(self, device: torch.device) -> "Resident":
        return Resident(self.tensor.to(device))


@dataclass(frozen=True)
class ImageSet:
    """Images with labels; `labels` [N], int64, stay on the CPU and index `class_names`."""

    pixels: Pixels
    labels: Tensor
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        assert len(self.labels) == self.pixels.shape[0], (len(self.labels), self.pixels.shape)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def image_size(self) -> tuple[int, int]:
        return self.pixels.shape[2], self.pixels.shape[3]

    def select(self, index: Tensor) -> Self:
        """Return the images of an index [M], in its order."""
        return replace(self, pixels=self.pixels.select(index), labels=self.labels[index.cpu()])

    def of_classes(self, labels: Tensor) -> Self:
        """Return the images whose label is in `labels`, in their order here."""
        return self.select(torch.isin(self.labels, labels).nonzero().squeeze(1))

    def alone(self, labels: Sequence[int]) -> Self:
        """Return the images of these classes as a set that knows no others: labels count them in this order."""
        kept = self.of_classes(torch.tensor(labels))
        place = torch.full((len(self.class_names),), -1)
        place[torch.tensor(labels)] = torch.arange(len(labels))
        names = tuple(self.class_names[label] for label in labels)
        return replace(kept, labels=place[kept.labels], class_names=names)

    def to(self, device: torch.device) -> Self:
        return replace(self, pixels=self.pixels.to(device))

    def counts(self) -> Tensor:
        """Return the number of images per class [len(class_names)]."""
        return torch.bincount(self.labels, minlength=len(self.class_names))


@dataclass(frozen=True)
class Dataset:
    """What a source yields: training and test images, and how its images are prepared."""

    name: str
    train: ImageSet
    test: ImageSet
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    augmentation: str
    """Name of the training augmentation in `augment.py`: `cifar` or `imagenet`."""
    note: str = ""
    """A convention a reader of the results must know, e.g. which 100 classes of ImageNet."""
    crop: int | None = None
    """Side of the square the network sees where the stored images are larger, to leave room for random crops."""

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.train.class_names

    @property
    def network_size(self) -> int:
        """Side of the square the network sees."""
        return self.crop or self.train.image_size[0]

    def fingerprint(self) -> str:
        """Identify the data by its class names, labels and a sample of its pixels."""
        return fingerprint(repr((self.name, self.class_names, self.train.pixels.shape)), self.train, self.test)


def fingerprint(name: str, *parts: ImageSet) -> str:
    """Identify image sets by a name, their labels and a sample of their pixels."""
    digest = hashlib.sha256(name.encode())
    for part in parts:
        digest.update(part.labels.numpy().tobytes())
        sample = torch.linspace(0, len(part) - 1, min(len(part), 64)).long()
        digest.update(part.pixels.fetch(sample).cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
