"""The whole story in a real browser, headless Chromium. Its screenshots are kept in build/serve/."""

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import NoChromium, launch
from serving import TINY, listening, zipped

pytestmark = pytest.mark.slow
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
httpx = pytest.importorskip("httpx")

SHOTS = Path(__file__).parents[2] / "build" / "serve"
WIDE, PHONE = {"width": 1240, "height": 900}, {"width": 390, "height": 844}
CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser, or the reason why there is none."""
    with playwright.sync_playwright() as driver:
        try:
            chromium = launch(driver, *CAMERA)
        except NoChromium as reason:
            pytest.skip(str(reason))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of a folder of models; a new one for each test."""
    with listening(tmp_path_factory.mktemp("models")) as found:
        yield found


def opened(browser: Any, address: str, name: str, scheme: str = "light", size: Any = WIDE) -> tuple[Any, list[str]]:
    """Open the page on a new model with a tiny network."""
    httpx.post(f"{address}/api/models", json={"name": name, **TINY}, timeout=60).raise_for_status()
    page, wrong = visited(browser, address, scheme, size)
    page.locator("#model").select_option(name)
    drawn(page)
    return page, wrong


def visited(browser: Any, address: str, scheme: str = "light", size: Any = WIDE) -> tuple[Any, list[str]]:
    """Open the page; gather what the console complains of, and what is asked of anyone else."""
    page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
    page.set_default_timeout(20_000)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request", lambda sent: None if sent.url.startswith((address, "blob:", "data:")) else wrong.append(sent.url)
    )
    page.goto(address)
    return page, wrong


def drawn(page: Any) -> None:
    """Wait until the page has drawn what was chosen: until then it may take the focus from what goes away."""
    page.wait_for_selector("#teach")
    page.wait_for_selector("main:not([aria-busy])")


def shot(page: Any, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.wait_for_timeout(300)  # pictures that are drawn late
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def until(page: Any, what: str) -> None:
    """Wait for something to be true; the page's own policy forbids what playwright waits with."""
    last = time.monotonic() + 30
    while not page.evaluate(what):
        assert time.monotonic() < last, f"{what}; {page.locator('#said').inner_text()}"
        page.wait_for_timeout(50)


def taught(page: Any, classes: int) -> None:
    """Teach what waits, and wait for what came of it."""
    page.locator("#teach:enabled").click()
    until(page, f"document.querySelectorAll('#outcome tbody tr').length === {classes}")


def send_folder(page: Any, folder: Path) -> None:
    page.locator("#classes .drop input[type=file]").first.set_input_files(folder)
    page.wait_for_selector("#teach:enabled")


DROP = """([selector, name, content]) => {
  const moved = new DataTransfer();
  moved.items.add(new File([Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], name));
  const drop = new DragEvent("drop", { dataTransfer: moved, bubbles: true, cancelable: true });
  document.querySelector(selector).dispatchEvent(drop);
}"""


def drop(page: Any, selector: str, name: str, content: bytes) -> None:
    page.evaluate(DROP, [selector, name, base64.b64encode(content).decode()])


def in_dialog(page: Any, text: str, yes: str, choice: str = "") -> None:
    """Answer the dialog that is open; another may follow at once."""
    dialog = page.wait_for_selector("dialog")
    if text:
        dialog.query_selector("input").fill(text)
    if choice:
        texts = [option.inner_text() for option in dialog.query_selector_all("option")]
        dialog.query_selector("select").select_option(next(one for one in texts if one.startswith(choice)))
    dialog.query_selector(f"button:text-is('{yes}')").click()
    until_gone(page, dialog)


def until_gone(page: Any, node: Any) -> None:
    last = time.monotonic() + 20
    while node.evaluate("(node) => node.isConnected"):
        assert time.monotonic() < last, node.inner_text()
        page.wait_for_timeout(20)


def test_the_story(browser: Any, address: str, photos: Path, named: list[str]) -> None:
    page, wrong = opened(browser, address, "shapes")
    send_folder(page, photos / "first")
    assert "16 pictures of 2 new classes" in page.locator("#lesson").inner_text()
    assert page.locator(".class").count() == 2
    taught(page, 2)

    page.get_by_role("tab", name="Try").click()
    page.locator("#try input[type=file]").first.set_input_files(sorted((photos / "test").rglob("*.png"))[:2])
    page.wait_for_selector(".answer >> nth=1")
    assert page.locator(".answer").first.locator("meter").count() == 2
    assert page.locator(".answer").first.locator("figure img").count() == 6
    shot(page, "try")

    page.get_by_role("tab", name="Classes").click()
    send_folder(page, photos / "second")
    taught(page, 3)
    before = page.locator("#outcome tbody tr").first.locator("td").all_inner_texts()
    assert before[0].endswith("%")
    assert before[1].endswith("%")
    shot(page, "light")

    page.get_by_role("tab", name="History").click()
    page.wait_for_selector("#history svg")
    assert page.locator("#history tbody tr").count() == 2
    shot(page, "history")
    page.get_by_role("tab", name="Classes").click()
    page.locator("#undo").click()
    page.wait_for_selector("#outcome", state="detached")
    until(page, "document.querySelector('#lesson').innerText.includes('8 pictures of 1 new class')")
    taught(page, 3)

    other = page.context.new_page()  # a second tab, which hears of it when it is looked at
    other.goto(address)
    other.locator("#model").select_option("shapes")
    until(other, "document.querySelectorAll('.class').length === 3")

    first = page.locator(f"article[aria-label='class {named[0]}']")
    first.get_by_role("button", name=f"picture 1 of {named[0]}", exact=True).click()
    page.get_by_role("toolbar").get_by_role("button", name="Move").click()
    in_dialog(page, "", "Move", named[1])
    until(page, f"document.querySelector(\"article[aria-label='class {named[0]}']\").innerText.includes('7 learnt')")
    first.get_by_role("button", name=f"picture 2 of {named[0]}", exact=True).click()
    page.get_by_role("toolbar").get_by_role("button", name="Delete").click()
    in_dialog(page, "", "Delete")
    until(page, f"document.querySelector(\"article[aria-label='class {named[0]}']\").innerText.includes('6 learnt')")
    other.evaluate("dispatchEvent(new Event('focus'))")
    until(other, f"document.querySelector(\"article[aria-label='class {named[1]}']\").innerText.includes('9 learnt')")
    other.close()
    first.get_by_role("button", name="Rename").click()
    in_dialog(page, EVIL, "Rename")
    page.get_by_role("heading", name=EVIL).wait_for()
    assert page.locator(".class img[onerror]").count() == 0
    page.locator(f"article[aria-label='class {named[2]}']").get_by_role("button", name="Merge").click()
    in_dialog(page, "", "Merge", named[1])
    until(page, f"document.querySelector(\"article[aria-label='class {named[1]}']\").innerText.includes('17 learnt')")
    page.locator(f"article[aria-label='class {named[1]}']").get_by_role("button", name="Forget").click()
    in_dialog(page, "", "Forget")
    until(page, "document.querySelectorAll('.class').length === 1")

    page.get_by_role("tab", name="Export").click()
    for name in ("ONNX", "safetensors", "The model file"):
        with page.expect_download() as came:
            page.get_by_role("button", name=f"Download {name}").click()
        assert came.value.path().stat().st_size > 1000
    assert wrong == []
    page.close()


def test_from_an_empty_folder_to_forgetting(browser: Any, tmp_path: Path, photos: Path, named: list[str]) -> None:
    """A model made in the page whose network trains without anything against forgetting."""
    with listening(tmp_path) as address:
        page, wrong = visited(browser, address)
        page.locator("#classes").get_by_role("button", name="New model").click()
        in_dialog(page, "garden", "Make it")
        page.get_by_role("dialog", name="How is it to learn?").wait_for()
        in_dialog(page, "", "Make it", "finetune:")
        send_folder(page, photos / "first")
        assert "160 epochs, about" in page.locator("#lesson").inner_text()
        epochs(page, 3)
        taught(page, 2)

        send_folder(page, photos / "second")
        epochs(page, 10_000)
        page.locator("#teach:enabled").click()
        until(page, "document.querySelector('#lesson').innerText.includes('epoch 2 of')")
        page.get_by_role("button", name="Cancel").click()
        until(page, "document.querySelector('#lesson').innerText.includes('the model is as it was before')")
        epochs(page, 8)
        taught(page, 3)
        rows = [row.locator("td").all_inner_texts() for row in page.locator("#outcome tbody tr").all()]
        falls = [int(was[:-2]) - int(now[:-2]) for was, now, _ in rows[:2]]
        assert max(falls) > 0, rows
        assert page.locator("#outcome td.worse").count() == sum(fall > 0 for fall in falls)
        shot(page, "forgetting")

        page.get_by_role("tab", name="Try").click()
        page.locator("#try input[type=file]").first.set_input_files(next((photos / "test").rglob("*.png")))
        page.wait_for_selector(".answer")
        assert "No nearest pictures: this model's network changes" in page.locator(".answer").inner_text()
        page.get_by_role("tab", name="Mend").click()
        until(page, "document.querySelector('#mend').innerText.includes('Only the exact learner')")
        page.get_by_role("tab", name="Classes").click()
        drawn(page)
        page.locator("#undo").focus()
        page.keyboard.press("Enter")
        until(page, "document.querySelector('#lesson').innerText.includes('8 pictures of 1 new class')")
        until(page, "document.activeElement !== document.body")
        assert wrong == []
        page.close()


def epochs(page: Any, count: int) -> None:
    page.locator("#epochs").fill(str(count))
    page.keyboard.press("Tab")
    until(page, f"document.querySelector('#lesson').innerText.includes('{count} epochs, about')")


def test_pictures_that_are_not_kept(browser: Any, tmp_path: Path, photos: Path) -> None:
    with listening(tmp_path, keep=False) as address:
        page, wrong = opened(browser, address, "shy")
        send_folder(page, photos / "first")
        taught(page, 2)
        assert "Pictures are not kept" in page.locator("#notices").inner_text()
        assert page.locator(".class").first.inner_text().count("Its pictures are not kept.") == 1
        page.get_by_role("tab", name="Try").click()
        page.locator("#try input[type=file]").first.set_input_files(next((photos / "test").rglob("*.png")))
        page.wait_for_selector(".answer .absent")
        page.get_by_role("tab", name="Classes").click()
        send_folder(page, photos / "second")
        taught(page, 3)
        page.locator("#undo").click()
        until(page, "document.querySelector('#said').innerText.includes('were not kept')")
        assert page.locator(".class").count() == 2
        assert wrong == []
        page.close()


def test_mending_by_keys(browser: Any, address: str, photos: Path, named: list[str]) -> None:
    page, wrong = opened(browser, address, "keys", "dark", PHONE)
    send_folder(page, photos / "first")
    page.locator("#classes .drop input[type=file]").nth(2).set_input_files(sorted((photos / "pile").iterdir())[:3])
    until(page, "document.querySelector('#classes').innerText.includes('(3 here)')")
    taught(page, 2)
    page.get_by_role("tab", name="Mend").focus()
    page.keyboard.press("Enter")
    for left in (3, 2, 1):
        until(page, f"document.querySelector('#mend').innerText.includes('What is this? {left} to go')")
        page.keyboard.press("1")
    until(page, "document.querySelector('#mend').innerText.includes('All of these are labelled')")
    page.get_by_role("tab", name="Classes").click()
    until(page, "document.querySelector('#lesson').innerText.includes('3 pictures of 1 known class')")
    pictures = sorted((photos / "second" / named[2]).iterdir())
    drop(
        page, ".drop", "more.zip", zipped({f"pets/{named[2]}/{path.name}": path.read_bytes() for path in pictures[:4]})
    )
    until(page, "document.querySelector('#lesson').innerText.includes('7 pictures of 1 new and 1 known classes')")
    drop(page, f"article[aria-label='class {named[2]}']", "one.png", pictures[4].read_bytes())
    until(page, "document.querySelector('#lesson').innerText.includes('8 pictures')")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it is wider than a phone"
    shot(page, "phone-dark")
    page.set_viewport_size(WIDE)
    shot(page, "dark")
    assert wrong == []
    page.close()


def test_what_a_screen_reader_finds(browser: Any, address: str, photos: Path) -> None:
    """Every button, field and picture has a name; tabs are moved through by arrows."""
    page, wrong = opened(browser, address, "heard")
    send_folder(page, photos / "first")
    nameless = """[...document.querySelectorAll('button, select, input:not([hidden]), progress, meter')].filter(
        (e) => !e.hidden && !(e.innerText || e.ariaLabel || e.labels?.length || e.title)).map((e) => e.outerHTML)"""
    page.locator("#tab-classes").focus()
    for _ in range(5):
        assert page.evaluate(nameless) == []
        page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-classes"
    assert page.locator("img:not([alt])").count() == 0
    page.goto(f"{address}/docs.html")
    page.wait_for_selector("article")
    assert page.locator("article").count() > 15
    shot(page, "api")
    assert wrong == []
    page.close()


def test_what_was_begun_stays_when_the_page_is_drawn_anew(browser: Any, address: str, photos: Path) -> None:
    """Someone types a name and a number, looks for pictures in another window, and comes back."""
    page, wrong = opened(browser, address, "begun")
    adapting = {"name": "other", "method": "finetune", **TINY}
    httpx.post(f"{address}/api/models", json=adapting, timeout=60).raise_for_status()
    page.reload()
    page.locator("#model").select_option("other")
    drawn(page)
    send_folder(page, photos / "first")
    drawn(page)
    epochs(page, 7)
    field = page.get_by_placeholder("name of a new class")
    field.fill("hedgehog")
    wall = page.query_selector(".class")
    page.evaluate("dispatchEvent(new Event('focus'))")
    until_gone(page, wall)
    drawn(page)
    assert field.input_value() == "hedgehog"
    assert page.evaluate("document.activeElement.placeholder") == "name of a new class"
    assert page.locator("#epochs").input_value() == "7"
    assert "7 epochs, about" in page.locator("#lesson").inner_text()
    page.locator("#model").select_option("begun")
    page.wait_for_selector(".class", state="detached")
    drawn(page)
    assert field.input_value() == ""
    assert wrong == []
    page.close()


def test_a_burst_of_the_camera(browser: Any, address: str) -> None:
    page, wrong = opened(browser, address, "camera")
    page.get_by_placeholder("name of a new class").fill("test card")
    page.get_by_role("button", name="Use the camera").click()
    until(page, "document.querySelector('video')?.videoWidth > 0")
    page.get_by_role("button", name="Take 20 pictures").click()
    page.get_by_role("article", name="class test card").wait_for()
    until(page, "document.querySelector('#lesson').innerText.includes('1 new class')")
    assert wrong == []
    page.close()
