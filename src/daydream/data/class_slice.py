"""Ranges of classes as a user writes them: `first:100`, `0:100`, `100:`."""

import re

from daydream.errors import UserError


def parse(text: str, setting: str) -> slice:
    """Return the slice that `A:B`, `first:B` or nothing (all) means; counted from 0, B not included."""
    if not text:
        return slice(0, None)
    match = re.fullmatch(r"(\d*|first):(\d*)", text.strip())
    start = int(match[1]) if match and match[1].isdigit() else 0
    stop = int(match[2]) if match and match[2] else None
    if match is None or (stop is not None and stop <= start) or (match[1] == "first" and stop is None):
        raise UserError(f"--{setting} is '{text}', but takes a range of classes such as first:100, 0:100 or 100:200")
    return slice(start, stop)
