"""The pages as a reader meets them: links that lead somewhere, short sentences, few words, a notebook in order."""

import re
from pathlib import Path

import pytest
from documents import PAGES, ROOT, text
from prose import FENCED, plain, sentences, words

from daydream.methods import METHODS

READ = [page for page in PAGES if not page.startswith("docs/notebook/") and page != "docs/api.md"]
"""All but the notebook, which keeps the words of its day, and the API reference, which is made of docstrings."""
LONGEST = 35
MOST = 12_000
PRIVATE = r"\b(guests?|company|aside|moved|beside|chance|manner)\b"
"""Words of ours for things the field has words for."""
HEADINGS = ["Idea", "Equations", "Settings", "Deviations", "Command", "Numbers"]
"""Of each method, in this order."""


def anchors(page: Path) -> list[str]:
    """Return the anchors of a page's headings, as GitHub makes them: in small letters, without punctuation."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES)
def test_links(page: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", FENCED.sub("", text(page))):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        place = (ROOT / page).parent / file if file else ROOT / page
        assert place.is_file(), f"{page} links to {target}"
        assert not anchor or place.suffix != ".md" or anchor in anchors(place), f"{page} links to {target}"


def prose(page: str) -> str:
    """Return a page's text, without the table of rooms: that is a list of names, not of sentences."""
    return re.sub(r"^## Rooms$.*?^(?=## )", "", text(page), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", READ)
def test_sentences_are_short_and_in_the_words_of_the_field(page: str) -> None:
    long = [sentence for sentence in sentences(prose(page)) if len(words(sentence)) > LONGEST]
    assert not long, "\n".join(long)
    assert not re.findall(PRIVATE, re.sub(r"`[^`]*`", "", plain(prose(page))), flags=re.IGNORECASE)


def test_the_pages_can_be_read_in_an_hour() -> None:
    counts = {page: len(words(plain(text(page)))) for page in READ}
    assert sum(counts.values()) <= MOST, counts


def test_every_method_is_told_under_the_same_headings_and_has_its_row() -> None:
    page = text("docs/methods.md")
    told = dict(zip(*[iter(re.split(r"^## (.+)$", page, flags=re.MULTILINE)[1:])] * 2, strict=True))
    assert {"Numbers", *METHODS} == set(told)
    for name in METHODS:
        assert re.findall(r"^\*\*(\w+)\.\*\*", told[name], flags=re.MULTILINE) == HEADINGS, name
        assert f"--method {name} " in told[name], name
        assert len(words(plain(told[name]))) <= 120, name
        assert f"| `{name}` |" in told["Numbers"], name


def test_the_first_page_leads_to_all_that_is_asked_first() -> None:
    for page in ("README.md", "docs/index.md"):
        for name in ("own-images", "results", "reproducibility", "add-a-method"):
            assert f"{name}.md)" in text(page)
    assert re.search(r"What does it do\?.*\]\(overview\.md\)", text("docs/index.md"))


def test_every_page_of_the_notebook_supports_a_sentence_outside_it() -> None:
    linked = " ".join(text(page) for page in PAGES if not page.startswith("docs/notebook/"))
    for page in PAGES:
        if page.startswith("docs/notebook/"):
            assert f"notebook/{Path(page).name}" in linked, page


def test_the_notebook_is_dated_and_listed() -> None:
    listed = text("docs/notebook/index.md")
    pages = {Path(page).name for page in PAGES if page.startswith("docs/notebook/")} - {"index.md"}
    assert len(pages) > 20
    for name in pages:
        title, _, date = text(f"docs/notebook/{name}").split("\n")[:3]
        assert title.startswith("# "), name
        assert title.endswith("?"), name
        assert re.match(r"\*\d{1,2} [A-Z][a-z]+ \d{4}\.\*", date), name
        assert f"[{title[2:]}]({name})" in listed, name


def test_a_long_sentence_a_dead_link_and_a_private_word_are_found() -> None:
    assert len(words(next(sentences("one " * 36 + ".")))) == 36
    assert [*sentences("One `a b c` two. Three four.\n\n| cell one | Two. Three. |\n\n- item")] == [
        "One Code two.",
        "Three four.",
        "cell one",
        "Two.",
        "Three.",
        "item",
    ]
    assert "no-such-heading" not in anchors(ROOT / "README.md")
    assert re.search(PRIVATE, "they pass as Guests", flags=re.IGNORECASE)
    assert re.search(PRIVATE, "what stands beside it")
