"""Folders of pictures for tests, drawn by `shapes`, and a learner small enough to be taught in a second."""

import errno
import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile import members
from PIL import Image

from daydream import Learner
from daydream.data.images import Dataset, ImageSet
from daydream.data.sources.shapes import shapes
from daydream.engine import Display
from daydream.learner import making
from daydream.learner.learner import Learner as LearnerClass
from daydream.learner.settings import LessonSettings, ModelSettings
from daydream.methods.method import Method
from daydream.nets import efficientnet_lite, pretrained
from daydream.settings import from_dict

TINY_MODEL = {"backbone": "resnet10", "image_size": 16, "memory": 4, "generator_width": 8, "device": "cpu"}
TINY_LESSON = {"epochs": 1, "batch_size": 8, "generator_epochs": 1, "updates": 4}


@cache
def drawn(size: int = 16, per_class: int = 60) -> Dataset:
    settings = shapes.Settings(classes=10, train_per_class=per_class, test_per_class=20, image_size=size, pile_size=60)
    return shapes.load(None, settings)


def save(images: ImageSet, index: Iterable[int], folder: Path) -> list[Path]:
    """Write images of a set as PNG files named by their index."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for i in index:
        pixels = images.pixels.fetch(torch.tensor([i]))[0].permute(1, 2, 0).numpy()
        paths.append(folder / f"{i:04}.png")
        Image.fromarray(pixels).save(paths[-1])
    return paths


def write_classes(
    folder: Path, labels: Iterable[int], count: int = 10, first: int = 0, size: int = 16, test: bool = False
) -> Path:
    """Write `count` images of each class, from its `first` on, as FOLDER/CLASS/*.png."""
    images = drawn(size).test if test else drawn(size).train
    for label in labels:
        places = (images.labels == label).nonzero().squeeze(1).tolist()
        save(images, places[first : first + count], folder / images.class_names[label])
    return folder


def write_pile(folder: Path, count: int = 60, size: int = 16) -> Path:
    settings = shapes.Settings(classes=10, image_size=size, pile_size=count)
    save(shapes.unlabeled(None, settings), range(count), folder)
    return folder


def with_random_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let published weights seem to be installed; those of a fixed seed stand in for them."""

    def loaded(made: Any, _: Any) -> None:
        torch.manual_seed(0)
        for module in (inner for part in (made.stem, *made.stages) for inner in part.modules()):
            if isinstance(module, efficientnet_lite.SameConv):
                torch.nn.init.kaiming_normal_(module.weight)

    monkeypatch.setattr(pretrained, "installed", lambda name: True)
    monkeypatch.setattr(efficientnet_lite, "published_weights", lambda name: {})
    monkeypatch.setattr(efficientnet_lite, "load_published", loaded)


def lock_out(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Let these folders be listed by nobody: their modes would not keep root out."""
    scandir = os.scandir

    def listed(folder: Any) -> Any:
        if Path(folder) in folders:
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", listed)


def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lessons by RanPAC project on few columns: what a lesson keeps and refuses does not depend on how many."""
    usual = making.recipe_of

    def recipe_of(settings: ModelSettings, kind: type[Method[Any]], *rest: Any) -> dict[str, Any]:
        return usual(settings, kind, *rest) | ({"width": 64} if settings.method == "ranpac" else {})

    monkeypatch.setattr(making, "recipe_of", recipe_of)


def names(labels: Iterable[int]) -> list[str]:
    return [drawn().train.class_names[label] for label in labels]


def tiny_learner(**settings: Any) -> LearnerClass:
    return Learner.create(**{**TINY_MODEL, **settings})


def taken(
    learner: LearnerClass,
    folder: Path,
    beside: Path | None,
    display: Display,
    settings: Mapping[str, Any],
    pile: Path | None = None,
) -> None:
    """Take a lesson, kept meanwhile beside a model's file if one is named."""
    lesson, _ = learner.prepare(folder, pile, None, from_dict(LessonSettings, dict(settings)))
    learner.take(lesson, display, beside)


def without_clock(model: Path) -> tuple[dict[str, Any], bytes, bytes]:
    """Return what a model file holds, but for the seconds its lessons took and the day they were taken on."""
    content = members(model)
    about = json.loads(content["model.json"])
    for lesson in about["lessons"]:
        lesson |= {"seconds": 0, "date": ""}
    return about, content["tensors.safetensors"], content["images.safetensors"]
