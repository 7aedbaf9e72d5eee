"""What commands share: the console, options with one meaning everywhere, and how a person stops what trains."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daydream.cli.screen import console as console

if TYPE_CHECKING:
    from daydream.engine.display import StopSwitch

ModelPath = Annotated[Path, typer.Argument(help="a model file", show_default=False)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="show no progress")]
Trusted = Annotated[
    str, typer.Option(metavar="FILE.py:Class", help="of a run by a method of your own: the file that may be imported")
]
MaxPixels = Annotated[
    int | None, typer.Option(min=1, help="refuse pictures of more pixels; by default 67,108,864", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON on standard output")]


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


def allow_pixels(number: int | None) -> None:
    """Move the limit on a picture's pixels, for this process and those that decode for it."""
    if number is not None:
        os.environ["DAYDREAM_MAX_PIXELS"] = str(number)


def free_folder(parent: Path, name: str) -> Path:
    """Return a folder that does not exist yet: NAME, NAME-2, NAME-3, ..."""
    candidates = (parent / (name if i == 1 else f"{name}-{i}") for i in range(1, 10_000))
    return next(path for path in candidates if not path.exists())
