"""The exact learner beside the classifiers one would try first, on the same frozen features of real pictures.

    python benchmarks/exact.py tiny-imagenet ROOT [--classes 20] [--per-class 5 10 20 100] [--draws 5]
    python benchmarks/exact.py cifar100 ROOT

ROOT is an unpacked Tiny-ImageNet (train/ID/images/*.JPEG, val/) or CIFAR-100's python archive. A draw takes some
classes, and of each some training pictures; the nested 5, 10, 20, 100 of a draw are the same pictures for every
classifier, and what is judged are all test pictures of those classes. Features are those of a frozen network
(EfficientNet-lite0 unless said otherwise) on pictures enlarged to `--side`. All others get all pictures at once; the
exact learner gets them in three lessons.

The others, from scikit-learn: logistic regression on standardised features, its strength chosen by five-fold
cross-validation (`--tune`) or C = 0.01; linear discriminant analysis with Ledoit-Wolf shrinkage; nearest class mean and
five nearest neighbours, both by cosine. `imbalanced` is ten pictures of each class and 200 of one.

It also prints the exact learner's calibration error, and how well the highest probability tells classes never shown.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor

from daydream.data import source
from daydream.data.augment import Prepare
from daydream.data.images import ImageSet, Resident
from daydream.learner import exact
from daydream.learner.calibration import expected_calibration_error
from daydream.learner.embedding import Embedder, FeatureCache
from daydream.nets.efficientnet_lite import normalisation
from daydream.nets.network import Network

Classifier = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(features, labels, test features) -> predicted labels."""
POOL, IMBALANCED = 200, (200, 10)


def enlarged(images: ImageSet, side: int) -> ImageSet:
    """Return pictures enlarged by Pillow, as one's own pictures are scaled."""
    whole = images.pixels.fetch(torch.arange(len(images))).permute(0, 2, 3, 1).numpy()
    scaled = [np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BILINEAR)) for image in whole]
    return ImageSet(Resident(torch.from_numpy(np.stack(scaled)).permute(0, 3, 1, 2)), images.labels, images.class_names)


def pool(images: ImageSet, classes: list[int], most: int, embed: Embedder, side: int) -> list[Tensor]:
    """Return the features of the first pictures of each class."""
    found = []
    for label in classes:
        index = (images.labels == label).nonzero().squeeze(1)[:most]
        found.append(embed(enlarged(images.select(index), side).pixels))
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


def others(tune: bool) -> dict[str, Classifier]:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
    from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer, StandardScaler

    def fitted(make: Callable[[], object]) -> Classifier:
        def call(features: Tensor, labels: Tensor, test: Tensor) -> Tensor:
            model = make()
            model.fit(features.numpy(), labels.numpy())  # type: ignore[attr-defined]
            return torch.from_numpy(model.predict(test.numpy()))  # type: ignore[attr-defined]

        return call

    def logistic() -> object:
        if tune:
            return LogisticRegressionCV(
                Cs=[1e-3, 1e-2, 1e-1], cv=5, max_iter=200, class_weight="balanced", scoring="balanced_accuracy"
            )
        return LogisticRegression(C=0.01, max_iter=300, class_weight="balanced")

    return {
        "logistic regression": fitted(lambda: make_pipeline(StandardScaler(), logistic())),
        "logistic regression, raw": fitted(logistic),
        "shrinkage LDA": fitted(lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")),
        "nearest mean": fitted(lambda: make_pipeline(Normalizer(), NearestCentroid())),
        "5 nearest": fitted(lambda: KNeighborsClassifier(5, metric="cosine")),
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
    parser.add_argument("--tune", action="store_true", help="choose logistic regression's strength by cross-validation")
    return parser.parse_args()


def judge_draw(
    draw: int,
    given: argparse.Namespace,
    train: list[Tensor],
    test: list[Tensor],
    rivals: dict[str, Classifier],
    found: dict[str, dict[str, list[float]]],
    errors: dict[str, list[float]],
    unknown: dict[str, list[float]],
) -> None:
    """Add what each classifier gives for each column of one draw."""
    draws = torch.Generator().manual_seed(draw)
    order = torch.randperm(given.pool_classes, generator=draws).tolist()
    mine, rest = order[: given.classes], order[given.classes :]
    shuffled = [torch.randperm(len(train[c]), generator=draws) for c in mine]
    x_test = torch.cat([test[c] for c in mine])
    y_test = torch.arange(len(mine)).repeat_interleave(torch.tensor([len(test[c]) for c in mine]))
    for column in errors:
        many, few = (int(column), int(column)) if column.isdigit() else IMBALANCED
        counts = [many] + [few] * (len(mine) - 1)
        x = torch.cat([train[c][p[:n]] for c, p, n in zip(mine, shuffled, counts, strict=True)])
        y = torch.arange(len(mine)).repeat_interleave(torch.tensor(counts))
        p, model = of_ours(x, y, x_test)
        found["exact learner"][column].append(right(p.argmax(1), y_test))
        errors[column].append(100 * expected_calibration_error(p, y_test))
        if rest:
            strange = exact.probabilities(model, torch.cat([test[c] for c in rest]))
            unknown[column].append(100 * auroc(p.amax(1), strange.amax(1)))
        for name, call in rivals.items():
            found[name][column].append(right(call(x, y, x_test), y_test))


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
    print(f"features of {sum(map(len, [*train, *test])):,} pictures: {time.perf_counter() - start:.0f} s", flush=True)
    rivals = others(given.tune)
    columns = [*(str(count) for count in given.per_class), "imbalanced"]
    found: dict[str, dict[str, list[float]]] = {
        name: {column: [] for column in columns} for name in ("exact learner", *rivals)
    }
    errors: dict[str, list[float]] = {column: [] for column in columns}
    unknown: dict[str, list[float]] = {column: [] for column in columns}
    for draw in range(given.draws):
        judge_draw(draw, given, train, test, rivals, found, errors, unknown)
        print(f"draw {draw + 1} of {given.draws}: {time.perf_counter() - start:.0f} s", flush=True)
    show(given, columns, found, errors, unknown)


def show(
    given: argparse.Namespace,
    columns: list[str],
    found: dict[str, dict[str, list[float]]],
    errors: dict[str, list[float]],
    unknown: dict[str, list[float]],
) -> None:
    """Print means over draws, and the mean paired difference to ours with its standard error."""
    title = (
        f"{given.data}, {given.classes} classes, {given.backbone} at {given.side} pixels, {given.draws} draws: accuracy"
    )
    table = Table("pictures a class", *columns, title=title, title_justify="left")
    ours = found["exact learner"]
    for name, row in found.items():
        cells = []
        for column in columns:
            gap = [theirs - our for theirs, our in zip(row[column], ours[column], strict=True)]
            error = statistics.stdev(gap) / len(gap) ** 0.5 if len(gap) > 1 else 0.0
            beside = "" if row is ours else f" ({statistics.mean(gap):+.1f} ± {error:.1f})"
            cells.append(f"{statistics.mean(row[column]):.1f}{beside}")
        table.add_row(name, *cells)
    table.add_section()
    table.add_row("ours: calibration error", *(f"{statistics.mean(errors[column]):.1f}" for column in columns))
    if all(unknown.values()):
        table.add_row("ours: AUROC, unknown classes", *(f"{statistics.mean(unknown[c]):.1f}" for c in columns))
    Console(width=190).print(table)


if __name__ == "__main__":
    main()
