"""What commands share: the console, options with one meaning everywhere, and how a person stops what trains."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from daydream.engine.display import StopSwitch

Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="show no progress")]
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON on standard output")]


def console(stderr: bool = False) -> Console:
    """Return a console as wide as the terminal, or wide enough for our tables where there is none."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else 160
    return Console(stderr=stderr, width=width, markup=False)  # a path may have brackets in it


@contextmanager
def stoppable(then: str) -> "Iterator[StopSwitch]":
    """Let Ctrl-C and SIGTERM stop what trains inside in good order; `then` says how to go on."""
    from daydream.engine import Interrupted
    from daydream.engine.display import stop_switch

    with stop_switch() as switch:
        try:
            yield switch
        except Interrupted as stop:
            sys.stderr.write(f"stopped; {then}\n")
            raise typer.Exit(143 if switch.signal == signal.SIGTERM else 130) from stop


def free_folder(parent: Path, name: str) -> Path:
    """Return a folder that does not exist yet: NAME, NAME-2, NAME-3, ..."""
    candidates = (parent / (name if i == 1 else f"{name}-{i}") for i in range(1, 10_000))
    return next(path for path in candidates if not path.exists())
