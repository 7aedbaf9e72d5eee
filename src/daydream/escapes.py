"""Names come from folders, models and runs, so from strangers: what an output would take for a command is escaped.

A web page has its own escaping (jinja2's), JSON too.
"""

import json
import math
import re
from typing import Any

CONTROLS = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "␡"}
"""Control characters by the pictures of them; an escape sequence then shows, and does nothing."""
UNSEEN = [*range(0x80, 0xA0), 0x61C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
"""Other controls: of a terminal, of lines, and of the direction in which text is read."""
PICTURES = CONTROLS | dict.fromkeys(UNSEEN, "\N{REPLACEMENT CHARACTER}")
TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--"}
HTML = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
ENDLESS = re.compile(rb"[0-9][eE]\+?[0-9]{3}|[0-9]{309}")
"""A number that may be larger than any: JSON's 1e999 is read as infinite."""
FORMULA = re.compile(r"[=+\-@\t\r＝＋－＠]")
"""How a cell begins that a spreadsheet would carry out."""


def visible(text: str, keep: str = "") -> str:
    """Return a text of which nothing is a command to a terminal."""
    return text.translate({code: mark for code, mark in PICTURES.items() if chr(code) not in keep})


def cell(text: str) -> str:
    """Return a text as a cell of a spreadsheet: never a formula."""
    return visible(f"'{text}" if FORMULA.match(text) else text)


def markdown(text: str) -> str:
    """Return a text as it is to be read in Markdown: no HTML, no link, no other cell of a table."""
    flat = visible(" ".join(text.split()))
    return re.sub(r"[\\`*\[\]|<>&]", lambda found: HTML.get(found[0], f"\\{found[0]}"), flat)


def tex(text: str) -> str:
    """Return a text as it is to be read in LaTeX: no command, no line of its own."""
    flat = " ".join(text.split()).translate(dict.fromkeys(PICTURES, "?"))
    return re.sub(r"[\\~^&%$#_{}±–]", lambda found: TEX.get(found[0], f"\\{found[0]}"), flat)


def from_json(text: bytes) -> Any:
    """Read JSON: what is no number there (NaN, Infinity, 1e999) is nothing; what no output could write is refused."""
    parse_float = _finite if ENDLESS.search(text) else None
    value = json.loads(text.decode(), parse_constant=lambda _: None, parse_float=parse_float)
    if b"\\u" in text:  # half a pair of surrogates is no text; a byte of a file's name, escaped by Python, is one
        json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape")
    return value


def _finite(text: str) -> float | None:
    return value if math.isfinite(value := float(text)) else None
