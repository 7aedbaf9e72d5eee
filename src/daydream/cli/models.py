"""The commands on model files: learn, classes, predict, test, export. Nothing heavy is imported before one needs it."""

import csv
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daydream import atomic
from daydream.cli import flags
from daydream.cli.common import Device, Json, MaxPixels, Quiet, Trusted, console, stoppable
from daydream.errors import UserError
from daydream.escapes import cell, visible
from daydream.learner.locking import taught
from daydream.learner.settings import LessonSettings, ModelSettings
from daydream.settings import flag

if TYPE_CHECKING:
    from torch import Tensor

    from daydream.learner.learner import Learner
    from daydream.learner.model import LessonRecord

log = logging.getLogger("daydream")

ModelPath = Annotated[Path, typer.Argument(help="a model file", show_default=False)]


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the commands to the app; the flags of `learn` depend on the method it is given."""
    app.command("learn")(learn_command(words) if words[:1] == ["learn"] else learn)
    for name, command in (("classes", classes), ("predict", predict), ("test", measure), ("export", export)):
        app.command(name)(command)


def learn_command(words: Sequence[str]) -> Any:
    """Return the command `learn` with the flags of what its method can carry."""
    from daydream.learner.making import OWN, lesson_components, method_class

    titles = {"parts": "Parts", "imagination": "Imagination", "pile": "Teaching on unlabelled images"}
    components = lesson_components(method_class(flags.given(words, "--method", "replay")))
    sections = [
        flags.Section("model", "A new model, fixed from then on", ModelSettings),
        *(flags.Section(key, f"{titles[key]}, fixed too", kind, OWN) for key, kind in components.items()),
        flags.Section("lesson", "This lesson", LessonSettings),
    ]
    return flags.command(sections, learn, flags.asks_for_all(words))


def learn(
    *,
    model: Annotated[Path, typer.Argument(help="the model file: a new one, or one that learns more")],
    folder: Annotated[Path, typer.Argument(help="folder with one sub-folder of images per class")],
    unlabeled: Annotated[Path | None, typer.Option(help="folder of any images, to imagine with")] = None,
    test: Annotated[Path | None, typer.Option(help="test images of these classes, a sub-folder each")] = None,
    device: Device = "auto",
    max_pixels: MaxPixels = None,
    quiet: Quiet = False,
    as_json: Json = False,
    help_all: flags.HelpAll = False,
    values: Annotated[dict[str, Any] | None, typer.Option(hidden=True, parser=json.loads)] = None,
) -> None:
    """Teach a model the classes of a folder. What is not given is chosen from the images and the device, and shown."""
    assert values is not None
    record: LessonRecord
    allow_pixels(max_pixels)
    with taught(model), stoppable(f"{model} is as it was before") as switch:
        atomic.sweep(model)
        from daydream.cli.model_tables import choices_table, lesson_text
        from daydream.cli.progress import make_display
        from daydream.learner import lesson_checkpoint
        from daydream.settings import from_dict

        learner, lesson = opened(model, values, device), from_dict(LessonSettings, values.pop("lesson"))
        ready, choices = learner.prepare(folder, unlabeled, test, lesson)
        screen = console(stderr=as_json)
        if not quiet:
            screen.print(choices_table(choices), highlight=False)
        display = make_display(switch, screen, quiet)
        try:
            record = learner.take(ready, display, beside=model)
        finally:
            display.close()
        learner.save(model)
        lesson_checkpoint.drop(model)
    if as_json:
        sys.stdout.write(json.dumps(asdict(record)) + "\n")
    elif not quiet:
        console().print(lesson_text(learner, model), highlight=False)


def opened(path: Path, values: dict[str, dict[str, Any]], device: str) -> "Learner":
    """Return the learner of a model file, or a new one made as the flags say; a model stays what it was made as."""
    from daydream.learner.learner import Learner
    from daydream.learner.making import complete, method_class

    given = {name: value for name, value in values["model"].items() if value is not None}
    carried = {key: value for key, value in values.items() if key not in ("model", "lesson")}
    if not path.exists():
        return Learner.create(device=device, **given, **{k: v for own in carried.values() for k, v in own.items()})
    learner = Learner.load(path, device=device)
    usual = complete(method_class(given.get("method")), {})  # the defaults that the flags of this command had
    check_same(path, given, asdict(learner.given))
    for key, own in carried.items():
        changed = {name: value for name, value in own.items() if value != usual.get(key, {}).get(name)}
        check_same(path, changed, learner.carried.get(key, {}))
    return learner


def allow_pixels(number: int | None) -> None:
    """Move the limit on a picture's pixels, for this process and those that decode for it."""
    if number is not None:
        os.environ["DAYDREAM_MAX_PIXELS"] = str(number)


def check_same(path: Path, given: Mapping[str, Any], stands: Mapping[str, Any]) -> None:
    """Refuse to change what a model was made with."""
    for name, value in given.items():
        if value != stands.get(name):
            stays = f"{path} was made with {stands.get(name)}, which stays; leave it out, or make a new model"
            raise UserError(f"{flag(name)} {value}: {stays}")


def loaded(path: Path, device: str = "auto") -> "Learner":
    from daydream.learner.learner import Learner

    return Learner.load(path, device=device)


def classes(model: ModelPath, as_json: Json = False) -> None:
    """Show what a model knows: its classes, their exemplars and generators, and its accuracy after each lesson."""
    learner = loaded(model, "cpu")
    if as_json:
        about = {
            "classes": [asdict(row) for row in learner.classes],
            "lessons": [asdict(r) for r in learner.taught.lessons],
        }
        sys.stdout.write(json.dumps(about) + "\n")
        return
    from daydream.cli.model_tables import classes_table

    console().print(classes_table(learner, model), highlight=False)


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
    learner = loaded(model, device)
    threshold = None if reject is None else learner.rejection(reject)
    paths, probabilities = judged(learner, files)
    names = learner.taught.names
    best = probabilities.topk(min(top, len(names)), dim=1)
    rows = [
        {
            "path": path,
            "rejected": None if threshold is None else values[0] < threshold,
            "classes": [{"label": names[i], "probability": round(p, 6)} for i, p in zip(labels, values, strict=True)],
        }
        for path, labels, values in zip(paths, best.indices.tolist(), best.values.tolist(), strict=True)
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


def judged(learner: "Learner", words: Sequence[str]) -> "tuple[list[str], Tensor]":
    """Return the images that can be read, and their probabilities; name the others."""
    import torch

    from daydream.data.decode import skipped
    from daydream.data.decode_pool import decode_all
    from daydream.data.images import ImageSet, Resident
    from daydream.learner.intake import paths_of

    listed = [line for line in sys.stdin.read().splitlines() if line.strip()] if "-" in words else []
    paths = paths_of([*(word for word in words if word != "-"), *listed])
    decoding = decode_all(paths, learner.taught.preprocessing.canvas)
    kept = [i for i in range(len(paths)) if i not in decoding.failures]
    if not kept:
        reason = f" ({paths[0]}: {decoding.failures[0]})" if paths else ""
        raise UserError(f"there is no image to judge in {' '.join(words[:3])}{reason}")
    if decoding.failures:
        log.warning("%s", skipped(paths, sorted(decoding.failures)))
    pixels = Resident(torch.from_numpy(decoding.pixels[kept]))
    images = ImageSet(pixels, torch.zeros(len(kept), dtype=torch.int64), learner.taught.names)
    return [paths[i] for i in kept], learner.judged(images)


def measure(
    model: ModelPath,
    folder: Annotated[Path, typer.Argument(help="folder of test images, one sub-folder per class")],
    as_json: Json = False,
    device: Device = "auto",
    max_pixels: MaxPixels = None,
) -> None:
    """Measure a model on test images: accuracy of each class and overall, and what was taken for what."""
    allow_pixels(max_pixels)
    report = loaded(model, device).test(folder)
    if as_json:
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
        return
    from daydream.cli.model_tables import report_table

    console().print(report_table(report), highlight=False)


def export(
    path: Annotated[Path, typer.Argument(help="a model file, or the folder of a run")],
    onnx: Annotated[Path | None, typer.Option(help="write network and head as ONNX (extra `onnx`)")] = None,
    safetensors: Annotated[
        Path | None,
        typer.Option(
            "--safetensors", "--out", "-o", help="write them as safetensors; of a run, RUN/network.safetensors"
        ),
    ] = None,
    method: Trusted = "",
) -> None:
    """Write network and head for other programs, without generators or exemplars: as ONNX or as safetensors."""
    from daydream.nets.resnet import parameter_count

    if path.is_dir():
        from daydream.experiment.config import check_no_code, config_from_json
        from daydream.experiment.experiment import Experiment
        from daydream.storage.run_folder import RunFolder

        run = RunFolder.open(path)
        check_no_code(run, method, "export")
        safetensors = safetensors if safetensors or onnx else path / "network.safetensors"
        classifier = Experiment(config_from_json(run.config)).classifier(run)
    else:
        classifier = loaded(path, "cpu").classifier
    if not (onnx or safetensors):
        raise UserError(f"say what {path} is to be written as: --onnx FILE or --safetensors FILE")
    check_targets(path, [target for target in (onnx, safetensors) if target is not None])
    for target, write in ((onnx, classifier.write_onnx), (safetensors, classifier.write_safetensors)):
        if target is not None:
            write(target)
            sys.stdout.write(f"{target}: {parameter_count(classifier.network):,} parameters, head included\n")


def check_targets(source: Path, targets: Sequence[Path]) -> None:
    """Refuse to write over what is exported, or one file over the other."""
    for target in targets:
        if target.exists() and target.samefile(source):
            raise UserError(f"{target} is the model itself, which would be lost: name another file")
    if len({target.resolve() for target in targets}) < len(targets):
        raise UserError(f"{targets[0]} cannot be both ONNX and safetensors: name two files")
