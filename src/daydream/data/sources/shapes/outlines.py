"""Outlines by name: some sixty drawn by hand, then as many seeded smooth blobs as are asked for.

An outline is a list of strokes, polygons added to or cut from what is there so far, in a plane with y upwards. It is
turned once into a table of signed distances (positive inside) over [-EXTENT, EXTENT]^2, which images then sample: the
distance is what lets an edge be softened over one pixel at any image size.
Training flips images and the data set turns them by up to 25 degrees, so no outline is another's reflection, nor its
turn by 50 degrees or less.

Shapes: G x G table, P points, V vertices.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daydream.rng import derive

Floats = NDArray[np.float64]
Point = tuple[float, float]

GRID = 80
EXTENT = 1.25
ARC = 40
"""Vertices of a full turn: at 1/40 of a turn a chord leaves its arc by 0.3 % of the radius."""


class Stroke(NamedTuple):
    """A polygon [V, 2], added or cut."""

    vertices: Floats
    adds: bool = True


Outline = list[Stroke]


def name(index: int) -> str:
    """Return the name of the index-th outline: `blob-<n>` past those drawn by hand."""
    return DRAWN_NAMES[index] if index < len(DRAWN) else f"blob-{index + 1}"


@functools.lru_cache(maxsize=512)
def table(outline: str) -> NDArray[np.float32]:
    """Return the signed distances [G, G] of an outline that fills the unit disc; rows run upwards in y."""
    strokes = normalised(DRAWN[outline]() if outline in DRAWN else blob(outline))
    axis = np.linspace(-EXTENT, EXTENT, GRID)
    x, y = (plane.ravel() for plane in np.meshgrid(axis, axis))
    distance = np.full(GRID * GRID, -np.inf)
    for stroke in strokes:
        d = signed_distance(stroke.vertices, x, y)
        distance = np.maximum(distance, d) if stroke.adds else np.minimum(distance, -d)
    field = distance.reshape(GRID, GRID).astype(np.float32)
    field.setflags(write=False)
    return field


def normalised(strokes: Outline) -> Outline:
    """Centre the added polygons' bounding box and scale their farthest vertex to 1.

    Vertices are rounded, so that a last bit of a machine's sine cannot move a pixel.
    """
    added = np.concatenate([stroke.vertices for stroke in strokes if stroke.adds])
    centre = (added.min(axis=0) + added.max(axis=0)) / 2
    radius = np.sqrt(((added - centre) ** 2).sum(axis=1).max())
    return [Stroke(np.round((stroke.vertices - centre) / radius, 6), stroke.adds) for stroke in strokes]


def signed_distance(vertices: Floats, x: Floats, y: Floats) -> Floats:
    """Return the distance [P] of points to a polygon's boundary, negative outside (even-odd rule)."""
    squared = np.full(x.shape, np.inf)
    inside = np.zeros(x.shape, dtype=bool)
    for (ax, ay), (bx, by) in zip(vertices, np.roll(vertices, -1, axis=0), strict=True):
        ex, ey, px, py = bx - ax, by - ay, x - ax, y - ay
        along = np.clip((px * ex + py * ey) / max(ex * ex + ey * ey, 1e-12), 0.0, 1.0)
        dx, dy = px - along * ex, py - along * ey
        squared = np.minimum(squared, dx * dx + dy * dy)
        if ay != by:
            inside ^= ((ay > y) != (by > y)) & (px < ex * py / ey)
    distance: Floats = np.where(inside, 1.0, -1.0) * np.sqrt(squared)
    return distance


def blob(outline: str) -> Outline:
    """Return a smooth outline of its own for a name: a radius of random low Fourier orders, stretched and turned."""
    draw = np.random.PCG64(derive(0, "outline", outline)).random_raw(10)
    u = (draw >> np.uint64(11)).astype(np.float64) * 2.0**-53
    amplitude, phase = 0.05 + u[:4] ** 2, 2 * math.pi * u[4:8]
    amplitude *= 0.6 / amplitude.sum()
    turn = np.arange(64) * (2 * math.pi / 64)
    radius = np.ones(64)
    for order, a, p in zip(range(2, 6), amplitude, phase, strict=True):
        radius += a * np.cos(order * turn + p)
    stretch = 0.6 + 0.4 * u[8]
    x, y = radius * np.cos(turn), stretch * radius * np.sin(turn)
    c, s = math.cos(math.pi * u[9]), math.sin(math.pi * u[9])
    return [Stroke(np.stack([c * x - s * y, s * x + c * y], axis=1))]


# Pens: each returns one stroke.


def poly(*points: Point) -> Stroke:
    return Stroke(np.array(points, dtype=np.float64))


def cut(stroke: Stroke) -> Stroke:
    return Stroke(stroke.vertices, adds=False)


def rect(x0: float, y0: float, x1: float, y1: float) -> Stroke:
    return poly((x0, y0), (x1, y0), (x1, y1), (x0, y1))


def disc(x: float = 0, y: float = 0, rx: float = 1, ry: float | None = None) -> Stroke:
    return arc(x, y, rx, rx if ry is None else ry, 0, 360)


def arc(x: float, y: float, rx: float, ry: float, start: float, stop: float) -> Stroke:
    """Fill an elliptic arc between two angles in degrees, closed by its chord."""
    count = max(3, round(ARC * (stop - start) / 360) + 1)
    turns = np.radians(np.linspace(start, stop, count, endpoint=stop - start < 360))
    return Stroke(np.stack([x + rx * np.cos(turns), y + ry * np.sin(turns)], axis=1))


def regular(sides: int, inner: float | None = None) -> Stroke:
    """Draw a regular polygon, one corner up; with an `inner` radius, a star."""
    radii = [1.0] if inner is None else [1.0, inner]
    count = sides * len(radii)
    return polar([radii[i % len(radii)] for i in range(count)])


def polar(radii: Sequence[float]) -> Stroke:
    """Join points at equal angles, from the top, at these radii."""
    turns = np.arange(len(radii)) * (2 * math.pi / len(radii)) + math.pi / 2
    return Stroke(np.array(radii)[:, None] * np.stack([np.cos(turns), np.sin(turns)], axis=1))


def petals(count: int, depth: float) -> Stroke:
    return polar([1 + depth * math.cos(count * 2 * math.pi * i / 72) for i in range(72)])


def bar(x0: float, y0: float, x1: float, y1: float, width: float) -> Stroke:
    """Draw a straight line of a width, square at its ends."""
    length = math.hypot(x1 - x0, y1 - y0)
    nx, ny = -(y1 - y0) / length * width / 2, (x1 - x0) / length * width / 2
    return poly((x0 + nx, y0 + ny), (x1 + nx, y1 + ny), (x1 - nx, y1 - ny), (x0 - nx, y0 - ny))


def heart() -> Stroke:
    turns = np.arange(ARC) * (2 * math.pi / ARC)
    y = 13 * np.cos(turns) - 5 * np.cos(2 * turns) - 2 * np.cos(3 * turns) - np.cos(4 * turns)
    return Stroke(np.stack([16 * np.sin(turns) ** 3, y], axis=1))


def gear(teeth: int) -> Stroke:
    return polar([radius for _ in range(teeth) for radius in (1.0, 1.0, 0.68, 0.68)])


# The order is the order of the classes: neighbours come from different families, and the first twenty are the demo's.
DRAWN: dict[str, Callable[[], Outline]] = {
    "triangle": lambda: [regular(3)],
    "ring": lambda: [disc(), cut(disc(rx=0.52))],
    "star5": lambda: [regular(5, 0.42)],
    "crescent": lambda: [disc(), cut(disc(0.5, 0.1, 0.82))],
    "cross": lambda: [rect(-1, -0.3, 1, 0.3), rect(-0.3, -1, 0.3, 1)],
    "heart": lambda: [heart()],
    "square": lambda: [rect(-1, -1, 1, 1)],
    "arrow": lambda: [poly((1, 0), (0.1, 0.8), (0.1, 0.3), (-1, 0.3), (-1, -0.3), (0.1, -0.3), (0.1, -0.8))],
    "flower5": lambda: [petals(5, 0.42)],
    "corner": lambda: [rect(-0.8, -1, -0.2, 1), rect(-0.8, -1, 0.8, -0.4)],
    "half-disc": lambda: [arc(0, 0, 1, 1, 0, 180)],
    "bolt": lambda: [poly((0.3, 1.1), (-0.7, -0.1), (-0.1, -0.1), (-0.4, -1.1), (0.7, 0.25), (0.1, 0.25))],
    "tee": lambda: [rect(-0.9, 0.4, 0.9, 1), rect(-0.3, -1, 0.3, 1)],
    "hexagon": lambda: [regular(6)],
    "hourglass": lambda: [poly((-0.75, 1), (0.75, 1), (0.15, 0), (0.75, -1), (-0.75, -1), (-0.15, 0))],
    "gear": lambda: [gear(7), cut(disc(rx=0.28))],
    "diamond": lambda: [poly((0, 1), (0.55, 0), (0, -1), (-0.55, 0))],
    "house": lambda: [poly((-0.75, -1), (0.75, -1), (0.75, 0.15), (1, 0.15), (0, 1.1), (-1, 0.15), (-0.75, 0.15))],
    "star4": lambda: [regular(4, 0.32)],
    "ellipse": lambda: [disc(rx=1, ry=0.55)],
    "flower3": lambda: [petals(3, 0.45)],
    "aitch": lambda: [rect(-0.9, -1, -0.35, 1), rect(0.35, -1, 0.9, 1), rect(-0.9, -0.27, 0.9, 0.27)],
    "drop": lambda: [disc(0, -0.4, 0.65), poly((-0.59, -0.15), (0, 1.1), (0.59, -0.15))],
    "fish": lambda: [disc(0.2, 0, 0.8, 0.5), poly((-0.35, 0), (-1.05, 0.6), (-1.05, -0.6))],
    "zigzag": lambda: [
        rect(-0.8, 0.5, 0.8, 1),
        rect(-0.8, -1, 0.8, -0.5),
        poly((0.8, 0.6), (0.1, 0.6), (-0.8, -0.6), (-0.1, -0.6)),
    ],
    "mushroom": lambda: [arc(0, 0, 1, 0.95, 0, 180), rect(-0.32, -0.9, 0.32, 0.1)],
    "frame": lambda: [rect(-1, -0.8, 1, 0.8), cut(rect(-0.58, -0.38, 0.58, 0.38))],
    "fir": lambda: [
        poly((0, 1.15), (0.6, 0.35), (-0.6, 0.35)),
        poly((0, 0.65), (0.8, -0.3), (-0.8, -0.3)),
        rect(-0.2, -1, 0.2, 0),
    ],
    "pac": lambda: [disc(), cut(poly((-0.1, 0), (1.2, 0.9), (1.2, -0.9)))],
    "chevron": lambda: [poly((0, 0.8), (1, -0.1), (1, -0.8), (0, 0.1), (-1, -0.8), (-1, -0.1))],
    "dumbbell": lambda: [disc(-0.65, 0, 0.42), disc(0.65, 0, 0.42), rect(-0.6, -0.16, 0.6, 0.16)],
    "wye": lambda: [bar(0, 0, 0, -1, 0.5), bar(0, -0.1, 0.75, 0.9, 0.5), bar(0, -0.1, -0.75, 0.9, 0.5)],
    "pentagon": lambda: [regular(5)],
    "bottle": lambda: [rect(-0.48, -1, 0.48, 0.25), disc(0, 0.22, 0.48, 0.3), rect(-0.18, 0, 0.18, 1)],
    "sun": lambda: [disc(rx=0.45), *[bar(0, 0, math.cos(a), math.sin(a), 0.2) for a in np.arange(8) * math.pi / 4]],
    "cup": lambda: [rect(-0.8, -0.9, 0.35, 0.8), disc(0.4, 0, 0.6), cut(disc(0.5, 0, 0.3)), rect(-0.8, -0.9, 0.3, 0.8)],
    "comb": lambda: [
        rect(-0.7, -1, -0.2, 1),
        rect(-0.7, 0.6, 0.7, 1),
        rect(-0.7, -0.2, 0.7, 0.2),
        rect(-0.7, -1, 0.7, -0.6),
    ],
    "cat": lambda: [
        disc(0, -0.15, 0.85, 0.75),
        poly((-0.82, 0), (-0.8, 1), (-0.15, 0.5)),
        poly((0.82, 0), (0.8, 1), (0.15, 0.5)),
    ],
    "horseshoe": lambda: [disc(), rect(-1, -1.1, 1, 0), cut(disc(rx=0.5)), cut(rect(-0.5, -1.2, 0.5, 0))],
    "key": lambda: [
        disc(-0.55, 0, 0.5),
        cut(disc(-0.6, 0, 0.2)),
        rect(-0.2, -0.14, 1.1, 0.14),
        rect(0.85, -0.5, 1.1, 0),
        rect(0.4, -0.4, 0.62, 0),
    ],
    "star6": lambda: [regular(6, 0.5)],
    "eight": lambda: [disc(0, 0.5, 0.52), disc(0, -0.5, 0.58), cut(disc(0, 0.5, 0.2)), cut(disc(0, -0.5, 0.24))],
    "umbrella": lambda: [
        arc(0, 0.1, 1, 0.9, 0, 180),
        rect(-0.1, -0.8, 0.1, 0.2),
        disc(0.17, -0.8, 0.28),
        cut(disc(0.17, -0.8, 0.1)),
        cut(rect(0.1, -0.8, 0.45, -0.3)),
    ],
    "stairs": lambda: [rect(-1, -1, 1, -0.35), rect(-0.33, -1, 1, 0.32), rect(0.35, -1, 1, 1)],
    "butterfly": lambda: [
        disc(0.55, 0.4, 0.5, 0.5),
        disc(-0.55, 0.4, 0.5, 0.5),
        disc(0.42, -0.45, 0.36),
        disc(-0.42, -0.45, 0.36),
        rect(-0.12, -0.8, 0.12, 0.7),
    ],
    "anchor": lambda: [
        disc(0, -0.1, 0.9),
        cut(disc(0, 0.1, 0.72)),
        cut(rect(-1, -0.1, 1, 1)),
        rect(-0.13, -0.95, 0.13, 0.8),
        rect(-0.45, 0.35, 0.45, 0.58),
        disc(0, 0.85, 0.24),
    ],
    "reel": lambda: [disc(), cut(disc(1.3, 0, 0.85)), cut(disc(-1.3, 0, 0.85))],
    "cloud": lambda: [disc(-0.55, -0.1, 0.42), disc(0, 0.2, 0.52), disc(0.55, -0.05, 0.45), rect(-0.6, -0.5, 0.6, 0)],
    "sailboat": lambda: [
        poly((-1, -0.45), (1, -0.45), (0.6, -0.95), (-0.6, -0.95)),
        poly((0.05, -0.35), (0.05, 1.1), (0.85, -0.35)),
        poly((-0.1, -0.35), (-0.1, 0.8), (-0.7, -0.35)),
    ],
    "vee": lambda: [bar(0, -0.8, 0.7, 0.9, 0.45), bar(0, -0.8, -0.7, 0.9, 0.45)],
    "target": lambda: [disc(), cut(disc(rx=0.72)), disc(rx=0.4)],
    "trapezoid": lambda: [poly((-1, -0.55), (1, -0.55), (0.42, 0.55), (-0.42, 0.55))],
    "spade": lambda: [
        Stroke(heart().vertices * (-0.06, -0.06)),
        poly((-0.4, -1.1), (0.4, -1.1), (0.08, -0.3), (-0.08, -0.3)),
    ],
    "plane": lambda: [
        rect(-0.14, -1, 0.14, 0.9),
        disc(0, 0.85, 0.14, 0.3),
        poly((0, 0.5), (1, -0.2), (1, -0.45), (0, -0.1), (-1, -0.45), (-1, -0.2)),
        poly((0, -0.6), (0.45, -0.9), (0.45, -1.05), (-0.45, -1.05), (-0.45, -0.9)),
    ],
    "pin": lambda: [disc(0, 0.4, 0.6), poly((-0.56, 0.2), (0, -1.1), (0.56, 0.2)), cut(disc(0, 0.4, 0.25))],
    "bow": lambda: [poly((-1, 0.65), (0, 0.15), (1, 0.65), (1, -0.65), (0, -0.15), (-1, -0.65))],
    "snowman": lambda: [
        disc(0, -0.5, 0.6),
        disc(0, 0.35, 0.42),
        rect(-0.45, 0.62, 0.45, 0.75),
        rect(-0.26, 0.7, 0.26, 1.1),
    ],
    "pants": lambda: [poly((-0.5, 1), (0.5, 1), (0.75, -1), (0.22, -1), (0, 0.3), (-0.22, -1), (-0.75, -1))],
    "slab": lambda: [rect(-1, -0.24, 1, 0.24)],
    "rocket": lambda: [
        disc(0, 0.1, 0.36, 1.0),
        poly((-0.3, -0.1), (-0.85, -0.95), (-0.2, -0.6)),
        poly((0.3, -0.1), (0.85, -0.95), (0.2, -0.6)),
    ],
    "pee": lambda: [
        rect(-0.55, -1, -0.05, 1),
        disc(0.05, 0.4, 0.6),
        rect(-0.55, 0.4, 0, 1),
        cut(disc(0.1, 0.4, 0.22)),
    ],
    "clover4": lambda: [petals(4, 0.5)],
}
DRAWN_NAMES = tuple(DRAWN)
