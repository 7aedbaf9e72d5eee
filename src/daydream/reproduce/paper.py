"""The paper as data: every cell of its three tables, and what it says of its studies without printing values."""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from daydream.errors import unknown


@dataclass(frozen=True, kw_only=True)
class PaperCell:
    """A number of the paper's with the protocol it belongs to; an empty cell has no accuracy."""

    row: str
    method: str
    """What we call it."""
    data: str
    base: int
    steps: int
    memory: int | None
    budget: Literal["total", "per_class", "none", "unstated"]
    """The memory rule of the code or paper the number comes from, where known: the paper gives only the size."""
    accuracy: float | None
    """Average incremental accuracy in per cent."""
    reports: Literal["cnn", "nme"] | None
    """Which accuracy it is, where known."""
    parameters: float | None
    """Millions at inference; a lower bound where `at_least`."""
    at_least: bool
    mark: Literal["", "†", "‡"]
    source: Literal["own", "re-run", "quoted"]
    variant: str = ""
    """The row's short name in a table of one method's variants."""


@dataclass(frozen=True)
class Study:
    """A figure or an appendix: statements, and the few numbers that follow from the tables."""

    about: str
    values: dict[str, float]
    follows: str
    """Why those numbers follow."""
    statements: tuple[str, ...]


@cache
def _file() -> dict[str, Any]:
    text = resources.files("daydream.reproduce").joinpath("paper.json").read_text(encoding="utf-8")
    whole: dict[str, Any] = json.loads(text)
    return whole


@cache
def cells(table: str) -> tuple[PaperCell, ...]:
    """Return the cells of a table, row by row: `table1`, `ablation` or `piles`."""
    tables = _file()["tables"]
    if table not in tables:
        raise unknown("table of the paper", table, tables)
    return tuple(PaperCell(**cell) for cell in tables[table])


def value(
    table: str, method: str, steps: int, memory: int | None, data: str = "cifar100", variant: str = ""
) -> float | None:
    """Return the accuracy that a table prints for a method (and its variant), or None where it prints none."""
    wanted = (method, steps, memory, data, variant)
    for cell in cells(table):
        if (cell.method, cell.steps, cell.memory, cell.data, cell.variant) == wanted:
            return cell.accuracy
    return None


def study(name: str) -> Study:
    """Return what the paper says of `counterparts`, `depth`, `tradeoffs` or `features`."""
    stored = _file()["studies"][name]
    return Study(stored["about"], stored["values"], stored["from"], tuple(stored["statements"]))


def statements(name: str) -> tuple[str, ...]:
    """Return what the paper says of a study, or nothing where it prints a table instead."""
    return study(name).statements if name in _file()["studies"] else ()
