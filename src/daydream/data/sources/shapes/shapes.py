"""`shapes`: the embedded data set, made on the spot. The class is an outline; everything else is a nuisance.

Texture, colour, place, size, turn, light, background, clutter and noise are drawn alike for every class, so a few
exemplars show few of them and a pile of unlabelled images shows many. An image is a function of (outline,
split, its index) alone: neither the number of classes nor the number of images changes it.

Shapes: N images, S x S pixels.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from daydream.data.images import Dataset, ImageSet, Resident
from daydream.data.sources.shapes import outlines, textures
from daydream.data.sources.shapes.textures import Draws, Plane, per_image
from daydream.rng import derive
from daydream.settings import require, setting

DATA_SEED = 0
"""The images are the same whatever a run's seed."""
PILE_OUTLINES = 64
"""Outlines the pile is made of: those that follow the labelled ones."""
CHUNK_PIXELS = 1 << 20
"""Pixels rendered at once: bounds the memory whatever the size and number of the images."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How many images of what size; any number works."""

    classes: int = setting(20, "number of classes, each an outline")
    train_per_class: int = setting(100, "training images of a class")
    test_per_class: int = setting(50, "test images of a class", expert=True)
    image_size: int = setting(24, "height and width in pixels")
    pile_size: int = setting(4000, "unlabelled images, of outlines that no class has", expert=True)

    def __post_init__(self) -> None:
        for name, least in (
            ("classes", 2),
            ("train_per_class", 1),
            ("test_per_class", 1),
            ("image_size", 8),
            ("pile_size", 1),
        ):
            given = getattr(self, name)
            require(given >= least, f"setting '{name}' of data set 'shapes' is {given}, but takes {least} or more")


DEFAULTS = {
    "backbone": "resnet10",
    "base_epochs": 26,
    "epochs": 10,
    "batch_size": 32,
    "generator_epochs": 2,
    "generator_updates": 15,
    "generator_width": 16,
    "generator_start": "exemplar",
    "pile_teach": False,
}
"""Settings of a run that suit small images: a run on them ends within two minutes on two cores."""


@dataclass(frozen=True, kw_only=True)
class Nuisances:
    """How strongly an image varies in what its class does not say."""

    turn: float
    """Largest rotation, degrees."""
    scale: tuple[float, float]
    """Diameter, in frames."""
    squeeze: float
    """Largest change of the aspect ratio."""
    texture: float
    """Share of the way from one colour to another that a texture swings."""
    contrast: float
    """Least difference of the shape's grey level from the background's."""
    saturation: float
    """Spread of the channels about the grey level."""
    clutter: float
    """Probability of each of three spots of other colours behind the shape."""
    occlusion: float
    """Probability of each of two holes that let the background through."""
    light: float
    """Steepest slope of the light across half a frame."""
    cast: float
    """Spread of the lamp's channels about white."""
    noise: float
    """Amplitude of the noise, which is uniform, where white is 1."""


LABELLED = Nuisances(
    turn=25,
    scale=(0.7, 1.0),
    squeeze=0.12,
    texture=0.2,
    contrast=0.55,
    saturation=0.15,
    clutter=0.2,
    occlusion=0.5,
    light=0.3,
    cast=0.3,
    noise=0.06,
)
PILE = Nuisances(
    turn=180,
    scale=(0.55, 1.1),
    squeeze=0.3,
    texture=0.4,
    contrast=0.35,
    saturation=0.35,
    clutter=0.4,
    occlusion=0.6,
    light=0.5,
    cast=0.8,
    noise=0.1,
)


def load(root: Path | None, settings: Settings) -> Dataset:
    """Make the labelled images; `root` is not read."""
    names = tuple(outlines.name(i) for i in range(settings.classes))
    return Dataset(
        name="shapes",
        train=_labelled(names, "train", settings.train_per_class, settings),
        test=_labelled(names, "test", settings.test_per_class, settings),
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        augmentation="cifar",
        note="procedural: the class is the outline, all else varies alike in every class",
    )


def unlabeled(root: Path | None, settings: Settings) -> ImageSet:
    """Make the pile: outlines that no class has, in turn, under broader nuisances; `root` is not read."""
    size, num = settings.image_size, settings.pile_size
    images = np.empty((num, 3, size, size), dtype=np.uint8)
    for first in range(min(PILE_OUTLINES, num)):
        rows = images[first::PILE_OUTLINES]
        outline = outlines.name(settings.classes + first)
        rows[:] = render(outline, len(rows), size, derive(DATA_SEED, "shapes", outline, "pile"), PILE)
    labels = torch.zeros(num, dtype=torch.int64)
    return ImageSet(Resident(torch.from_numpy(images)), labels, ("unlabelled",))


def _labelled(names: tuple[str, ...], split: str, num: int, settings: Settings) -> ImageSet:
    size = settings.image_size
    images = np.empty((len(names), num, 3, size, size), dtype=np.uint8)
    for rows, outline in zip(images, names, strict=True):
        rows[:] = render(outline, num, size, derive(DATA_SEED, "shapes", outline, split), LABELLED)
    pixels = Resident(torch.from_numpy(images.reshape(-1, 3, size, size)))
    return ImageSet(pixels, torch.arange(len(names)).repeat_interleave(num), names)


def render(outline: str, num_images: int, size: int, seed: int, nuisances: Nuisances) -> NDArray[np.uint8]:
    """Draw images [N, 3, S, S] of one outline; the first ones do not depend on how many follow."""
    settled, grain = np.random.PCG64(seed), np.random.PCG64(derive(seed, "noise"))
    images = np.empty((num_images, 3, size, size), dtype=np.uint8)
    step = max(1, CHUNK_PIXELS // (size * size))
    for start in range(0, num_images, step):
        rows = images[start : start + step]
        picture = _picture(outline, Draws(settled, len(rows)), size, nuisances)
        picture += np.float32(nuisances.noise) * textures.sensor_noise(grain, len(rows), size)
        rows[:] = (textures.clipped(picture) * 255 + np.float32(0.5)).astype(np.uint8)
    return images


def _picture(outline: str, draws: Draws, size: int, nuisances: Nuisances) -> Plane:
    """Compose background, clutter, shape, holes and light into pictures [N, 3, S, S], about 0 to 1."""
    x, y = textures.pixel_centres(size)
    background, foreground = textures.colour_pair(draws, nuisances.contrast, nuisances.saturation)
    picture = textures.painted(background, draws.block(3), textures.textured(draws, x, y, nuisances.texture))
    for _ in range(3):
        paint = textures.colours(draws, nuisances.saturation)
        _over(picture, paint, _spot(draws, x, y, nuisances.clutter, 0.2))
    scene = picture.copy()
    surface = textures.painted(foreground, draws.block(3), textures.textured(draws, x, y, nuisances.texture))
    _over(picture, surface, _mask(outline, draws, x, y, nuisances))
    _over(picture, scene, _spot(draws, x, y, nuisances.occlusion, 0.3))
    _over(picture, scene, _spot(draws, x, y, nuisances.occlusion, 0.3))
    return textures.lit(picture, draws, x, y, nuisances.light, nuisances.cast)


def _mask(outline: str, draws: Draws, x: Plane, y: Plane, nuisances: Nuisances) -> Plane:
    """Return the shape's coverage [N, S, S] of each pixel, placed so that it stays within the frame or nearly."""
    scale = draws.between(*nuisances.scale)
    slack = np.maximum(1.06 - scale, 0.06)
    px, py = x - per_image(slack * draws.between(-1, 1)), y - per_image(slack * draws.between(-1, 1))
    u, v = textures.turned(px, py, draws.between(-1, 1) * math.radians(nuisances.turn))
    squeeze = 1 + nuisances.squeeze * draws.between(-1, 1)
    u, v = u / per_image(scale * squeeze), v / per_image(scale / squeeze)
    field = outlines.table(outline)[None]
    distance = textures.bilinear(field, u / np.float32(outlines.EXTENT), v / np.float32(outlines.EXTENT))
    return _soft(distance * per_image(scale), x.shape[-1])


def _spot(draws: Draws, x: Plane, y: Plane, probability: float, width: float) -> Plane:
    """Return the coverage [N, S, S] of a bar or an ellipse somewhere in the frame, absent but with a probability."""
    there = draws.chance(probability)
    px, py = x - per_image(draws.between(-1, 1)), y - per_image(draws.between(-1, 1))
    u, v = (np.abs(w) for w in textures.turned(px, py, draws.between(0, math.pi)))
    u = u * per_image(1 / draws.between(1, 4))
    rounded = draws.chance(0.5)[:, None, None]
    reach = np.where(rounded, np.sqrt(u * u + v * v), np.maximum(u, v))
    coverage = _soft(per_image(draws.between(width / 4, width)) - reach, x.shape[-1])
    return coverage * there[:, None, None]


def _soft(distance: Plane, size: int) -> Plane:
    """Return coverage from signed distances: the edge rises over one pixel, which is 2 / S wide."""
    return textures.clipped(distance * np.float32(size / 2) + np.float32(0.5))


def _over(picture: Plane, surface: Plane, coverage: Plane) -> None:
    """Lay a surface over the pictures, in place, where it covers them."""
    picture += (surface - picture) * coverage[:, None]
