"""`make docs`, its site in a real browser: links, console, search, light and dark. Screenshots go to build/docs/."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from chromium import NoChromium, launch
from documents import ROOT

pytestmark = pytest.mark.slow

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

SHOTS = ROOT / "build" / "docs"
SCREEN = {"width": 1360, "height": 900}
ASKED_FIRST = {
    "index": "Teach an image classifier new classes",
    "overview": "one model file that tells all classes apart",
    "own-images": "daydream learn",
    "results": "Does imagining help?",
    "reproducibility": "66.47",
    "add-a-method": "returns a list of stages",
}
"""Pages one click from the first, and what their first screen must say."""

SCROLLED = ("serve", "security")
"""Pages, with those of the notebook, whose long commands may need scrolling."""
CUT = """[...document.querySelectorAll("article pre")]
    .filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)"""


class Page(HTMLParser):
    """What a page links to, loads, and can be linked at."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("link", "script", "img"):
            self.loaded += [given[name] for name in ("href", "src") if name in given]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs` does, in a stand-in for its .venv that has this Python's packages."""
    folder = tmp_path_factory.mktemp("docs")
    for name in ("bin", "lib", "pyvenv.cfg"):
        (folder / "venv").mkdir(exist_ok=True)
        (folder / "venv" / name).symlink_to(Path(sys.prefix) / name)
    (folder / "venv" / ".docs").touch()
    done = subprocess.run(
        ["make", "docs", f"VENV={folder}/venv", f"SITE={folder}/site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


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


def opened(browser: Any, scheme: str) -> tuple[Any, list[str]]:
    """Return an offline page of the browser, and what its console will complain of."""
    page = browser.new_page(viewport=SCREEN, color_scheme=scheme)
    page.context.set_offline(True)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("requestfailed", lambda request: wrong.append(request.url))
    return page, wrong


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {file: Page(file) for file in site.rglob("*.html")}
    assert len(pages) > 40
    assert "overview.html" in pages[site / "index.html"].links  # an answer to "What does it do?", not a glossary
    for file, page in pages.items():
        for link in page.links + page.loaded:
            if re.match(r"(https?|data):", link):
                assert link not in page.loaded, f"{file.name} loads {link}"
                continue
            name, _, anchor = link.partition("#")
            place = (file.parent / name.split("?")[0]).resolve() if name else file
            assert place.is_file(), f"{file.name} links to {link}"
            assert not anchor or place.suffix != ".html" or anchor in pages[place].ids, f"{file.name} links to {link}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_asked_first_is_on_the_first_screen(browser: Any, site: Path, scheme: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page, wrong = opened(browser, scheme)
    page.goto((site / "index.html").as_uri())
    shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", shade)[:3])) < 384) == (scheme == "dark")
    for name, said in ASKED_FIRST.items():
        if name != "index":
            page.goto((site / "index.html").as_uri())
            page.locator(f"article a[href='{name}.html']").first.click()
        assert page.get_by_text(said).first.bounding_box()["y"] < SCREEN["height"], name
        page.screenshot(path=SHOTS / f"{name}-{scheme}.png")
    assert wrong == []
    page.close()


def test_every_page_opens_without_a_complaint_and_fits_its_screen(browser: Any, site: Path) -> None:
    page, wrong = opened(browser, "light")
    for file in sorted(site.rglob("*.html")):
        page.goto(file.as_uri())
        assert wrong == [], file.name
        assert page.evaluate("document.documentElement.scrollWidth") <= SCREEN["width"], file.name
        if file.parent.name != "notebook" and file.stem not in SCROLLED:
            assert page.evaluate(CUT) == [], file.name
    page.close()


def test_the_search_finds_a_word_offline(browser: Any, site: Path) -> None:
    page, wrong = opened(browser, "light")
    page.goto((site / "index.html").as_uri())
    page.get_by_placeholder("Search").fill("herding")
    page.keyboard.press("Enter")
    page.locator("#search-results a[href^='words.html']").first.wait_for()
    assert wrong == []
    page.close()
