"""New classes from folders of one's own images: `imagine` against `replay` against fine-tuning, at 64 pixels.

    python benchmarks/own_images_adapting.py ROOT --out DIR [--methods imagine replay finetune] [--seeds 1 2 3]

ROOT is an unpacked Tiny-ImageNet (train/ID/images/*.JPEG, val/images, val/val_annotations.txt), 150 classes or more.
A seed draws 20 base classes, three times 10 new ones and 100 others, whose training images are the unlabelled pile, and
is the models' seed too. All are laid out as folders, by links, and learnt as a user would: a model file that learns a
folder, is saved, loaded, and learns the next. After each lesson `test` judges the official validation images of all
classes known; none of them is trained on, held out or calibrated with. Accuracy is that of the head (CNN): the learner
predicts by no other means.

What must be equal is set, not chosen: image size, network, epochs, batch, learning rate, 20 exemplars of each class
(fine-tuning keeps none), a tenth of each class held out. Base lessons of one seed draw the same random numbers; that of
fine-tuning differs by its linear head, that of `imagine` by the generators trained after it. `imagine` is given the
pile in every lesson.

The network is `resnet18`, the usual one, which `daydream learn` takes for images of 64 pixels. Its stem (7x7, stride 2,
pooling) leaves maps of 4 x 4 pixels at the cut. `--backbone resnet18-small` has a 3x3 stem and maps of 16 x 16; it fits
so small images better and costs about 15 times the arithmetic.

With 450 images of a class to train on and 60 epochs, a run has 4,260 steps of 128 images in its base lesson, 2,160 to
2,460 in each other (exemplars take places in a batch), and `imagine` 4,000 updates of generators besides: estimated,
not measured, at one to two minutes on an H200. A finished pair of method and seed is a file DIR/METHOD-SEED.json and is
not run again. Processes with other `--methods` may run side by side on the same DIR, and share the folders.
"""

import argparse
import contextlib
import hashlib
import json
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from daydream import Learner, __version__, atomic
from daydream.data.decode import folders_in, images_in
from daydream.errors import UserError
from daydream.learner.learner import TestReport
from daydream.methods import load_method

MODEL = {"image_size": 64, "memory": 20, "generator_width": 128, "cut": "stage3"}
LESSON = {"batch_size": 128, "lr": 0.1, "held_out": 0.1, "keep_held_out": 50}


@dataclass(frozen=True)
class Classes:
    """The classes of one seed, by id: those of each lesson, and those of the pile."""

    lessons: tuple[tuple[str, ...], ...]
    pile: tuple[str, ...]

    @classmethod
    def drawn(cls, tree: Path, sizes: Sequence[int], pile: int, seed: int) -> "Classes":
        found = folders_in(tree / "train")
        if sum(sizes) + pile > len(found):
            raise UserError(
                f"{tree} has {len(found)} classes, but {sum(sizes)} to learn and {pile} unlabelled are asked"
            )
        order = iter(random.Random(seed).sample(found, sum(sizes) + pile))
        return cls(tuple(tuple(next(order) for _ in range(size)) for size in sizes), tuple(order))


def tree_of(root: Path) -> Path:
    """Return the folder that holds train/ and val/."""
    for tree in (root, root / "tiny-imagenet-200"):
        if (tree / "train").is_dir() and (tree / "val" / "val_annotations.txt").is_file():
            return tree.resolve()
    raise UserError(f"{root} holds no Tiny-ImageNet: expected train/ and val/val_annotations.txt")


def laid_out(place: Path, tree: Path, classes: Classes) -> Path:
    """Return a folder with learn/N, test/N (all classes of lessons 1 to N) and pile, made if it is not there.

    It is made under another name and renamed: a process beside this one may be making it too.
    """
    digest = hashlib.sha256(repr((str(tree), classes)).encode()).hexdigest()[:12]
    place.mkdir(parents=True, exist_ok=True)
    final = place.resolve() / digest
    if not final.is_dir():
        made = Path(tempfile.mkdtemp(dir=place, prefix=".making-"))
        link_all(made, tree, classes)
        try:
            made.rename(final)
        except OSError:
            if not final.is_dir():
                raise
            shutil.rmtree(made)
    return final


def link_all(top: Path, tree: Path, classes: Classes) -> None:
    """Fill a folder with links to the images of a tree."""
    annotated: dict[str, list[str]] = {}
    for line in (tree / "val" / "val_annotations.txt").read_text(encoding="utf-8").splitlines():
        name, wnid, *_ = line.split("\t")
        annotated.setdefault(wnid, []).append(str(tree / "val" / "images" / name))
    for number, lesson in enumerate(classes.lessons, 1):
        known = [wnid for names in classes.lessons[:number] for wnid in names]
        link({wnid: tree / "train" / wnid / "images" for wnid in lesson}, top / "learn" / str(number))
        link({wnid: Path("../../val") / wnid for wnid in known}, top / "test" / str(number))
        for wnid in lesson:
            link({os.path.basename(path): path for path in annotated.get(wnid, [])}, top / "val" / wnid)
    paths = [path for wnid in classes.pile for path in images_in(tree / "train" / wnid / "images")]
    link({os.path.basename(path): path for path in paths}, top / "pile")


def link(targets: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, target in targets.items():
        (folder / name).symlink_to(target)


def run(method: str, seed: int, folders: Path, classes: Classes, settings: dict[str, Any], device: str) -> list[Any]:
    """Teach a model lesson by lesson, and return what each gave."""
    pile = folders / "pile" if load_method(method).imagines else None
    steps, known = [], list[str]()
    with tempfile.TemporaryDirectory() as place:
        model = Path(place) / "model.daydream"
        for number, (new, lesson) in enumerate(zip(classes.lessons, settings["lessons"], strict=True), 1):
            start = time.perf_counter()
            learner = (
                Learner.load(model, device=device)
                if known
                else Learner.create(device=device, method=method, seed=seed, **settings["model"])
            )
            record = learner.learn(folders / "learn" / str(number), pile, **lesson)
            learner.save(model)
            seconds = time.perf_counter() - start
            report = learner.test(folders / "test" / str(number))
            step = {
                "classes": len(known) + len(new),
                "accuracy": report.accuracy,
                "old": share(report, known) if known else None,
                "new": share(report, new),
                "calibration_error": report.calibration_error,
                "seconds": round(seconds, 1),
                "test_images": sum(report.images.values()),
                "lesson": asdict(record),
            }
            steps.append(step)
            known += new
            about = f"{method}, seed {seed}, {len(known)} classes"
            print(f"{about}: {report.accuracy:.2f} % in {seconds:.0f} s", flush=True)
    return steps


def share(report: TestReport, names: Sequence[str]) -> float:
    """Return the accuracy on the images of some classes."""
    right = sum(report.per_class[name] * report.images[name] for name in names)
    return round(right / sum(report.images[name] for name in names), 2)


def stored(file: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return a result that is there already; one of other settings is the user's to take away."""
    if not file.exists():
        return None
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if result["settings"] != settings:
        raise UserError(f"{file} was made with other settings: take it away, or give another --out")
    return result


def made(file: Path, method: str, seed: int, given: argparse.Namespace, settings: dict[str, Any]) -> None:
    """Run a method with a seed and write what it gave."""
    tree = tree_of(given.root)
    classes = Classes.drawn(tree, settings["sizes"], settings["pile_classes"], seed)
    folders = laid_out(given.folders or given.out / "folders", tree, classes)
    steps = run(method, seed, folders, classes, settings, given.device)
    result = {
        "method": method,
        "seed": seed,
        "average": round(statistics.mean(step["accuracy"] for step in steps), 2),
        "accuracy_of": "the head (CNN), on the official validation images",
        "steps": steps,
        "settings": settings,
        "classes": asdict(classes),
        "device": torch.cuda.get_device_name() if given.device.startswith("cuda") else f"CPU, {platform.machine()}",
        "daydream": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    atomic.write_json(file, result)


def finish(given: argparse.Namespace, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Run what is not there yet and no other process is at, and return all results that are there then."""
    files = {given.out / f"{method}-{seed}.json": (method, seed) for method in given.methods for seed in given.seeds}
    for file in files:
        stored(file, settings)  # a result of other settings is said before anything trains
    for file, (method, seed) in files.items():
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(atomic.locked(given.out / f".{file.name}.lock", f"{file} is another process's"))
            except UserError as error:
                print(error, flush=True)
                continue
            if not file.exists():
                made(file, method, seed, given, settings)
    return [result for file in files if (result := stored(file, settings)) is not None]


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print a row for each method: medians over its seeds, in per cent, with the spread where there are several."""
    machines = ", ".join(sorted({f"{result['device']}, torch {result['torch']}" for result in results}))
    heads = [f"{step['classes']} classes" for step in results[0]["steps"]]
    table = Table(
        "method", "seeds", *heads, "average", "old, last", "new, last", "seconds a lesson",
        title=f"accuracy of the head on validation images ({machines})", title_justify="left",
    )  # fmt: skip
    for method in dict.fromkeys(result["method"] for result in results):
        own = [result for result in results if result["method"] == method]
        after = [spread(result["steps"][number]["accuracy"] for result in own) for number in range(len(heads))]
        last = [spread(result["steps"][-1][key] for result in own) for key in ("old", "new")]
        seconds = spread(statistics.median(step["seconds"] for step in result["steps"]) for result in own)
        table.add_row(method, str(len(own)), *after, spread(result["average"] for result in own), *last, seconds)
    Console(width=160).print(table)


def spread(found: Iterable[float | None]) -> str:
    """Return the median of some numbers, and where there are several the least and the greatest."""
    values = [value for value in found if value is not None]
    if not values:
        return ""
    ends = f" ({min(values):.1f} – {max(values):.1f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.1f}{ends}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="an unpacked Tiny-ImageNet")
    parser.add_argument("--out", type=Path, required=True, help="where results are, and go")
    parser.add_argument("--folders", type=Path, help="where images are laid out, by links; by default OUT/folders")
    parser.add_argument("--methods", nargs="+", default=["imagine", "replay", "finetune"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--base", type=int, default=20, help="classes of the first lesson")
    parser.add_argument("--steps", type=int, default=3, help="lessons after it")
    parser.add_argument("--step", type=int, default=10, help="classes of each of them")
    parser.add_argument("--pile-classes", type=int, default=100)
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--base-epochs", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=60, help="epochs of each lesson after the first")
    parser.add_argument("--generator-epochs", type=int, default=40)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    epochs = [given.base_epochs] + [given.epochs] * given.steps
    settings = {
        "sizes": [given.base] + [given.step] * given.steps,
        "pile_classes": given.pile_classes,
        "model": {**MODEL, "backbone": given.backbone},
        "lessons": [{**LESSON, "epochs": n, "generator_epochs": given.generator_epochs} for n in epochs],
    }
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        results = finish(given, settings)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    if results:
        show(results)


if __name__ == "__main__":
    main()
