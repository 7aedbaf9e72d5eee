"""The exact learner beside the classifiers one would try first, on the same frozen features of real pictures.

    python benchmarks/exact.py tiny-imagenet ROOT [--classes 20] [--per-class 5 10 20 100] [--draws 5] [--out FILE]
    python benchmarks/exact.py cifar100 ROOT

ROOT is an unpacked Tiny-ImageNet (train/ID/images/*.JPEG, val/) or CIFAR-100's python archive. A draw takes some
classes, and of each some training pictures; the nested 5, 10, 20, 100 of a draw are the same pictures for every
classifier, and what is judged are all test pictures of those classes. Features are those of a frozen network
(EfficientNet-lite0 unless said otherwise) on pictures enlarged to `--side`. All others get all pictures at once; the
exact learner gets them in three lessons.

The others, from scikit-learn: logistic regression on standardised features, its strength chosen by five-fold
cross-validation (`--tune`) or C = 0.01; linear discriminant analysis with Ledoit-Wolf shrinkage; nearest class mean and
five nearest neighbours, both by cosine. `imbalanced` is ten pictures of each class and 200 of one. HOG and logistic
regression see the pictures themselves (`hog.py`), no network.

It also prints, of the exact learner and of logistic regression, the calibration error on test pictures, and how well
the highest probability, which `--reject` goes by, tells known classes from others (area under the ROC curve).
"""

import argparse
import json
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from hog import hog
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor

from daydream import __version__
from daydream.data import source
from daydream.data.augment import Prepare
from daydream.data.images import ImageSet, Resident
from daydream.learner import exact
from daydream.learner.calibration import expected_calibration_error
from daydream.learner.embedding import Embedder, FeatureCache
from daydream.nets.efficientnet_lite import normalisation
from daydream.nets.network import Network

Rows = dict[str, dict[str, list[float]]]
"""By name and column, a number for each draw."""
OURS, LOGISTIC, HOG = "exact learner", "logistic regression", "HOG + logistic regression"
POOL, IMBALANCED = 200, (200, 10)


def enlarged(images: ImageSet, side: int) -> ImageSet:
    """Return pictures enlarged by Pillow, as one's own pictures are scaled."""
    whole = images.pixels.fetch(torch.arange(len(images))).permute(0, 2, 3, 1).numpy()
    scaled = [np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BILINEAR)) for image in whole]
    return ImageSet(Resident(torch.from_numpy(np.stack(scaled)).permute(0, 3, 1, 2)), images.labels, images.class_names)


@dataclass(frozen=True)
class Pool:
    """Features of the first pictures of each class."""

    frozen: list[Tensor]
    hog: list[Tensor]


def pool(images: ImageSet, classes: list[int], most: int, embed: Embedder, side: int) -> Pool:
    """Return the features of the first pictures of each class, by the network and by hand."""
    found = Pool([], [])
    for label in classes:
        mine = images.select((images.labels == label).nonzero().squeeze(1)[:most])
        found.frozen.append(embed(enlarged(mine, side).pixels))
        found.hog.append(hog(mine.pixels.fetch(torch.arange(len(mine)))))
    return found


def of_ours(features: Tensor, labels: Tensor, test: Tensor) -> tuple[Tensor, exact.ExactModel]:
    """Learn in three lessons, and return scores of the test pictures in the order of labels."""
    names = [f"{label:04d}" for label in range(int(labels.max()) + 1)]
    digests = torch.arange(len(labels))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    model = None
    for part in order.chunk(3):
        model = exact.learn(model, "", names, labels[part], digests[part], features[part])
    assert model is not None
    place = torch.tensor([model.names.index(name) for name in names])
    return exact.probabilities(model, test)[:, place], model


def others(tune: bool) -> dict[str, Callable[[], Any]]:
    """Return what makes each of the others."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
    from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer, StandardScaler

    def logistic() -> Any:
        if tune:
            return LogisticRegressionCV(
                Cs=[1e-3, 1e-2, 1e-1], cv=5, max_iter=200, class_weight="balanced", scoring="balanced_accuracy"
            )
        return LogisticRegression(C=0.01, max_iter=300, class_weight="balanced")

    return {
        LOGISTIC: lambda: make_pipeline(StandardScaler(), logistic()),
        "logistic regression, raw": logistic,
        "shrinkage LDA": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
        "nearest mean": lambda: make_pipeline(Normalizer(), NearestCentroid()),
        "5 nearest": lambda: KNeighborsClassifier(5, metric="cosine"),
        HOG: lambda: make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300, class_weight="balanced")),
    }


def auroc(known: Tensor, unknown: Tensor) -> float:
    """Return how often a known picture's number is above an unknown one's."""
    both = torch.cat([known, unknown])
    rank = torch.empty(len(both), dtype=torch.float64)
    rank[both.argsort()] = torch.arange(1, len(both) + 1, dtype=torch.float64)
    return float((rank[: len(known)].sum() - len(known) * (len(known) + 1) / 2) / (len(known) * len(unknown)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=["tiny-imagenet", "cifar100"])
    parser.add_argument("root", type=Path)
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--pool-classes", type=int, default=40, help="classes that draws take theirs from")
    parser.add_argument("--per-class", type=int, nargs="+", default=[5, 10, 20, 100])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write every number here, as JSON")
    parser.add_argument("--tune", action="store_true", help="choose logistic regression's strength by cross-validation")
    return parser.parse_args()


def judge_draw(
    draw: int, given: argparse.Namespace, train: Pool, test: Pool, rivals: dict[str, Callable[[], Any]], found: Rows
) -> None:
    """Add what each classifier gives for each column of one draw."""
    draws = torch.Generator().manual_seed(draw)
    order = torch.randperm(given.pool_classes, generator=draws).tolist()
    mine, rest = order[: given.classes], order[given.classes :]
    shuffled = [torch.randperm(len(train.frozen[c]), generator=draws) for c in mine]
    y_test = torch.arange(len(mine)).repeat_interleave(torch.tensor([len(test.frozen[c]) for c in mine]))

    def columns(pool: list[Tensor], classes: list[int]) -> Tensor:
        return torch.cat([pool[c] for c in classes])

    def add(name: str, column: str, value: float) -> None:
        found.setdefault(name, {}).setdefault(column, []).append(value)

    for column in [*map(str, given.per_class), "imbalanced"]:
        many, few = (int(column), int(column)) if column.isdigit() else IMBALANCED
        counts = [many] + [few] * (len(mine) - 1)

        def taken(pool: list[Tensor], counts: list[int] = counts) -> Tensor:
            return torch.cat([pool[c][p[:n]] for c, p, n in zip(mine, shuffled, counts, strict=True)])

        x, y = taken(train.frozen), torch.arange(len(mine)).repeat_interleave(torch.tensor(counts))
        p, model = of_ours(x, y, columns(test.frozen, mine))
        add(OURS, column, right(p.argmax(1), y_test))
        judged = {"ours": (p, exact.probabilities(model, columns(test.frozen, rest)) if rest else None)}
        for name, make in rivals.items():
            ours, theirs = (train.hog, test.hog) if name == HOG else (train.frozen, test.frozen)
            rival = make().fit(taken(ours).numpy(), y.numpy())
            add(name, column, right(torch.from_numpy(rival.predict(columns(theirs, mine).numpy())), y_test))
            if name == LOGISTIC:
                known, strange = (
                    torch.from_numpy(rival.predict_proba(columns(test.frozen, classes).numpy())) if classes else None
                    for classes in (mine, rest)
                )
                judged[name] = (known, strange)
        for name, (known, strange) in judged.items():
            add(f"{name}: calibration error", column, 100 * expected_calibration_error(known, y_test))
            if strange is not None:
                add(f"{name}: AUROC, unknown classes", column, 100 * auroc(known.amax(1), strange.amax(1)))


def right(predicted: Tensor, labels: Tensor) -> float:
    return 100 * float((predicted == labels).double().mean())


def main() -> None:
    warnings.filterwarnings("ignore")
    given = arguments()
    module = source(given.data)
    data = module.load(given.root, module.Settings())
    net = Network(given.backbone, "linear").requires_grad_(False)
    embed = Embedder(net, Prepare(*normalisation(given.backbone, data.mean, data.std), given.side), FeatureCache())
    classes = torch.randperm(len(data.class_names), generator=torch.Generator().manual_seed(0)).tolist()
    classes = classes[: given.pool_classes]
    start = time.perf_counter()
    train = pool(data.train, classes, POOL, embed, given.side)
    test = pool(data.test, classes, POOL, embed, given.side)
    print(
        f"features of {sum(map(len, [*train.frozen, *test.frozen])):,} pictures: {time.perf_counter() - start:.0f} s",
        flush=True,
    )
    rivals, found = others(given.tune), Rows()
    for draw in range(given.draws):
        judge_draw(draw, given, train, test, rivals, found)
        print(f"draw {draw + 1} of {given.draws}: {time.perf_counter() - start:.0f} s", flush=True)
    show(given, found)
    if given.out:
        given.out.write_text(json.dumps(document(given, found), indent=1) + "\n")


def document(given: argparse.Namespace, found: Rows) -> dict[str, Any]:
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
    }


def show(given: argparse.Namespace, found: Rows) -> None:
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


if __name__ == "__main__":
    main()
