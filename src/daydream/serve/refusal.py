"""What the server refuses, each with its status; and what may be a name."""

import unicodedata

from daydream.errors import UserError
from daydream.escapes import visible

FULL = "the disk is full: free some space and try again"
UNCHANGED = "the model is as it was before"
LONGEST = 100
"""Characters of a class name; a folder on the disk bears it."""


class Refusal(UserError):
    """A request that is refused: one line, and a status of HTTP."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


def class_name(text: str) -> str:
    """Return a class name as it is stored, or say why it cannot be one: it is the name of a folder, too."""
    name = unicodedata.normalize("NFC", text).strip()
    if not name:
        raise Refusal(422, "a class needs a name")
    if len(name) > LONGEST or len(name.encode(errors="replace")) > 2 * LONGEST:
        raise Refusal(422, f"a class name has at most {LONGEST} characters; this one has {len(name)}")
    if name.startswith(".") or any(mark in name for mark in "/\\") or not printable(name):
        raise Refusal(422, f"'{visible(name)}' cannot be a class name: no slash, no leading dot, no control character")
    return name


def printable(text: str) -> bool:
    """Say whether a text is valid, and free of characters that command a terminal or change how it is read."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return visible(text) == text
