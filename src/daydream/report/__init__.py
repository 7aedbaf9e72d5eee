"""Runs to be looked at: one page of charts, a table for a paper or a terminal, pictures of features."""

import logging
from collections.abc import Sequence
from pathlib import Path

from daydream import atomic

log = logging.getLogger("daydream")


def write_own_page(folder: Path) -> Path | None:
    """Write a run's own page beside its result; return it."""
    return write_page([folder], folder / "report.html")


def write_page(folders: Sequence[Path], page: Path) -> Path | None:
    """Write a page about runs that are done; return it. What goes wrong here is only remarked."""
    from daydream.report.gather import read_runs
    from daydream.report.page import HOW, installed, render

    if not installed():
        runs = " ".join(map(str, folders))
        log.info("no %s, whose packages are not installed: %s, then daydream report %s", page.name, HOW, runs)
        return None
    try:
        atomic.write_text(page, render(read_runs(folders), {}))
    except Exception as error:
        log.warning("no %s: %s: %s", page.name, type(error).__name__, error)
        return None
    return page
