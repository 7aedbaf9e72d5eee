"""The report's page of many runs: its size, and how long a browser takes to open it and to draw its charts.

    python benchmarks/report_page.py [--runs 30] [--repeat 7]

Runs as a full CIFAR-100 run leaves them: 11 tasks, two stages of 160 epochs each, 100 classes with a confusion matrix.
Needs the extra `report`, playwright and a Chromium. The page is read from disk, offline, in a new window each time.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from chromium import DRAWN, TALL, NoChromium, launch
from playwright.sync_api import sync_playwright
from written_runs import write_run

from daydream.report.gather import read_runs
from daydream.report.page import render

SCREEN = {"width": 1360, "height": 900}
ON_SCREEN = """[...document.querySelectorAll('.plot')].filter((plot) => plot.getBoundingClientRect().top < innerHeight)
    .every((plot) => plot.querySelector('.main-svg'))"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=7, help="timed openings of each, after one that is not timed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file, seconds = write_page(Path(folder), given.runs)
        try:
            browser = launch(driver)
        except NoChromium as reason:
            sys.exit(str(reason))
        size = f"{file.stat().st_size / 2**20:.2f} MB, made in {seconds:.1f} s"
        table = Table("what", "median s", "fastest – slowest", title=f"a page of {given.runs} runs: {size}")
        kinds = (("opened: all charts on the screen drawn", SCREEN, ON_SCREEN), ("all charts drawn", TALL, DRAWN))
        for name, window, done in kinds:
            times = [opening(browser, file, window, done) for _ in range(given.repeat + 1)][1:]
            spread = f"{min(times):.2f} – {max(times):.2f}"
            table.add_row(name, f"{statistics.median(times):.2f}", spread)
        browser.close()
    Console(width=120).print(table)


def write_page(folder: Path, count: int) -> tuple[Path, float]:
    """Write the runs, each with numbers of its own, and their page; return it and the seconds it took, runs written."""
    paths = []
    for run in range(count):
        matrix = tuple(tuple(50.123 + t - 0.1 * run for _ in range(t + 1)) for t in range(11))
        confusion = [[(7 * i + 13 * j + run) % 5 for j in range(100)] for i in range(100)]
        path, settings = folder / f"run{run}", {"seed": run}
        paths.append(write_run(path, matrix, settings, epochs=160, confusion=confusion, stages=("train", "imagine")))
    file, began = folder / "report.html", time.perf_counter()
    file.write_text(render(read_runs(paths), {}), encoding="utf-8")
    return file, time.perf_counter() - began


def opening(browser: Any, file: Path, window: dict[str, int], done: str) -> float:
    """Return the seconds from asking for the page until its charts are drawn."""
    page = browser.new_page(viewport=window)
    page.context.set_offline(True)
    began = time.perf_counter()
    page.goto(file.as_uri())
    page.wait_for_function(f"document.querySelector('.plot') && {done}")
    seconds = time.perf_counter() - began
    page.close()
    return seconds


if __name__ == "__main__":
    main()
