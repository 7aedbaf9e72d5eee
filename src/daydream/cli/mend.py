"""The commands that change what a model knows, or say what should be: forget, rename, merge, undo, doubts, next."""

import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from daydream import atomic
from daydream.cli.common import Json, MaxPixels, ModelPath, allow_pixels, console
from daydream.errors import UserError
from daydream.escapes import visible
from daydream.learner import opening
from daydream.learner.locking import taught
from daydream.learner.opening import Teachable

if TYPE_CHECKING:
    from daydream.learner.exact_learner import ExactLearner

log = logging.getLogger("daydream")

Classes = Annotated[list[str] | None, typer.Argument(help="names of classes")]


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    commands: dict[str, Callable[..., None]] = {
        "forget": forget,
        "rename": rename,
        "merge": merge,
        "undo": undo,
        "doubts": doubts,
        "next": ask_next,
    }
    for name, command in commands.items():
        app.command(name)(command)


def changed(path: Path, change: Callable[[Teachable], object], as_json: bool) -> None:
    """Change a model, write it whole, and say what it knows now."""
    if not path.exists():
        opening.load(path)  # which says that it is not there
    with taught(path):
        atomic.sweep(path)
        learner = opening.load(path, device="cpu")
        change(learner)
        learner.save(path)
    accuracy = next((record.accuracy for record in reversed(learner.history)), None)
    if as_json:
        counts = {row.name: row.images for row in learner.classes}
        sys.stdout.write(json.dumps({"classes": counts, "accuracy": accuracy}) + "\n")
        return
    from daydream.cli.model_tables import counted

    told = "" if accuracy is None else f", {accuracy:.1f} % right on pictures not learnt"
    images = counted(sum(row.images for row in learner.classes), "picture", "pictures")
    sys.stdout.write(visible(f"{path}: {counted(len(learner.names), 'class', 'classes')}, {images}{told}") + "\n")


def forget(
    model: ModelPath,
    names: Classes = None,
    pictures: Annotated[Path | None, typer.Option(help="forget the pictures under this folder instead")] = None,
    as_json: Json = False,
    max_pixels: MaxPixels = None,
) -> None:
    """Forget classes, or pictures, as if they had never been learnt: no feature, no digest, no earlier state stays."""
    if bool(names) == bool(pictures):
        raise UserError("say what to forget: names of classes, or --pictures FOLDER")
    allow_pixels(max_pixels)
    gone: set[int] = set()

    def change(learner: Teachable) -> None:
        known = digests_of(learner)
        if pictures:
            learner.forget_pictures(pictures)
        else:
            learner.forget(*names or ())
        gone.update(known - digests_of(learner))

    changed(model, change, as_json)
    from daydream.serve.pictures import Pictures, id_of

    Pictures(model).remove(map(id_of, gone))  # those that `daydream serve` keeps beside the model


def digests_of(learner: Teachable) -> set[int]:
    """Return what names the pictures that an exact model knows."""
    return set(cast("ExactLearner", learner).taught.known.digests.tolist()) if learner.kind == "exact" else set()


def rename(
    model: ModelPath,
    name: Annotated[str, typer.Argument(help="a class")],
    to: Annotated[str, typer.Argument(help="its name from now on")],
    as_json: Json = False,
) -> None:
    """Give a class another name."""
    changed(model, lambda learner: learner.rename(name, to), as_json)


def merge(
    model: ModelPath,
    names: Annotated[list[str], typer.Argument(help="two classes or more")],
    into: Annotated[str, typer.Option(help="the name of the one they become")],
    as_json: Json = False,
) -> None:
    """Make one class of several."""
    changed(model, lambda learner: learner.merge(names, into), as_json)


def undo(model: ModelPath, as_json: Json = False) -> None:
    """Go back to before the last lesson, renaming or merging; the last three can be undone, forgetting cannot."""
    changed(model, lambda learner: learner.undo(), as_json)


def doubts(
    model: ModelPath,
    folder: Annotated[Path | None, typer.Argument(help="where the pictures are, to name their files")] = None,
    as_json: Json = False,
    max_pixels: MaxPixels = None,
) -> None:
    """Show learnt pictures that are likely mislabelled, doubled or odd, the surest first."""
    allow_pixels(max_pixels)
    learner = opening.load(model, device="cpu")
    found = learner.doubts()
    paths = files_of(folder, learner.size) if folder is not None else {}
    rows = [{**asdict(doubt), "path": file_of(paths.get(doubt.digest, []), doubt.name)} for doubt in found]
    if as_json:
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    from daydream.cli.model_tables import doubts_table

    console().print(doubts_table(rows) if rows else f"{model}: no picture looks wrong", highlight=False)
    if rows and folder is None:
        log.info("to see which files these are, name the folder they came from: daydream doubts %s FOLDER", model)


def files_of(folder: Path, size: int) -> dict[int, list[str]]:
    """Return the files of pictures under a folder, by the digests of what a model stores of them."""
    from daydream.engine import Display
    from daydream.learner.reading import read_folder

    seen = read_folder(folder, None, size, Display())
    files: dict[int, list[str]] = {}
    for digest, path in zip(seen.digests.tolist(), seen.paths, strict=True):
        files.setdefault(digest, []).append(path)
    return files


def file_of(paths: Sequence[str], name: str) -> str | None:
    """Return which of equal pictures lies in a class's folder; where none does, the first."""
    return next((path for path in paths if name in Path(path).parts), next(iter(paths), None))


def ask_next(
    model: ModelPath,
    folder: Annotated[Path, typer.Argument(help="folder of unlabelled pictures, nested or not")],
    count: Annotated[int, typer.Option(min=1, help="how many to name")] = 10,
    as_json: Json = False,
    max_pixels: MaxPixels = None,
) -> None:
    """Name the unlabelled pictures that a model would learn most from: give these a class first."""
    allow_pixels(max_pixels)
    learner = opening.load(model, device="cpu")
    images, index = learner.ask_next(folder, count)
    pixels: Any = images.pixels
    paths = [pixels.paths[i] for i in index.tolist()]
    sys.stdout.write(json.dumps(paths) + "\n" if as_json else "".join(f"{visible(path)}\n" for path in paths))
