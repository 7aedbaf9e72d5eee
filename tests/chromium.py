"""Headless Chromium, for the tests and benchmarks of the page."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DRAWN = "document.querySelectorAll('.plot').length === document.querySelectorAll('.plot .main-svg:first-child').length"
"""Whether every plot of the page is drawn: true at once in a page tall enough, others draw what comes near."""
TALL = {"width": 1360, "height": 12_000}


class NoChromium(Exception):
    """There is no Chromium here, none can be fetched, or it does not start."""


def launch(driver: Any) -> Any:
    """Start playwright's Chromium, else the machine's; fetch playwright's where there is neither."""
    own = Path(driver.chromium.executable_path)
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if not own.exists() and not found:
        _fetch()
    try:
        # --no-sandbox: root has none, and the page is our own
        path = found if found and not own.exists() else None
        return driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
    except Exception as error:  # playwright's own kind, which cannot be named without importing it
        reason = str(error).splitlines()[0]
        raise NoChromium(f"Chromium does not start here (does it lack system libraries?): {reason}") from error


def _fetch() -> None:
    command = [sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    except subprocess.TimeoutExpired:
        raise NoChromium("there is no Chromium here, and fetching one took too long") from None
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.startswith("Error")]
        raise NoChromium(f"there is no Chromium here, and none can be fetched: {(lines or ['failed'])[0]}")
