"""The exact learner beside the classifiers one would try first, on the same frozen features of real pictures.

    python benchmarks/own_images.py tiny-imagenet ROOT [--classes 20] [--per-class 5 10 20 100] [--draws 5] [--out FILE]
    python benchmarks/own_images.py cifar100 ROOT
    python benchmarks/own_images.py shapes --pool-classes 30 --per-class 5 10 20
    python benchmarks/own_images.py folder ROOT          (ROOT/train/CLASS/*.jpg and ROOT/test/CLASS/*.jpg)

ROOT is an unpacked Tiny-ImageNet (train/ID/images/*.JPEG, val/) or CIFAR-100's python archive. A draw takes some
classes, and of each some training pictures; the nested 5, 10, 20, 100 of a draw are the same pictures for every
classifier, and what is judged are 50 test pictures of each class. Features are those of a frozen network
(EfficientNet-lite0 unless said otherwise) on pictures brought to `--side`. All others (`rivals.py`) get all pictures at
once; the exact learner gets them in three lessons. `imbalanced` is ten pictures of each class and 200 of one, and
accuracy there is the mean over classes, as everywhere. HOG sees the pictures themselves (`hog.py`), no network.

It also prints the calibration error on test pictures, and how well what `--reject` goes by tells known classes from
those of the pool never shown (area under the ROC curve), beside the highest probability, ours and logistic
regression's. Then what is answered beside a class, each beside a control (`answers.py`).
"""

import argparse
import json
import platform
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import sklearn
import torch
from answers import Lot, exactness, found_mistakes, labelled_next
from pools import Pool, options, pool
from rich.console import Console
from rich.table import Table
from rivals import HOG, LOGISTIC, RIVALS
from torch import Tensor

from daydream import __version__
from daydream.learner import exact
from daydream.learner.calibration import expected_calibration_error

Rows = dict[str, dict[str, list[float]]]
"""By name and column, a number for each draw."""
OURS = "exact learner"
IMBALANCED, ANSWERED, STARTED = (200, 10), 20, 5


def of_ours(features: Tensor, labels: Tensor) -> exact.ExactModel:
    """Learn in three lessons."""
    lot, model = Lot(features, labels), None
    for part in torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).chunk(3):
        model = lot.taught(model, part)
    assert model is not None
    return model


def by_label(model: exact.ExactModel, features: Tensor) -> Tensor:
    """Return probabilities, classes in the order of labels."""
    return exact.probabilities(model, features)[:, sorted(range(len(model.names)), key=model.names.__getitem__)]


def auroc(known: Tensor, unknown: Tensor) -> float:
    """Return how often a known picture's number is above an unknown one's."""
    both = torch.cat([known, unknown])
    rank = torch.empty(len(both), dtype=torch.float64)
    rank[both.argsort()] = torch.arange(1, len(both) + 1, dtype=torch.float64)
    return float((rank[: len(known)].sum() - len(known) * (len(known) + 1) / 2) / (len(known) * len(unknown)))


def right(predicted: Tensor, labels: Tensor) -> float:
    return 100 * float((predicted == labels).double().mean())


class Draw:
    """Some classes of a pool, in an order, and of each its training pictures in an order."""

    def __init__(self, number: int, given: argparse.Namespace, pictures: Pool) -> None:
        draws = torch.Generator().manual_seed(number)
        order = torch.randperm(len(pictures.names), generator=draws).tolist()
        self.mine, self.rest, self.pictures = order[: given.classes], order[given.classes :], pictures
        self.seeds = torch.randint(2**31, (len(self.mine),), generator=draws).tolist()
        counts = torch.tensor([len(self.test("features", [label])) for label in self.mine])
        self.truth = torch.arange(len(self.mine)).repeat_interleave(counts)

    def test(self, kind: str, labels: list[int]) -> Tensor:
        side = self.pictures.test
        return torch.cat([getattr(side, kind)(label, len(side.pictures[label])) for label in labels])

    def at_most(self, counts: list[int]) -> list[int]:
        """Return how many training pictures of each class there are, up to these numbers."""
        there = [len(self.pictures.train.pictures[label]) for label in self.mine]
        return list(map(min, counts, there))

    def train(self, kind: str, counts: list[int]) -> Tensor:
        """Return features of the first pictures of each class; the first 100 of a class are shuffled."""
        return torch.cat([self._class(kind, place, count) for place, count in enumerate(counts)])

    def _class(self, kind: str, place: int, count: int) -> Tensor:
        side, label = self.pictures.train, self.mine[place]
        draws = torch.Generator().manual_seed(self.seeds[place])
        order = torch.randperm(min(100, len(side.pictures[label])), generator=draws)
        found: Tensor = getattr(side, kind)(label, max(count, len(order)))
        return torch.cat([found[order], found[len(order) :]])[:count]


def judge_draw(draw: Draw, column: str, found: Rows) -> None:
    """Add what each classifier gives for one column of a draw."""
    many, few = (int(column), int(column)) if column.isdigit() else IMBALANCED
    counts = draw.at_most([many] + [few] * (len(draw.mine) - 1))
    x, y = draw.train("features", counts), torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    known, strange = draw.test("features", draw.mine), draw.test("features", draw.rest) if draw.rest else None
    model = of_ours(x, y)
    p = by_label(model, known)

    def add(name: str, value: float) -> None:
        found.setdefault(name, {}).setdefault(column, []).append(value)

    add(OURS, right(p.argmax(1), draw.truth))
    add("calibration error: ours", 100 * expected_calibration_error(p, draw.truth))
    if strange is not None:
        add("AUROC: ours, what --reject goes by", 100 * auroc(exact.looks(model, known), exact.looks(model, strange)))
        add("AUROC: ours, highest probability", 100 * auroc(p.amax(1), by_label(model, strange).amax(1)))
    for name, make in RIVALS.items():
        kind = "hog" if name == HOG else "features"
        rival = make().fit((draw.train(kind, counts) if name == HOG else x).numpy(), y.numpy())
        test = draw.test(kind, draw.mine).numpy()
        add(name, right(torch.from_numpy(rival.predict(test)), draw.truth))
        if name == LOGISTIC:
            theirs = torch.from_numpy(rival.predict_proba(test))
            add(f"calibration error: {name}", 100 * expected_calibration_error(theirs, draw.truth))
            if strange is not None:
                others = torch.from_numpy(rival.predict_proba(strange.numpy()))
                add(f"AUROC: {name}, highest probability", 100 * auroc(theirs.amax(1), others.amax(1)))


def answered(draw: Draw, number: int) -> dict[str, float]:
    """Return what is answered beside a class, from 20 pictures of each."""
    counts = draw.at_most([ANSWERED] * len(draw.mine))
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    lot, test = Lot(draw.train("features", counts), labels), Lot(draw.test("features", draw.mine), draw.truth)
    found = found_mistakes(lot, number)
    found |= {f"{name} (accuracy)": value for name, value in labelled_next(lot, STARTED, test, number).items()}
    if not number:
        found |= {f"largest difference, {kind}": gap for kind, gap in exactness(lot, test.features).items()}
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--per-class", type=int, nargs="+", default=[5, 10, 20, 100])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write every number here, as JSON")
    return parser.parse_args()


def main() -> None:
    warnings.filterwarnings("ignore")
    given = arguments()
    start, pictures = time.perf_counter(), pool(given)
    found: Rows = {}
    said: dict[str, list[float]] = {}
    for number in range(given.draws):
        draw = Draw(number, given, pictures)
        for column in [*map(str, given.per_class), "imbalanced"]:
            judge_draw(draw, column, found)
        for name, value in answered(draw, number).items():
            said.setdefault(name, []).append(value)
        print(f"draw {number + 1} of {given.draws}: {time.perf_counter() - start:.0f} s", flush=True)
        if given.out:
            given.out.write_text(json.dumps(document(given, found, said), indent=1) + "\n")
    show(given, found, said)


def document(given: argparse.Namespace, found: Rows, said: dict[str, list[float]]) -> dict[str, Any]:
    """Return every number, and what it takes to get it again."""
    return {
        "what": "accuracy of test pictures in per cent, for each draw",
        "settings": {name: value for name, value in vars(given).items() if name not in ("root", "out")},
        "versions": {"daydream": __version__, "torch": torch.__version__, "scikit-learn": sklearn.__version__},
        "machine": f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} thread(s)",
        "rows": {
            name: {column: [round(v, 2) for v in values] for column, values in row.items()}
            for name, row in found.items()
        },
        "answers": {name: [float(f"{v:.4g}") for v in values] for name, values in said.items()},
    }


def show(given: argparse.Namespace, found: Rows, said: dict[str, list[float]]) -> None:
    """Print means over draws, and the mean paired difference to ours with its standard error."""
    title = (
        f"{given.data}, {given.classes} classes, {given.backbone} at {given.side} pixels, {given.draws} draws: accuracy"
    )
    ours = found[OURS]
    table = Table("pictures a class", *ours, title=title, title_justify="left")
    for name in [name for name in found if ":" not in name]:
        cells = []
        for column, values in found[name].items():
            gap = [theirs - our for theirs, our in zip(values, ours[column], strict=True)]
            error = statistics.stdev(gap) / len(gap) ** 0.5 if len(gap) > 1 else 0.0
            beside = "" if name == OURS else f" ({statistics.mean(gap):+.1f} ± {error:.1f})"
            cells.append(f"{statistics.mean(values):.1f}{beside}")
        table.add_row(name, *cells)
    table.add_section()
    for name in sorted(name for name in found if ":" in name):
        table.add_row(name, *(f"{statistics.mean(values):.1f}" for values in found[name].values()))
    Console(width=190).print(table)
    for name, values in said.items():
        print(f"{name}: {statistics.mean(values):.4g}")


if __name__ == "__main__":
    main()
