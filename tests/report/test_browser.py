"""The page in a real browser: headless Chromium. Its screenshots are kept in build/report/."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import DRAWN, TALL, NoChromium, launch
from tiny_runs import Watch, tiny_experiment
from written_runs import write_run

from daydream.report.features import feature_charts
from daydream.report.gather import read_runs
from daydream.report.page import render

pytestmark = pytest.mark.slow

pytest.importorskip("plotly")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

SHOTS = Path(__file__).parents[2] / "build" / "report"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser, or the reason why there is none."""
    with playwright.sync_playwright() as driver:
        try:
            chromium = launch(driver)
        except NoChromium as reason:
            pytest.skip(str(reason))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a small run that imagines and of an unfinished run of another data set."""
    folder = tmp_path_factory.mktemp("page")
    tiny_experiment("imagine").start(folder / "run", Watch())
    runs = read_runs([folder / "run", write_run(folder / "cut", finished=False), write_run(folder / "whole")])
    (folder / "report.html").write_text(render(runs, feature_charts(runs)), encoding="utf-8")
    return folder / "report.html"


def opened(browser: Any, file: Path, scheme: str) -> tuple[Any, list[str]]:
    """Open the page offline, tall enough that every chart is drawn; gather what the console complains of."""
    page = browser.new_page(viewport=TALL, color_scheme=scheme)
    page.context.set_offline(True)
    page.set_default_timeout(120_000)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_function(DRAWN)
    return page, wrong


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_a_browser(browser: Any, page_file: Path, scheme: str) -> None:
    page, wrong = opened(browser, page_file, scheme)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.locator("section.data").count() == 2
    assert page.locator("section.data").first.locator(".one .plot").count() >= 10

    first = "document.querySelector('.compare .plot').data.map((trace) => trace.visible)"
    assert page.evaluate(first) == [True]
    page.locator(".chip").first.click()
    assert page.evaluate(first) == [False]
    page.locator(".chip").first.click()

    facts = page.locator("section.data").nth(1).locator(".facts")
    assert "unfinished: 3 tasks done" in facts.inner_text()
    page.locator("select").select_option("1")
    assert "unfinished" not in facts.inner_text()
    page.wait_for_function(DRAWN)

    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{scheme}.png", full_page=True)
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") != scheme
    assert wrong == []
    page.close()
