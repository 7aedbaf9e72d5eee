"""How long a lesson and a prediction take, from command to end, on pictures as large as photographs.

    python benchmarks/lesson.py [--pictures 500] [--side 1600]

Draws pictures of the shapes data set, enlarges them, and runs `daydream learn`, once as new and once from the cache of
features, and `daydream predict` of one picture. Then, in this process, how fast predictions are beside the network's.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image

from daydream.data.images import ImageSet, Resident
from daydream.data.sources.shapes import shapes
from daydream.learner.embedding import BATCH
from daydream.learner.exact_learner import ExactLearner

CLASSES = 10
ROUNDS = 5
EACH = 64
"""Pictures in a round: a single pass of 10 ms says little."""


def write(folder: Path, count: int, side: int) -> None:
    """Write pictures of four by three, as JPEG."""
    each = -(-count // CLASSES)
    settings = shapes.Settings(classes=CLASSES, train_per_class=each, test_per_class=1, image_size=64)
    images = shapes.load(None, settings).train
    for number in range(count):
        label = number % CLASSES
        place = int((images.labels == label).nonzero()[number // CLASSES])
        pixels = images.pixels.fetch(torch.tensor([place]))[0].permute(1, 2, 0).numpy()
        path = folder / images.class_names[label] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).resize((side, side * 3 // 4)).save(path, quality=90)


def seconds(*words: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "daydream", *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def rate(call: object, count: int) -> float:
    """Return pictures a second, the best of some rounds of about as many pictures each."""
    calls, best = max(1, EACH // count), 0.0
    call()  # type: ignore[operator]
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            call()  # type: ignore[operator]
        best = max(best, calls * count / (time.perf_counter() - start))
    return best


def warm(model: Path, side: int, count: int) -> None:
    """Print how many pictures a second pass the learner, and the bare network."""
    learner = ExactLearner.load(model)
    pixels = torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8)
    images = ImageSet(Resident(pixels), torch.zeros(count, dtype=torch.int64), learner.names)
    x = learner.embed.prepare(pixels)
    with torch.inference_mode():
        bare = rate(lambda: [learner.embed.net.features(part) for part in x.split(BATCH)], count)
    ours = rate(lambda: learner.judged(images), count)
    print(f"warm, {count} pictures: {ours:.1f} a second, the bare network {bare:.1f}: {ours / bare:.2f} of it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=500)
    parser.add_argument("--side", type=int, default=1600)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        os.environ["DAYDREAM_CACHE"] = str(top / "cache")
        write(top / "photos", given.pictures, given.side)
        model, picture = top / "m.daydream", next((top / "photos").rglob("*.jpg"))
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"learn {given.pictures} pictures: {seconds('learn', str(model), str(top / 'photos')):.1f} s")
        model.unlink()
        print(f"learn them again, features known: {seconds('learn', str(model), str(top / 'photos')):.1f} s")
        cold = [seconds("predict", str(model), str(picture)) for _ in range(ROUNDS)]
        print(f"predict one picture, cold: {min(cold):.2f} to {max(cold):.2f} s")
        side = ExactLearner.load(model).size
        for count in (1, 64):
            warm(model, side, count)
        print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
