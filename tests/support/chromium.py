"""Headless Chromium, for tests and benchmarks of the page; run as a script, it gets one where there is none."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGE = "chromium-headless-shell"  # Debian's
DRAWN = "document.querySelectorAll('.plot').length === document.querySelectorAll('.plot .main-svg:first-child').length"
"""Whether every plot of the page is drawn: true at once in a page tall enough, others draw what comes near."""
TALL = {"width": 1360, "height": 12_000}


class NoChromium(Exception):
    """There is no Chromium here, none can be had, or it does not start."""


def launch(driver: Any, *more: str) -> Any:
    """Start the machine's Chromium, else playwright's, with more flags."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if not found and not Path(driver.chromium.executable_path).exists():
        raise NoChromium("there is no Chromium here: `python tests/support/chromium.py` gets one where it can")
    try:
        # --no-sandbox: root has none, and the page is our own
        return driver.chromium.launch(executable_path=found, args=["--no-sandbox", *more])
    except Exception as error:  # playwright's own kind, which cannot be named without importing it
        reason = str(error).splitlines()[0]
        raise NoChromium(f"Chromium does not start here (does it lack system libraries?): {reason}") from error


def starts() -> str:
    """Say why no Chromium starts here; nothing if one does."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        try:
            launch(driver).close()
        except NoChromium as reason:
            return str(reason)
    return ""


def fetch() -> None:
    """Let playwright download its own."""
    run([sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"])


def install() -> None:
    """Install Debian's, with the libraries it needs: for root alone, so in containers and on CI machines."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise NoChromium("apt-get is root's")
    run(["apt-get", "update", "-qq"])
    run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", PACKAGE])


def run(command: Sequence[str]) -> None:
    """Run a command that gets something, quietly."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoChromium(f"{command[0]}: {error}") from error
    if done.returncode:
        lines = (done.stderr + done.stdout).strip().splitlines()
        raise NoChromium(next((line for line in lines if line.startswith("E")), "failed"))


def main() -> None:
    """Get a Chromium that starts, by one way or the other; say in a line why there is none."""
    reason = starts()
    for way in (fetch, install):
        if reason:
            try:
                way()
                reason = starts()
            except NoChromium as error:
                reason = f"no Chromium can be had: {error}"
    if reason:
        print(f"tests in a browser will be skipped: {reason}")


if __name__ == "__main__":
    main()
