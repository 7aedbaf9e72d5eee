"""Reading data: a folder of JPEG files, decoded and from the cache.

    python benchmarks/loading.py [--files 2000] [--side 96] [--canvas 64]

The files are written for the occasion; the cache is a folder of its own that goes when the script ends.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from timing import arguments, cells, seconds, show

from daydream.data.cache import decode_cached
from daydream.data.decode_pool import decode_all


def write(folder: Path, count: int, side: int) -> list[str]:
    """Write JPEG files of noise over a gradient, and return their paths."""
    random, paths = np.random.default_rng(1), []
    ramp = np.linspace(0, 200, side)[:, None, None]
    for number in range(count):
        pixels = (ramp + random.integers(0, 56, (side, side, 3))).astype(np.uint8)
        path = folder / f"{number:06}.jpg"
        Image.fromarray(pixels).save(path, quality=90)
        paths.append(str(path))
    return paths


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--canvas", type=int, default=64)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        os.environ["DAYDREAM_CACHE"] = str(place / "cache")
        paths = write(place, given.files, given.side)
        work = {
            "decode": lambda: decode_all(paths, given.canvas),
            "read from the cache": lambda: decode_cached("benchmark", place, paths, given.canvas),
        }
        rows = [[name, *cells(seconds(call, "cpu", given.repeat), given.files, "files")] for name, call in work.items()]
    title = f"{given.files:,} JPEG files of {given.side} pixels to {given.canvas}"
    show(title, "cpu", ("what", "median ms", "fastest – slowest", "rate"), rows)


if __name__ == "__main__":
    main()
