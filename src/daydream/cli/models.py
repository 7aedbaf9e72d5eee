"""The commands that look at a model file: classes, history, test, export."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from daydream.cli.common import Device, Json, MaxPixels, ModelPath, Trusted, allow_pixels, console
from daydream.errors import UserError
from daydream.learner import opening


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    for name, command in (("classes", classes), ("history", history), ("test", measure), ("export", export)):
        app.command(name)(command)


def classes(model: ModelPath, as_json: Json = False) -> None:
    """Show what a model knows: its classes, their accuracy after each lesson, and what would help it most."""
    learner = opening.load(model, device="cpu")
    if as_json:
        about = {
            "kind": learner.kind,
            "classes": [asdict(row) for row in learner.classes],
            "lessons": [asdict(record) for record in learner.history],
            "outlook": outlook(learner),
        }
        sys.stdout.write(json.dumps(about) + "\n")
        return
    from daydream.cli.model_tables import classes_table

    console().print(classes_table(learner, model), *([line] if (line := outlook(learner)) else []), highlight=False)


def outlook(learner: opening.Teachable) -> str:
    """Return how good a model is and what would help it, in a sentence; of one that cannot tell, nothing."""
    try:
        return learner.outlook().sentence
    except UserError:
        return ""


def history(model: ModelPath, as_json: Json = False) -> None:
    """Show what happened to a model: its lessons and changes, and how good it was after each."""
    learner = opening.load(model, device="cpu")
    if as_json:
        sys.stdout.write(json.dumps([{"what": record.what, **asdict(record)} for record in learner.history]) + "\n")
        return
    from daydream.cli.model_tables import history_table

    console().print(history_table(learner), highlight=False)


def measure(
    model: ModelPath,
    folder: Annotated[Path, typer.Argument(help="folder of test images, one sub-folder per class")],
    as_json: Json = False,
    device: Device = "auto",
    max_pixels: MaxPixels = None,
) -> None:
    """Measure a model on test images: accuracy of each class and overall, and what was taken for what."""
    allow_pixels(max_pixels)
    report = opening.load(model, device=device).test(folder)
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
        classifier = opening.load(path, device="cpu").classifier
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
