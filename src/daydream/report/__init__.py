"""Reports: runs as one page to look at, or as a table for a paper."""

import logging
from pathlib import Path

from daydream import atomic

log = logging.getLogger("daydream")


def write_own_page(folder: Path) -> Path | None:
    """Write a run's own page beside its result; return it. The run is done: what goes wrong here is only remarked."""
    from daydream.report.gather import read_runs
    from daydream.report.page import HOW, installed, render

    if not installed():
        log.info("no report.html, whose packages are not installed: %s, then daydream report %s", HOW, folder)
        return None
    page = folder / "report.html"
    try:
        atomic.write_text(page, render(read_runs([folder]), {}))
    except Exception as error:
        log.warning("no report.html: %s: %s", type(error).__name__, error)
        return None
    return page
