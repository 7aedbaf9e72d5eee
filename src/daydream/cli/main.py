"""The command `daydream`. Nothing heavy is imported before a command needs it."""

import contextlib
import io
import json
import logging
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from daydream import __version__
from daydream.cli import cache, learn, mend, models, predict, reproduce, results, run, serve
from daydream.cli.common import Json, Quiet, Trusted, console, free_folder
from daydream.cli.flags import HELP_ALL
from daydream.errors import UserError
from daydream.escapes import visible

log = logging.getLogger("daydream")
RunPath = Annotated[Path, typer.Argument(help="folder of a run")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line: a user's mistake is one line on standard error and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="surrogateescape")  # a file's name need not be valid in any encoding
    show_notes(quiet=bool({"--quiet", "-q", "--json"} & set(words)))
    try:
        with with_others(words):
            shown = results.with_sides(["--help" if word == HELP_ALL else word for word in words])
            code = build(words)(args=shown, prog_name="daydream", standalone_mode=False)
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
        code = fail(foreign_option(words, error) or error.format_message())
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


def foreign_option(words: Sequence[str], error: Exception) -> str | None:
    """Say whose an option is that the parser does not know, where it is a setting of another method or data set."""
    from daydream.cli.foreign import explained

    option = getattr(error, "option_name", None)
    return explained(words, option) if option else None


def fail(message: str) -> int:
    sys.stderr.write(f"daydream: {visible(' '.join(message.split()))}\n")
    return 2


def build(words: Sequence[str]) -> typer.Typer:
    """Return the app; the flags of some commands depend on what they are given."""
    app = typer.Typer(
        help="Class-incremental learning that imagines its past.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(top)
    run.register(app, words)
    for command in (list_runs, show, look, methods, datasets, demo):
        app.command("list" if command is list_runs else command.__name__)(command)
    learn.register(app, words)
    models.register(app)
    predict.register(app)
    mend.register(app)
    results.register(app)
    serve.register(app)
    cache.register(app)
    reproduce.register(app, words)
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
    from daydream.experiment.naming import summary_of
    from daydream.report.run_tables import print_run
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
    method: Trusted = "",
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
    from daydream.experiment.config import make_config
    from daydream.experiment.demo import RUNS
    from daydream.experiment.experiment import Experiment
    from daydream.report import write_page
    from daydream.report.run_tables import comparison_table, write_table
    from daydream.storage.run_folder import RunFolder

    parent = out or free_folder(Path("runs"), "demo")
    finished = []
    for name, values in RUNS.items():
        shared = values["run"].get("base_from")
        given = values["run"] | ({"base_from": str(parent / shared)} if shared else {})
        experiment, folder = Experiment(make_config(**(values | {"run": given}))), parent / name
        result = run.train(partial(experiment.start, folder), folder, quiet, as_json=False, tables=False)
        write_table(RunFolder(folder))
        finished.append((name, result, folder))
    console().print(comparison_table(finished), highlight=False)
    page = write_page([folder for _, _, folder in finished], parent / "report.html")
    if page is not None:
        console().print(f"all five in one page of charts: {page}", highlight=False, soft_wrap=True)
