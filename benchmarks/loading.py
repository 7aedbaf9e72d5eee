"""Reading data: CIFAR-100 from its archive and its folder, a folder of JPEG files decoded and from the cache.

    python benchmarks/loading.py [--cifar 60000] [--files 2000] [--side 96] [--canvas 64]

Files are written for the occasion, with noise in them; the cache is a folder of its own that goes when the script ends.
"""

import os
import pickle
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from timing import arguments, cells, seconds, show

from daydream.data.cache import decode_cached
from daydream.data.decode_pool import decode_all
from daydream.data.sources.cifar import CIFAR100

FOLDER, ARCHIVE = "cifar-100-python", "cifar-100-python.tar.gz"


def write_cifar(place: Path, count: int) -> tuple[Path, Path]:
    """Write so many images in the official layout, a sixth of them for tests; return the archive and the folder."""
    random, folder = np.random.default_rng(1), place / FOLDER
    folder.mkdir()
    for name, images in (("train", count - count // 6), ("test", count // 6)):
        pixels = random.integers(0, 256, (images, 3072), dtype=np.uint8)
        part = {"data": pixels, "fine_labels": [i % 100 for i in range(images)]}
        (folder / name).write_bytes(pickle.dumps(part))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": [f"class {i}" for i in range(100)]}))
    with tarfile.open(place / ARCHIVE, "w:gz", compresslevel=1) as archive:
        archive.add(folder, FOLDER)
    return place / ARCHIVE, folder


def write_pictures(folder: Path, count: int, side: int) -> list[str]:
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
    parser.add_argument("--cifar", type=int, default=60_000, help="images of a CIFAR-100")
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--canvas", type=int, default=64)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        os.environ["DAYDREAM_CACHE"] = str(place / "cache")
        archive, unpacked = write_cifar(place, given.cifar)
        paths = write_pictures(place, given.files, given.side)
        pictures = f"{given.files:,} JPEG files of {given.side} pixels to {given.canvas}"
        work = {
            f"CIFAR-100, {given.cifar:,} images: {archive.name}": (lambda: read(archive), given.cifar),
            f"... {unpacked.name}/": (lambda: read(unpacked), given.cifar),
            f"{pictures}: decoded": (lambda: decode_all(paths, given.canvas), given.files),
            "... from the cache": (lambda: decode_cached("benchmark", place, paths, given.canvas), given.files),
        }
        rows = [[name, *cells(seconds(call, "cpu", given.repeat), n, "images")] for name, (call, n) in work.items()]
    show("reading data", "cpu", ("what", "median ms", "fastest – slowest", "rate"), rows)


def read(root: Path) -> object:
    return CIFAR100.load(root, CIFAR100.Settings())


if __name__ == "__main__":
    main()
