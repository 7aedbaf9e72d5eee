"""The sentences of a Markdown page: of its paragraphs, list items and table cells, without code."""

import re
from collections.abc import Iterator

FENCED = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)
FRONT_MATTER = re.compile(r"\A---\n.*?^---\n", flags=re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")


def plain(text: str) -> str:
    """Return a page without front matter and blocks of code."""
    return FENCED.sub("", FRONT_MATTER.sub("", text))


def words(text: str) -> list[str]:
    """Return the words of a text: whatever holds a letter or a digit."""
    return [word for word in text.split() if re.search(r"\w", word)]


def chunks(text: str) -> Iterator[str]:
    """Yield what stands by itself: a paragraph, an item of a list, a cell of a table."""
    paragraph: list[str] = []
    for line in [*plain(text).splitlines(), ""]:
        if not line.strip() or line.startswith(("|", "#")) or ITEM.match(line):
            yield " ".join(paragraph)
            paragraph = []
        if line.startswith("|"):
            yield from (cell.replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line))
        elif line.strip() and not line.startswith("#"):
            paragraph.append(ITEM.sub("", line).strip())


def sentences(text: str) -> Iterator[str]:
    """Yield each sentence; a stretch of `code` is one word of it, a link is its text."""
    for chunk in chunks(text):
        said = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "Code", chunk))
        yield from (part.strip() for part in re.split(r"(?<=[.!?])\W*\s+(?=\W*[A-Z0-9])", said) if words(part))
