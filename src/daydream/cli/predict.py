"""The command `predict`: without torch where an exact model and onnxruntime allow it."""

import csv
import json
import logging
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from daydream.cli.common import Device, Json, MaxPixels, ModelPath, allow_pixels
from daydream.errors import UserError
from daydream.escapes import cell, visible

if TYPE_CHECKING:
    from daydream.learner.exact_learner import ExactLearner
    from daydream.learner.quick import Quick

log = logging.getLogger("daydream")


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("predict")(predict)


def predict(
    model: ModelPath,
    files: Annotated[list[str], typer.Argument(help="images, folders of images, or - for a list on standard input")],
    top: Annotated[int, typer.Option(min=1, help="how many classes to print for an image")] = 3,
    reject: Annotated[
        float | None,
        typer.Option(help="mark what is likely no known class, at the price of this share of known images, e.g. 0.05"),
    ] = None,
    as_json: Json = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="print lines of path, rank, label, probability, rejected")
    ] = False,
    device: Device = "auto",
    max_pixels: MaxPixels = None,
) -> None:
    """Print the most likely classes of images, with probabilities."""
    if as_json and as_csv:
        raise UserError("--json and --csv: give one of the two")
    allow_pixels(max_pixels)
    names, paths, probabilities, rejected = judged(model, files, reject, device)
    rows = [
        {
            "path": path,
            "rejected": none_of_these,
            "classes": [
                {"label": names[i], "probability": round(own[i], 6)}
                for i in sorted(range(len(names)), key=own.__getitem__, reverse=True)[:top]
            ],
        }
        for path, own, none_of_these in zip(paths, probabilities, rejected, strict=True)
    ]
    (print_json if as_json else print_csv if as_csv else print_lines)(rows)


def print_json(rows: list[dict[str, Any]]) -> None:
    sys.stdout.write(json.dumps(rows) + "\n")


def print_csv(rows: list[dict[str, Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["path", "rank", "label", "probability", "rejected"])
    for row in rows:
        rejected = "" if row["rejected"] is None else str(row["rejected"]).lower()
        for rank, found in enumerate(row["classes"], 1):
            writer.writerow([cell(row["path"]), rank, cell(found["label"]), found["probability"], rejected])


def print_lines(rows: list[dict[str, Any]]) -> None:
    width = max(len(row["path"]) for row in rows)
    for row in rows:
        found = ", ".join(f"{c['label']} {100 * c['probability']:.1f} %" for c in row["classes"])
        text = f"{row['path']:<{width}}  {'likely none of these: ' if row['rejected'] else ''}{found}"
        sys.stdout.write(visible(text) + "\n")


Judgement = tuple[list[str], list[str], list[list[float]], list[bool | None]]
"""Class names, paths of pictures that could be read, their probabilities, and which are likely none of the classes."""


def judged(model: Path, words: Sequence[str], reject: float | None, device: str) -> Judgement:
    """Judge the images that can be read; name the others."""
    from daydream.data.decode import paths_of, skipped
    from daydream.learner import quick

    listed = [line for line in sys.stdin.read().splitlines() if line.strip()] if "-" in words else []
    paths = paths_of([*(word for word in words if word != "-"), *listed])
    way = quick.opened(model) if device in ("auto", "cpu") else None
    names, threshold, parts = by_torch(model, paths, reject, device) if way is None else by_graph(way, paths, reject)
    kept: list[str] = []
    found: list[list[float]] = []
    rejected: list[bool | None] = []
    failures: dict[int, str] = {}
    for start, failed, probabilities, looks in parts:
        failures |= {start + i: reason for i, reason in failed.items()}
        kept += [paths[start + i] for i in range(len(failed) + len(probabilities)) if i not in failed]
        found += probabilities
        rejected += [None] * len(probabilities) if threshold is None else [own < threshold for own in looks]
    if not kept:
        reason = ""
        if paths:
            reason = f" ({failures[0]})" if paths == [*words] else f" ({paths[0]}: {failures[0]})"
        raise UserError(f"there is no image to judge in {' '.join(words[:3])}{reason}")
    if failures:
        log.warning("%s", skipped(paths, sorted(failures)))
    return names, kept, found, rejected


Parts = Iterable[tuple[int, dict[int, str], list[list[float]], list[float]]]
"""Of some pictures: the first one's place, what could not be read, of the others probabilities and how known."""


def by_graph(way: "Quick", paths: Sequence[str], reject: float | None) -> tuple[list[str], float | None, Parts]:
    """Judge without torch."""
    threshold = None if reject is None else way.rejection(reject)
    return list(way.names), threshold, way.judged(paths, reject is not None)


def by_torch(
    model: Path, paths: Sequence[str], reject: float | None, device: str
) -> tuple[list[str], float | None, Parts]:
    """Judge by whichever learner the model is of."""
    from daydream.learner import opening, reading

    learner = opening.load(model, device=device)
    threshold = None if reject is None else learner.rejection(reject)
    if learner.kind == "exact":
        cast("ExactLearner", learner).make_ready()  # of a file that came from elsewhere, only the first waits for torch
    return list(learner.names), threshold, reading.judged(learner, paths)
