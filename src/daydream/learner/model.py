"""What a learner knows between two lessons, as plain data: all of it travels in a model file.

Shapes: C classes, M exemplars, H held-out images, P unlabelled images, S x S stored pixels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from daydream.data.augment import AUGMENTATIONS, Augment, Prepare
from daydream.data.images import ImageSet, Resident
from daydream.data.sources.folder import MEAN, STD, Settings
from daydream.learner.settings import ModelSettings
from daydream.nets.efficientnet_lite import normalisation
from daydream.nets.generators import GeneratorBank
from daydream.stages.stage import State


@dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes what the network sees: short side to `canvas`, centre square, crop to `size`, normalise."""

    size: int
    canvas: int
    augmentation: Literal["cifar", "imagenet"]
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD

    @classmethod
    def of(cls, image_size: int, backbone: str) -> "Preprocessing":
        """Return that of a folder of images at a size; published weights bring their own normalisation."""
        folder = Settings(image_size=image_size)
        mean, std = normalisation(backbone, MEAN, STD)
        return cls(image_size, folder.canvas, folder.augmentation, mean, std)  # type: ignore[arg-type]

    @property
    def prepare(self) -> Prepare:
        return Prepare(self.mean, self.std, self.size)  # type: ignore[arg-type]

    @property
    def augment(self) -> Augment:
        return AUGMENTATIONS[self.augmentation](self.prepare)

    @property
    def image_bytes(self) -> int:
        return 3 * self.canvas**2


@dataclass(frozen=True, kw_only=True)
class ClassRecord:
    """A class: its name, the lesson it came with, and how many of its images were trained on in all."""

    name: str
    lesson: int
    images: int


@dataclass(frozen=True, kw_only=True)
class LessonRecord:
    """A lesson: what came, how it was trained, and the accuracy after it, in per cent on held-out images."""

    date: str
    method: str
    new: int
    again: int
    """Known classes that were given again."""
    images: int
    held_out: int
    accuracy: float
    class_accuracy: tuple[float, ...]
    """Of each class known then, in order of arrival."""
    calibration_error: float
    """ECE of the probabilities, in per cent, on the images the temperature was fitted on."""
    epochs: int
    batch_size: int
    lr: float
    seconds: float
    counterparts_right: float | None = None
    """In per cent, how many imagined counterparts of its classes the network takes for their class; None without
    generators."""
    counterparts_spread: float | None = None
    """How widely they spread, with that of real images as 1."""

    @property
    def what(self) -> Literal["lesson"]:
        """Return what happened, as in the records of an exact model."""
        return "lesson"


@dataclass(frozen=True, kw_only=True)
class Model:
    """Everything the next lesson, or a prediction, needs."""

    settings: ModelSettings
    carried: Mapping[str, Mapping[str, Any]]
    """Settings of what its lessons carry, by section: those of the first, whatever a recipe's defaults become."""
    preprocessing: Preprocessing
    state: State
    classes: tuple[ClassRecord, ...]
    lessons: tuple[LessonRecord, ...]
    temperature: float
    confidences: Tensor
    """[H] highest probabilities of the held-out images: what a rejection is set by."""
    held_out: ImageSet
    """Never trained on."""
    pile: Tensor
    """[P, 3, S, S] uint8: a share of the unlabelled images."""
    seen: Tensor
    """int64: a digest of every image trained on, so that none is ever held out later."""
    exact: bytes = b""
    """The file of the exact model that it adapted from, taught in every lesson too: the way back."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(record.name for record in self.classes)

    @property
    def num_generators(self) -> int:
        """Return how many classes have a generator: the first ones."""
        bank = self.state.nets.get("generators")
        return bank.classes if isinstance(bank, GeneratorBank) else 0


def no_images(canvas: int, class_names: tuple[str, ...] = ()) -> ImageSet:
    """Return an empty image set of the stored size."""
    pixels = torch.zeros(0, 3, canvas, canvas, dtype=torch.uint8)
    return ImageSet(Resident(pixels), torch.zeros(0, dtype=torch.int64), class_names)
