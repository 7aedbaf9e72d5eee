"""What 1,000 classes and 100,000 pictures cost the exact learner: seconds, memory, and the size of its file.

    python benchmarks/exact_scale.py [--classes 1000] [--per-class 100] [--out FILE]

Features are made up (a mean for each class, noise about it; as many numbers as EfficientNet-lite0 gives), since what is
measured here depends on their number alone. Computing them is not measured: about 50 to 100 pictures a second and core.
The network that a file holds too (15 MB) is left out.

Each step is a process of its own, whose peak of resident memory is read when it ends. Bounds that follow from the
shapes, N pictures, D features, C classes:

    file    4 N D (features) + 16 N (labels, digests) + 8 C D (the classifier) + 0.1 MB
    memory  8 (3 N D + 2 N C + 5 D D) + 0.5 GB above that of a process which only makes the features: in float64 the
            features, their centred twin, its places, and scores left out; then blocks of fixed size, of which a
            temperature takes about ten of 32 MB, and pictures compared each with all others one of 1 kB N
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from safetensors.torch import save_file

from daydream import __version__
from daydream.learner import exact
from daydream.learner.exact_file import packed

DIM = 1280
STEPS = ("features alone", "one lesson", "and 10 pictures more", "and a class forgotten", "sums alone")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--per-class", type=int, default=100)
    parser.add_argument("--out", type=Path, help="write the numbers here, as JSON")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    return parser.parse_args()


def made_up(classes: int, per_class: int) -> tuple[list[str], torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return names, and labels, digests and features of pictures."""
    draws = torch.Generator().manual_seed(0)
    means = torch.rand(classes, DIM, generator=draws)
    labels = torch.arange(classes).repeat_interleave(per_class)
    features = torch.rand(len(labels), DIM, generator=draws).add_(means[labels])
    return [f"{label:04d}" for label in range(classes)], labels, torch.randperm(len(labels), generator=draws), features


def measured(step: str, classes: int, per_class: int) -> dict[str, Any]:
    """Carry out a step; return its seconds, the peak of resident memory and the size of the file."""
    names, labels, digests, features = made_up(classes, per_class)
    found: dict[str, Any] = {"step": step}
    if step != STEPS[0]:
        start = time.perf_counter()
        model = exact.learn(None, "", names, labels, digests, features, keep_features=step != STEPS[4])
        if step == STEPS[2]:
            start = time.perf_counter()
            more = features[:10].flip(1)
            model = exact.learn(model, "", names, labels[:10], digests.max() + 1 + torch.arange(10), more)
        if step == STEPS[3]:
            start = time.perf_counter()
            model = exact.forget(model, exact.pictures_of(model, names[-1]))
        found["seconds"] = round(time.perf_counter() - start, 1)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            save_file({name: value.contiguous() for name, value in packed(model)[1].items()}, path)
            found["file_mb"] = round(path.stat().st_size / 1e6, 1)
    found["memory_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
    return found


def main() -> None:
    given = arguments()
    if given.step:
        print(json.dumps(measured(given.step, given.classes, given.per_class)))
        return
    pictures = given.classes * given.per_class
    rows = []
    for step in STEPS:
        words = ["--classes", str(given.classes), "--per-class", str(given.per_class), "--step", step]
        done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout))
        print(rows[-1], flush=True)
    numbers = 3 * pictures * DIM + 2 * pictures * given.classes + 5 * DIM**2
    bounds = {
        "file_mb": round((4 * pictures * DIM + 16 * pictures + 8 * given.classes * DIM) / 1e6 + 0.1, 1),
        "memory_mb": round(rows[0]["memory_mb"] + (8 * numbers + 1e3 * pictures) / 1e6 + 500),
    }
    document = {
        "classes": given.classes,
        "pictures": pictures,
        "bounds": bounds,
        "rows": rows,
        "versions": {"daydream": __version__, "torch": torch.__version__},
        "machine": f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} thread(s)",
        "load": round(os.getloadavg()[0], 1),
    }
    if given.out:
        given.out.write_text(json.dumps(document, indent=1) + "\n")
    table = Table("step", "seconds", "memory, MB", "file, MB", title=f"{given.classes} classes, {pictures} pictures")
    for row in rows:
        table.add_row(row["step"], *(str(row.get(key, "")) for key in ("seconds", "memory_mb", "file_mb")))
    table.add_section()
    table.add_row("bound", "", str(bounds["memory_mb"]), str(bounds["file_mb"]))
    Console().print(table)


if __name__ == "__main__":
    main()
