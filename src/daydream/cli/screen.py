"""Where commands print for people: nothing they print of others' words is a command to the terminal."""

import os
import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from daydream.escapes import visible


class Screen(Console):
    """A console that shows control characters instead of sending them; its own colours come after that."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            own = segment.control is not None
            yield segment if own else Segment(visible(segment.text, keep="\n"), segment.style)


def console(stderr: bool = False) -> Screen:
    """Return a console as wide as the terminal, or wide enough for our tables where there is none."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else 160
    return Screen(stderr=stderr, width=width, markup=False)  # a path may have brackets in it
