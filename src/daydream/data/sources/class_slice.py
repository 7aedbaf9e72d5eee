"""Ranges of classes as a user writes them: `first:100`, `0:100`, `100:`; and data sets of which a range is labelled."""

import re
from dataclasses import dataclass

from daydream.errors import UserError
from daydream.settings import setting


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Settings of a data set whose other classes can be its pile."""

    labelled: str = setting("", "range of the sorted classes that are labelled, e.g. 0:100; all if empty")

    def __post_init__(self) -> None:
        parse(self.labelled, "labelled")

    def choose(self, count: int, where: str) -> list[int]:
        """Return which of `count` classes are labelled."""
        wanted = parse(self.labelled, "labelled")
        if not count or (wanted.stop or wanted.start + 1) > count:
            raise UserError(f"--labelled is '{self.labelled}', but {where} has {count} classes")
        return list(range(count))[wanted]

    def others(self, count: int, where: str) -> list[int]:
        """Return which of `count` classes are left to be the pile."""
        chosen = set(self.choose(count, where))
        left = [number for number in range(count) if number not in chosen]
        if not left:
            raise UserError(
                f"all classes of {where} are labelled, none is left unlabelled: label fewer, e.g. --labelled "
                f"0:{max(1, count // 2)}, or say where unlabelled images are with --unlabeled NAME:DIR"
            )
        return left


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
