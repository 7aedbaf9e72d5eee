"""What happened to an exact model: lessons and changes, the accuracy after each, and no name that was forgotten."""

import datetime
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from daydream.learner.exact import ExactModel, accuracy
from daydream.learner.reports import ClassReport
from daydream.settings import mismatch, require

What = Literal["lesson", "forget", "rename", "merge", "move"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """A lesson or a change, and how good the model was after it, in per cent."""

    date: str
    what: What
    new: int = 0
    """Classes that came."""
    images: int = 0
    """Pictures that came, or of a move those that moved; 0 where it is not known any more."""
    accuracy: float | None = None
    """Mean over classes on pictures left out in turn; None where there are too few."""
    test: float | None = None
    """On the test pictures that came with the lesson."""
    accuracies: dict[str, float | None] = field(default_factory=dict)
    """Of each class known then, in order of arrival, on pictures left out in turn."""
    seconds: float = 0.0

    @property
    def class_accuracy(self) -> tuple[float | None, ...]:
        return tuple(self.accuracies.values())


History = tuple[Record, ...]


def recorded(history: History, model: ExactModel, what: What, **said: Any) -> History:
    """Return the history with what just happened, in the words of the model after it."""
    date, whole = datetime.datetime.now(datetime.UTC).date().isoformat(), accuracy(model)
    accuracies = dict(zip(model.names, map(_rounded, model.judged.accuracy), strict=True))
    record = Record(date=date, what=what, accuracy=_rounded(whole), accuracies=accuracies, **said)
    return (*_only(history, model.names), record)


def forgotten(history: History, model: ExactModel) -> History:
    """Return the history after a forgetting: what happened and when, and no number that what is gone had a part in."""
    bare = tuple(Record(date=old.date, what=old.what, accuracies=dict.fromkeys(old.accuracies)) for old in history)
    return recorded(bare, model, "forget")


def renamed(history: History, places: Mapping[str, str]) -> History:
    """Return the history in new names; of several that become one, the first counts."""
    found = []
    for record in history:
        accuracies: dict[str, float | None] = {}
        for name, value in record.accuracies.items():
            accuracies.setdefault(places.get(name, name), value)
        found.append(replace(record, accuracies=accuracies))
    return tuple(found)


def class_reports(history: History, model: ExactModel) -> list[ClassReport]:
    """Return what is known of each class, in order of arrival."""
    reports = []
    for name, images in zip(model.names, model.known.counts.tolist(), strict=True):
        since = next((place for place, record in enumerate(history) if name in record.accuracies), 0)
        lessons = sum(record.what == "lesson" for record in history[: since + 1])
        course = tuple(record.accuracies[name] for record in history if name in record.accuracies)
        date = history[since].date if history else ""
        reports.append(ClassReport(name, max(1, lessons), date, images, course))
    return reports


def written(history: History) -> list[dict[str, Any]]:
    """Return it as JSON can hold it."""
    return [asdict(record) for record in history]


def read(content: Any) -> History:
    """Build a history of a file's words, each of which must be of its kind."""
    hints = typing.get_type_hints(Record)
    require(isinstance(content, list), "its history is no list")
    for record in content:
        require(isinstance(record, dict) and record.keys() == hints.keys(), "its history is not whole")
        for own in fields(Record):
            wrong = mismatch(record[own.name], hints[own.name], own.name)
            require(not wrong, f"its history is not whole: {wrong}")
    return tuple(Record(**record) for record in content)


def _only(history: History, names: Sequence[str]) -> History:
    """Return the history without names that are no more."""
    kept = set(names)
    return tuple(
        replace(record, accuracies={name: value for name, value in record.accuracies.items() if name in kept})
        for record in history
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
