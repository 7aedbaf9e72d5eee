"""The command `daydream`. Nothing heavy is imported before a command needs it."""

import contextlib
import io
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from daydream import __version__
from daydream.cli import cache as cli_cache
from daydream.cli import flags
from daydream.cli import models as cli_models
from daydream.cli import results as cli_results
from daydream.cli.models import Json, Quiet
from daydream.cli.screen import console
from daydream.errors import UserError
from daydream.escapes import visible

log = logging.getLogger("daydream")
LONG = 20_000
"""Steps of a run that earn back the minute that compilation takes on a CPU, many times over."""

RunPath = Annotated[Path, typer.Argument(help="folder of a run")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line: a user's mistake is one line on standard error and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="surrogateescape")  # a file's name need not be valid in any encoding
    show_notes(quiet=bool({"--quiet", "-q", "--json"} & set(words)))
    try:
        with with_others(words):
            code = build(words)(args=words, prog_name="daydream", standalone_mode=False)
        sys.stdout.flush()
    except UserError as error:
        code = fail(str(error))
    except OSError as error:  # of the system: a full disk, a name too long, a folder that may not be read
        code = fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (typer.Abort, KeyboardInterrupt):
        sys.stderr.write("stopped\n")
        code = 130
    except Exception as error:  # the parser's own errors, whichever class this typer gives them
        if not hasattr(error, "format_message"):
            raise
        code = fail(error.format_message())
    sys.exit(code if isinstance(code, int) else 0)


def with_others(words: Sequence[str]) -> contextlib.AbstractContextManager[None]:
    """Join the processes this one was started beside by `torchrun`, if it was."""
    if "LOCAL_RANK" not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
        return contextlib.nullcontext()
    from daydream.engine import distributed

    return distributed.joined(words[:1] in (["run"], ["resume"]))


class Notes(logging.Handler):
    """Shows what the package has to remark (a resized pile, a skipped file) as lines on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(f"note: {visible(record.getMessage())}\n")


def show_notes(quiet: bool) -> None:
    """Let remarks reach the user; a quiet command shows warnings alone."""
    log.handlers = [Notes()]
    log.setLevel(logging.WARNING if quiet else logging.INFO)


def fail(message: str) -> int:
    sys.stderr.write(f"daydream: {visible(' '.join(message.split()))}\n")
    return 2


def build(words: Sequence[str]) -> typer.Typer:
    """Return the app; the flags of `run` depend on the method and the data set it is given."""
    app = typer.Typer(
        help="Class-incremental learning that imagines its past.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(top)
    app.command("run")(run_command(words[1:]) if words[:1] == ["run"] else run)
    for command in (resume, list_runs, show, look, methods, datasets, demo):
        app.command("list" if command is list_runs else command.__name__)(command)
    cli_models.register(app)
    cli_results.register(app)
    cli_cache.register(app)
    return app


def show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"daydream {__version__}\n")
        raise typer.Exit


def top(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Class-incremental learning that imagines its past."""


def run_command(words: Sequence[str]) -> Any:
    """Return the command `run` with the flags of the chosen data set and method."""
    from daydream.components.carried import component_settings
    from daydream.data import source
    from daydream.experiment.config import RunSettings
    from daydream.methods import load_method

    data, method = flags.given(words, "--data", "shapes"), flags.given(words, "--method", "replay")
    sections = [
        flags.Section("run", "The run", RunSettings),
        flags.Section("data", f"The data set {data}", source(data).Settings),
        flags.Section("method", f"The method {method}", load_method(method).Settings),
    ]
    titles = {"parts": "Parts that most methods can carry", "imagination": "Imagination", "pile": "The unlabelled pile"}
    carried = component_settings(load_method(method))
    sections += [flags.Section(key, titles[key], settings) for key, settings in carried.items()]
    return flags.command(sections, run)


def run(
    *,
    out: Annotated[str, typer.Option(help="folder of the run; by default a new one under runs/")] = "",
    orders: Annotated[
        int | None,
        typer.Option(
            help="a run for each of the first N class orders, in OUT/order-1, ...: the paper's three for cifar100, "
            "elsewhere its default, seed:1, seed:2, ...; stopped, the same command goes on",
            metavar="N",
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option(help="a run for each of these seeds, in OUT/seed-1, ...", metavar="N,N,...")
    ] = "",
    together: Annotated[
        bool,
        typer.Option("--together", help="train the runs of --orders and --seeds side by side, to fill one GPU"),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the whole plan and stop")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    values: Annotated[dict[str, Any] | None, typer.Option(hidden=True, parser=json.loads)] = None,
) -> None:
    """Train a method through all tasks of a stream. `--method NAME --help` shows that method's settings too."""
    from daydream.cli.tables import plan_table
    from daydream.engine.distributed import team
    from daydream.experiment.config import make_config, without_effect
    from daydream.experiment.experiment import Experiment
    from daydream.experiment.naming import method_name

    assert values is not None
    config = make_config(**values)
    if idle := without_effect(config):
        log.warning("%s: no effect, as nothing in this run uses it", " ".join(idle))
    if orders is not None or seeds or together:
        from daydream.cli.together import Wanted, run_members

        run_members(config, Wanted(orders, seeds, together), out, dry_run, quiet, as_json)
        return
    with team().in_turn():
        experiment = Experiment(config)
    if experiment.hardware.could_be_faster and experiment.num_steps >= LONG:
        log.info("a long run for a CPU: --precision bf16 --compile takes about two thirds of the time on this one")
    if dry_run:
        from daydream.cli.progress import headline
        from daydream.experiment import base_task

        if config.run.base_from:
            base_task.read(experiment, Path(config.run.base_from))
        console().print(headline(experiment), plan_table(experiment), sep="\n", highlight=False)
        return
    chosen = experiment.config.run
    name = f"{chosen.data}-{method_name(chosen.method).replace('.py:', '-')}-seed{chosen.seed}"
    folder = Path(out) if out else free_folder(Path("runs"), name)
    train(lambda progress: experiment.start(folder, progress), folder, quiet, as_json)


def free_folder(parent: Path, name: str) -> Path:
    """Return a folder that does not exist yet: NAME, NAME-2, NAME-3, ..."""
    candidates = (parent / (name if i == 1 else f"{name}-{i}") for i in range(1, 10_000))
    return next(path for path in candidates if not path.exists())


def train(start: Any, folder: Path, quiet: bool, as_json: bool) -> dict[str, Any]:
    """Train with progress and signals in place; print the result."""
    from daydream.cli.progress import make_progress
    from daydream.cli.tables import print_run
    from daydream.engine import Interrupted
    from daydream.engine.distributed import team
    from daydream.experiment.progress import stop_switch
    from daydream.report import write_own_page
    from daydream.storage.run_folder import RunFolder, resume_command

    screen = console()
    with stop_switch() as switch:
        progress = make_progress(switch, console(stderr=True) if as_json else screen, quiet)
        try:
            result: dict[str, Any] = start(progress)
        except Interrupted as stop:
            progress.close()
            sys.stderr.write(f"stopped; go on with: {resume_command(folder)}\n")
            raise typer.Exit(143 if switch.signal == signal.SIGTERM else 130) from stop
        finally:
            progress.close()
    if not team().leads:
        return result
    page = write_own_page(folder)
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
    elif not quiet:
        lines = [f"run: {folder}", *([f"report: {page}"] if page else [])]
        print_run(screen, RunFolder(folder), *lines)
    return result


def resume(run: RunPath, quiet: Quiet = False, as_json: Json = False) -> None:
    """Go on with a run that was stopped or killed, from its last checkpoint."""
    from daydream.engine.distributed import team
    from daydream.experiment.config import check_importing, config_from_json
    from daydream.experiment.experiment import Experiment
    from daydream.storage.run_folder import RunFolder

    folder = RunFolder.open(run)
    check_importing(folder)
    if folder.result is not None:
        sys.stderr.write(f"{run} is finished already\n")
    with team().in_turn():
        experiment = Experiment(config_from_json(folder.config))
    train(lambda progress: experiment.resume(folder, progress), run, quiet, as_json)


def list_runs(
    folder: Annotated[Path, typer.Argument(help="where to look")] = Path("runs"), as_json: Json = False
) -> None:
    """List the runs in a folder."""
    from daydream.cli.tables import list_table, summary_or_none
    from daydream.storage.run_folder import find_runs

    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give the folder your runs are in")
    runs = [(run, row) for run in find_runs(folder) if (row := summary_or_none(run))]
    if as_json:
        sys.stdout.write(json.dumps([row for _, row in runs]) + "\n")
    else:
        console().print(list_table(runs) if runs else f"no run in {folder}", highlight=False)


def show(run: RunPath, as_json: Json = False) -> None:
    """Show a run: its settings, accuracy after each task, averages, and the command that repeats it."""
    from daydream.cli.tables import print_run
    from daydream.experiment.naming import summary_of
    from daydream.storage.run_folder import RunFolder

    folder = RunFolder.open(run)
    if as_json:
        sys.stdout.write(json.dumps(folder.result or summary_of(folder)) + "\n")
    else:
        print_run(console(), folder)


def look(
    run: RunPath,
    classes: Annotated[list[str] | None, typer.Option("--class", help="a class to look at; may be repeated")] = None,
    task: Annotated[
        int | None, typer.Option(help="look at the first classes of this task; by default of task 1")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="the picture; by default RUN/look.png")] = None,
    method: cli_models.Trusted = "",
    as_json: Json = False,
) -> None:
    """Look at what a run's generators imagine: a t-SNE picture per class beside its real images, and numbers."""
    from daydream.cli.tables import look_table
    from daydream.report.look import look_at

    found = look_at(run, classes or [], task, out or run / "look.png", method)
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        console().print(look_table(found), highlight=False)


def methods(as_json: Json = False) -> None:
    """List the methods."""
    from daydream.methods import METHODS

    names_and_lines({name: line for name, (_, line) in METHODS.items()}, as_json, "daydream run --method NAME --help")


def datasets(as_json: Json = False) -> None:
    """List the data sets."""
    from daydream.data import SOURCES

    names_and_lines({name: line for name, (_, line) in SOURCES.items()}, as_json, "daydream run --data NAME --help")


def names_and_lines(lines: dict[str, str], as_json: bool, hint: str) -> None:
    if as_json:
        sys.stdout.write(json.dumps(lines) + "\n")
        return
    width = max(map(len, lines))
    for name, line in lines.items():
        sys.stdout.write(f"{name:<{width}}  {line}\n")
    sys.stdout.write(f"settings of one: {hint}\n")


def demo(
    out: Annotated[Path | None, typer.Option(help="folder of the runs; by default a new one under runs/")] = None,
    quiet: Quiet = False,
) -> None:
    """Run five methods on the embedded data set, in a few minutes on two CPU cores, and compare them."""
    from daydream.cli.tables import comparison_table
    from daydream.experiment.config import make_config
    from daydream.experiment.demo import RUNS
    from daydream.experiment.experiment import Experiment

    parent = out or free_folder(Path("runs"), "demo")
    finished = []
    for name, values in RUNS.items():
        shared = values["run"].get("base_from")
        run = values["run"] | ({"base_from": str(parent / shared)} if shared else {})
        experiment = Experiment(make_config(**(values | {"run": run})))
        folder = parent / name
        result = train(lambda progress, e=experiment, f=folder: e.start(f, progress), folder, quiet, as_json=False)
        finished.append((name, result, folder))
    console().print(comparison_table(finished), highlight=False)
