"""Settings of a learner of one's own images, and what it chooses where nothing was said: from the data and the device.

Imports no torch, as `--help` needs the settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from daydream.settings import flag, require, setting

SIZES = (32, 64, 128, 224)
LARGEST = 2048
SMALL = 64
"""The largest image side chosen for a CPU."""
MEMORY = 20
"""Exemplars of a class: 2,000 for 100 classes are the field's habit."""
PILE_IMAGES, PILE_BYTES = 1000, 2**26
"""The share of a pile that is kept is bounded by both."""
STEPS = {"cpu": 1200, "cuda": 8000}
"""Training steps that a lesson aims at; few images are then seen often."""
EPOCHS = (10, 160)
GENERATOR_EPOCHS = {"cpu": 10, "cuda": 40}
GENERATOR_WIDTH = {"cpu": 32, "cuda": 128}
BATCHES = (16, 128)
STEPS_PER_EPOCH = 8
"""At least so many, where the smallest batch allows it."""


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """What is fixed when a model is new."""

    method: str | None = setting(
        None, "a method whose network trains, see `daydream methods`; by default none: a frozen network, exact lessons"
    )
    backbone: str | None = setting(
        None,
        "network: efficientnet-lite0, -lite1 or -lite2, frozen; resnet32, resnet10, resnet18, resnet18-small or "
        "timm:NAME, trained; by default efficientnet-lite0, or with a method one for the image size",
    )
    cut: str | None = setting(
        None, "the stage the network is cut after, into two halves; by default stage3", expert=True
    )
    image_size: int | None = setting(
        None, "height and width the network sees; by default what its weights were trained with, or 32 to 224"
    )
    memory: int | None = setting(None, f"exemplars kept of each class; by default {MEMORY}")
    generator_width: int | None = setting(None, "channels inside a generator; by default 32 on a CPU, 128 on a GPU")
    seed: int | None = setting(None, "seed of everything random; by default 1")

    def __post_init__(self) -> None:
        size = self.image_size
        require(size is None or 8 <= size <= LARGEST, f"--image-size {size} must lie between 8 and {LARGEST}")
        require(self.memory is None or self.memory >= 0, f"--memory {self.memory} must not be negative")
        width = self.generator_width
        require(width is None or width >= 1, f"--generator-width {width} must be at least 1")
        require(self.seed is None or self.seed >= 0, f"--seed {self.seed} must not be negative")


@dataclass(frozen=True, kw_only=True)
class ExactSettings:
    """What is fixed when a model of the exact learner is new, beside backbone and image size."""

    keep_features: int | None = setting(
        None, "1 keeps a feature of each picture (5 kB), 0 only sums over pictures; by default 1"
    )

    def __post_init__(self) -> None:
        require(self.keep_features in (None, 0, 1), f"--keep-features {self.keep_features} must be 0 or 1")


@dataclass(frozen=True, kw_only=True)
class LessonSettings:
    """What holds for one lesson."""

    epochs: int | None = setting(None, "passes over the new images; by default so many that steps are enough")
    batch_size: int | None = setting(None, "images in a step; by default 16 to 128, by the number of images")
    lr: float | None = setting(None, "learning rate; by default the method's, scaled by the root of the batch size")
    generator_epochs: int | None = setting(None, "epochs of generator training; by default 10 on a CPU, 40 on a GPU")
    updates: int | None = setting(
        None,
        "updates on unlabelled images, of a method that counts them (dmc); by default 1,200, 8,000 on a GPU",
    )
    held_out: float = setting(0.2, "share of each class never trained on, for honest accuracy, without --test")
    keep_held_out: int = setting(50, "held-out images kept of each class, for the lessons to come")
    keep_pile: int | None = setting(
        None, f"unlabelled images kept for the lessons to come; by default {PILE_IMAGES:,}, or 64 MiB if that is less"
    )

    def __post_init__(self) -> None:
        for name in ("epochs", "generator_epochs", "updates", "keep_held_out"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{flag(name)} {value} must be at least 1")
        require(self.batch_size is None or self.batch_size >= 2, f"--batch-size {self.batch_size} must be at least 2")
        require(self.lr is None or self.lr > 0, f"--lr {self.lr} must be above 0")
        require(0 < self.held_out < 1, f"--held-out {self.held_out} must lie between 0 and 1")
        require(self.keep_pile is None or self.keep_pile >= 0, f"--keep-pile {self.keep_pile} must not be negative")


@dataclass(frozen=True)
class Choice:
    """A setting as it stands before training, and why."""

    name: str
    value: str
    why: str


def choose_model(given: ModelSettings, side: int, device: str) -> tuple[ModelSettings, list[Choice]]:
    """Fill in what a new model was not told, from the median short side of its pictures and the device."""
    fitting = [size for size in SIZES if size <= (side if device == "cuda" else min(side, SMALL))]
    chosen: dict[str, tuple[Any, str]] = {
        "image_size": (max(fitting, default=SIZES[0]), f"the median picture is {side} pixels, on {device}"),
        "cut": ("stage3", "as in the paper"),
        "memory": (MEMORY, "exemplars of each class, rule per_class"),
        "generator_width": (GENERATOR_WIDTH[device], f"on {device}"),
        "seed": (1, "default"),
    }
    size = given.image_size or chosen["image_size"][0]
    chosen["backbone"] = ("resnet32" if size <= SIZES[0] else "resnet18", f"for images of {size} pixels")
    filled, choices = _filled(given, chosen)
    return replace(given, **filled), choices


def choose_lesson(
    given: LessonSettings, images: int, image_bytes: int, lr: float, batch: int, device: str
) -> tuple[LessonSettings, list[Choice]]:
    """Fill in what a lesson was not told; `lr` and `batch` are the method's own defaults."""
    smallest, largest = BATCHES
    size = smallest
    while size < largest and images >= 2 * size * STEPS_PER_EPOCH:
        size *= 2
    size = given.batch_size or size
    steps = max(1, -(-images // size))
    epochs = min(max(round(STEPS[device] / steps), EPOCHS[0]), EPOCHS[1])
    pile = min(PILE_IMAGES, PILE_BYTES // image_bytes)
    chosen: dict[str, tuple[Any, str]] = {
        "epochs": (epochs, f"{images:,} images; aims at {STEPS[device]:,} steps on {device}"),
        "batch_size": (size, f"{images:,} images"),
        "lr": (round(lr * (size / batch) ** 0.5, 5), f"{lr:g} for batches of {batch}, by the root of the size"),
        "generator_epochs": (GENERATOR_EPOCHS[device], f"on {device}"),
        "updates": (STEPS[device], f"on {device}"),
        "keep_pile": (pile, f"images kept at most, {pile * image_bytes / 1e6:.1f} MB"),
    }
    filled, choices = _filled(given, chosen)
    return replace(given, **filled), choices


def _filled(given: Any, chosen: Mapping[str, tuple[Any, str]]) -> tuple[dict[str, Any], list[Choice]]:
    """Return the value of each setting, given or chosen, and a line on each."""
    values, choices = {}, []
    for name, (value, why) in chosen.items():
        own = getattr(given, name)
        values[name] = value if own is None else own
        choices.append(Choice(name.replace("_", "-"), str(values[name]), why if own is None else "given"))
    return values, choices
