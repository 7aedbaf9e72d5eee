"""The commands on results: report, compare. Nothing heavy is imported before one needs it."""

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from daydream import atomic
from daydream.cli.common import Json, console
from daydream.errors import UserError


class Format(StrEnum):
    html = "html"
    md = "md"
    latex = "latex"
    csv = "csv"


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("report")(report)
    app.command("compare")(compare)


AGAINST = "\0"
"""Stands for `--` between two sides, which the parser would swallow: no argument of a command can hold it."""


def with_sides(words: Sequence[str]) -> list[str]:
    """Return a command's words with the mark between the sides of `compare` in a form that the parser lets through."""
    return [AGAINST if word == "--" else word for word in words] if words[:1] == ["compare"] else list(words)


def compare(
    sides: Annotated[
        list[str],
        typer.Argument(metavar="A... -- B...", help="run folders, folders of runs, or results kept as JSON"),
    ],
    as_json: Json = False,
) -> None:
    """Say whether runs B are better than runs A: paired by class order and seed, with standard error and verdict.

    Runs of one class order count once in the standard error; under three orders nothing is decided.
    """
    from daydream.report.compare import compare as compared
    from daydream.report.compare import read_side

    if sides.count(AGAINST) != 1:
        raise UserError("put -- between the two sides: daydream compare A... -- B...")
    middle = sides.index(AGAINST)
    a, b = ([Path(name) for name in side] for side in (sides[:middle], sides[middle + 1 :]))
    found = compared(read_side(a, "A"), read_side(b, "B"))
    if as_json:
        sys.stdout.write(json.dumps(found.to_json()) + "\n")
        return
    from daydream.cli.tables import compared_table

    console().print(compared_table(found), highlight=False)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="folders of runs, finished or not")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="the file; by default report.html, in a single run's folder, or standard output for a table",
        ),
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="html: a page to look at; md, latex or csv: a table of means over seeds")
    ] = Format.html,
) -> None:
    """Compare runs: one page of charts that opens offline in any browser, or a table for a paper.

    Runs on different images get sections of their own. An unfinished run is shown as far as it has come.
    """
    from daydream.report.gather import read_runs

    if form is Format.html:
        from daydream.report.page import HOW, installed

        if not installed():
            raise UserError(f"the page needs jinja2 and plotly: {HOW}; --format md, latex and csv need neither")
        out = out or (runs[0] if len(runs) == 1 else Path()) / "report.html"
    found = read_runs(runs)
    check_out(out)
    if form is Format.html:
        from daydream.report.features import feature_charts
        from daydream.report.page import render

        text = render(found, feature_charts(found))
    else:
        from daydream.report.formats import as_text

        text = as_text(found, form)
    if out is None:
        sys.stdout.write(text)
        return
    try:
        atomic.write_text(out, text)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror or error}") from error
    sys.stdout.write(f"{out}\n")


def check_out(out: Path | None) -> None:
    """Refuse a file that cannot be written before anything is computed for it."""
    if out is None:
        return
    if out.is_dir():
        raise UserError(f"--out {out} is a folder; name a file in it")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}; make it, or choose another")
