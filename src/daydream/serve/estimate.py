"""What a lesson would do, said before it begins: its epochs, as the learner itself chooses them, and its seconds.

Seconds of a network that trains are a range, by the last lesson or by one timed batch: what a method adds to a step
(networks before it, generators, exemplars) is not known before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daydream.learner.settings import LessonSettings, choose_lesson
from daydream.serve.pictures import Kept
from daydream.serve.view import View

PICTURE_SECONDS = 0.006
"""What decoding and keeping a picture's feature take beside the network."""
BY_LAST, BY_BATCH = (0.7, 1.5), (1.0, 3.0)
"""How far from the last lesson, or from batches of the bare network, a lesson's time lies."""
STARTING = 1.0
"""Seconds before the first step."""


@dataclass(frozen=True)
class Plan:
    """A lesson to be."""

    images: int
    new: list[str]
    again: list[str]
    epochs: int | None
    """None: the exact learner has none."""
    seconds: float | None
    seconds_most: float | None
    kept: bool
    """Whether a lesson that was interrupted is kept."""
    goes_on: bool
    """Whether it is that lesson."""

    @property
    def sentence(self) -> str:
        if not self.images:
            return "Nothing new to teach: add pictures first."
        new, again = len(self.new), len(self.again)
        parts = [f"{n} {word}" for n, word in ((new, "new"), (again, "known")) if n]
        classes = f"{' and '.join(parts)} {'class' if new + again == 1 else 'classes'}"
        epochs = f", {self.epochs} {'epoch' if self.epochs == 1 else 'epochs'}" if self.epochs else ""
        on = "Goes on with the lesson that was interrupted: " if self.goes_on else ""
        return f"{on}{self.images:,} {'picture' if self.images == 1 else 'pictures'} of {classes}{epochs}{self._time}."

    @property
    def _time(self) -> str:
        if self.seconds is None or self.seconds_most is None:
            return ""
        low, high = round(self.seconds), max(1, round(self.seconds_most))
        if self.goes_on:
            return f", at most about {high} s"
        return f", about {high} s" if low == high else f", about {low} to {high} s"


def epochs_of(view: View, images: int) -> int:
    """Return the epochs that an adapting model chooses for a lesson of so many pictures, held-out ones included."""
    plan = view.about["plan"]
    chosen, _ = choose_lesson(LessonSettings(), trained_on(images), 1, 1.0, 1, plan["device"], plan["pretrained"])
    assert chosen.epochs is not None
    return chosen.epochs


def batch_of(view: View, images: int) -> int:
    plan = view.about["plan"]
    chosen, _ = choose_lesson(LessonSettings(), trained_on(images), 1, 1.0, 1, plan["device"], plan["pretrained"])
    assert chosen.batch_size is not None
    return chosen.batch_size


def trained_on(images: int) -> int:
    """Return how many of so many pictures are not held out."""
    return max(1, round(images * (1 - LessonSettings().held_out)))


def planned(view: View, given: Sequence[Kept], epochs: int | None, pace: float | None, goes_on: bool) -> Plan:
    """Say what a lesson with these pictures would do; `pace` is the seconds of a picture in one timed batch."""
    known, names = set(view.about["names"]), sorted({str(kept.label) for kept in given})
    trains, about = view.about["kind"] == "adapting", view.about
    least, most = _trained(view, len(given), epochs or 0, pace) if trains else 2 * (_quick(len(given), view),)
    return Plan(
        images=len(given),
        new=[name for name in names if name not in known],
        again=[name for name in names if name in known],
        epochs=epochs if trains else None,
        seconds=least,
        seconds_most=most,
        kept=trains and about["plan"]["kept"],
        goes_on=goes_on,
    )


def _quick(images: int, view: View) -> float:
    """Return about how many seconds a lesson of the exact learner takes: features, and a system of equations."""
    each = view.predictor.seconds if view.predictor is not None else 0.02
    total = images + len(view.names)
    return round(2 + images * (each + PICTURE_SECONDS) + 3e-7 * total * min(total, 1280), 1)


def _trained(view: View, images: int, epochs: int, pace: float | None) -> tuple[float | None, float | None]:
    """Return between how many seconds a lesson that trains takes: by the last one, else by a batch that was timed."""
    records, classes = view.about["history"], view.about["classes"]
    if not images or (not records and pace is None):
        return None, None
    passes = (trained_on(images) + sum(row["exemplars"] for row in classes)) * epochs
    if records:
        last: Mapping[str, Any] = records[-1]
        old = sum(row["exemplars"] for row in classes if row["lesson"] < len(records))
        pace, (low, high) = last["seconds"] / ((last["images"] + old) * last["epochs"]), BY_LAST
    else:
        low, high = BY_BATCH
    assert pace is not None
    return round(STARTING + low * pace * passes, 1), round(STARTING + high * pace * passes, 1)
