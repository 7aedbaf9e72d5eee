"""Random pictures without a subject: textures, colours, lighting, and the stream of numbers that settles them.

Whatever is settled once per image is computed in float64 and only then rounded to float32; whatever is computed per
pixel uses only operations that IEEE 754 rounds exactly (no sine, no matrix product), so every machine makes the
same bytes.

Shapes: N images of S x S pixels; `x`, `y` are planes [N, S, S] or [S, S] over [-1, 1], y upwards.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.float32]
Column = NDArray[np.float64]

NOISE_GRID = 8


class Draws:
    """Uniform numbers in [0, 1), one row per image, taken column by column.

    A row depends on the seed and its place alone, so image i is the same however many images are made. Raw words of
    PCG64 rather than a numpy `Generator`, whose distributions may change between versions.
    """

    WIDTH = 224

    def __init__(self, stream: np.random.PCG64, num_images: int) -> None:
        words = stream.random_raw(num_images * self.WIDTH).reshape(num_images, self.WIDTH)
        self._table = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        self._used = 0

    def __len__(self) -> int:
        return len(self._table)

    def block(self, width: int) -> Column:
        """Take the next `width` columns [N, width]."""
        assert self._used + width <= self.WIDTH, self._used + width
        self._used += width
        return self._table[:, self._used - width : self._used]

    def between(self, low: float, high: float) -> Column:
        """Take one column [N], stretched to [low, high)."""
        return low + (high - low) * self.block(1)[:, 0]

    def chance(self, probability: float) -> NDArray[np.bool_]:
        return self.block(1)[:, 0] < probability

    def choice(self, num: int) -> NDArray[np.int64]:
        return (self.block(1)[:, 0] * num).astype(np.int64)


def per_image(column: Column) -> Plane:
    """Shape a column [N] to multiply planes [N, S, S]."""
    return column.astype(np.float32)[:, None, None]


def clipped(plane: Plane) -> Plane:
    """Hold values to [0, 1]."""
    held: Plane = np.clip(plane, np.float32(0), np.float32(1))
    return held


def pixel_centres(size: int) -> tuple[Plane, Plane]:
    """Return the coordinates x, y [S, S] of the pixels' centres."""
    axis = ((2 * np.arange(size) + 1) / size - 1).astype(np.float32)
    return np.broadcast_to(axis, (size, size)), np.broadcast_to(-axis[:, None], (size, size))


def turned(x: Plane, y: Plane, angle: Column) -> tuple[Plane, Plane]:
    """Return coordinates [N, S, S] in a frame turned by an angle per image."""
    c, s = per_image(np.cos(angle)), per_image(np.sin(angle))
    return x * c + y * s, y * c - x * s


def bilinear(tables: Plane, x: Plane, y: Plane) -> Plane:
    """Sample tables [N, G, G] (or one for all, [1, G, G]) at coordinates [N, S, S] over [-1, 1]; beyond, the edge's."""
    num, grid = tables.shape[0], tables.shape[1]
    last = np.float32(grid - 1)
    col = np.clip((x + np.float32(1)) * (last / 2), np.float32(0), last)
    row = np.clip((y + np.float32(1)) * (last / 2), np.float32(0), last)
    c0 = np.minimum(col.astype(np.int32), grid - 2)
    r0 = np.minimum(row.astype(np.int32), grid - 2)
    fc, fr = col - c0.astype(np.float32), row - r0.astype(np.float32)
    flat = tables.reshape(-1)
    at = r0 * grid + c0 + (np.arange(num, dtype=np.int32) * grid * grid)[:, None, None]
    top = flat[at] + (flat[at + 1] - flat[at]) * fc
    bottom = flat[at + grid] + (flat[at + grid + 1] - flat[at + grid]) * fc
    sampled: Plane = top + (bottom - top) * fr
    return sampled


# Textures: a plane in [0, 1], from coordinates in cells (`u`, `v`: one period each) and a random grid.

Texture = Callable[[Plane, Plane, Plane], Plane]


def _wave(u: Plane) -> Plane:
    """Rise and fall between 0 and 1, once per period."""
    wave: Plane = np.abs(2 * (u - np.floor(u)) - np.float32(1))
    return wave


def plain(u: Plane, v: Plane, grid: Plane) -> Plane:
    return np.full_like(u, 0.5)


def gradient(u: Plane, v: Plane, grid: Plane) -> Plane:
    return _wave(u * np.float32(1 / 6))


def stripes(u: Plane, v: Plane, grid: Plane) -> Plane:
    return clipped(3 * _wave(u) - np.float32(1))


def checker(u: Plane, v: Plane, grid: Plane) -> Plane:
    return clipped((_wave(u) - np.float32(0.5)) * (_wave(v) - np.float32(0.5)) * 8 + np.float32(0.5))


def dots(u: Plane, v: Plane, grid: Plane) -> Plane:
    du, dv = _wave(u), _wave(v)
    return clipped(np.float32(1.4) - 2 * (du * du + dv * dv))


def noise(u: Plane, v: Plane, grid: Plane) -> Plane:
    return bilinear(grid, 2 * _wave(u * np.float32(1 / 8)) - 1, 2 * _wave(v * np.float32(1 / 8)) - 1)


TEXTURES: tuple[Texture, ...] = (plain, gradient, stripes, checker, dots, noise)


def textured(draws: Draws, x: Plane, y: Plane, strength: float) -> Plane:
    """Return planes [N, S, S] in [-1, 1] times a random strength: one texture per image, turned, scaled and shifted."""
    kind = draws.choice(len(TEXTURES))
    u, v = turned(x, y, draws.between(0, math.pi))
    cells = per_image(draws.between(0.8, 2.6))
    u, v = u * cells + per_image(draws.between(0, 1)), v * cells + per_image(draws.between(0, 1))
    grid = draws.block(NOISE_GRID * NOISE_GRID).reshape(-1, NOISE_GRID, NOISE_GRID).astype(np.float32)
    plane = np.empty_like(u)
    for index, texture in enumerate(TEXTURES):
        mine = kind == index
        plane[mine] = texture(u[mine], v[mine], grid[mine])
    return (2 * plane - 1) * per_image(draws.between(0.3 * strength, strength))


def colour_pair(draws: Draws, contrast: float, saturation: float) -> tuple[Column, Column]:
    """Draw two colours [N, 3] whose grey levels lie `contrast` to 0.8 apart; either is as often the lighter."""
    gap = draws.between(contrast, 0.8)
    dark = 0.05 + (0.9 - gap) * draws.between(0, 1)
    levels = np.stack([dark, dark + gap], axis=1)
    levels = np.where(draws.chance(0.5)[:, None], levels, levels[:, ::-1])
    tints = saturation * (draws.block(6).reshape(-1, 2, 3) - 0.5)
    pair = np.clip(levels[..., None] + tints, 0, 1)
    return pair[:, 0], pair[:, 1]


def colours(draws: Draws, saturation: float) -> Plane:
    """Draw plain colours [N, 3, 1, 1] of any grey level."""
    drawn = np.clip(draws.between(0, 1)[:, None] + saturation * (draws.block(3) - 0.5), 0, 1)
    return drawn.astype(np.float32)[..., None, None]


def painted(colour: Column, tint: Column, plane: Plane) -> Plane:
    """Return pictures [N, 3, S, S] of a colour that moves towards a tint and away from it with a plane [N, S, S]."""
    base, towards = colour.astype(np.float32)[..., None, None], (tint - colour).astype(np.float32)[..., None, None]
    return base + towards * plane[:, None]


def lit(picture: Plane, draws: Draws, x: Plane, y: Plane, strength: float, cast: float) -> Plane:
    """Multiply pictures [N, 3, S, S] by a coloured light that falls off from a random side."""
    u, _ = turned(x, y, draws.between(0, 2 * math.pi))
    slope = u * per_image(draws.between(0, strength))
    lamp = draws.between(1 - strength / 2, 1 + strength / 2)[:, None] * (1 + cast * (draws.block(3) - 0.5))
    return picture * (1 + slope)[:, None] * lamp.astype(np.float32)[..., None, None]


def sensor_noise(stream: np.random.PCG64, num_images: int, size: int) -> Plane:
    """Return uniform noise [N, 3, S, S] in [-1, 1): one byte per value."""
    values = 3 * size * size
    words = stream.random_raw(num_images * -(-values // 8)).reshape(num_images, -1)
    octets = words.astype("<u8").view(np.uint8)[:, :values].reshape(num_images, 3, size, size)
    return octets.astype(np.float32) * np.float32(1 / 128) - np.float32(1)
