"""What a lesson gave: its model is judged on images that no weight was trained on, and the lesson is recorded."""

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from daydream import rng
from daydream.data.images import ImageSet, Resident
from daydream.engine import Display
from daydream.learner.beside import taught_too
from daydream.learner.calibration import expected_calibration_error, fit_temperature
from daydream.learner.course import train
from daydream.learner.intake import joined, sampled
from daydream.learner.lesson import Lesson
from daydream.learner.making import complete
from daydream.learner.model import ClassRecord, LessonRecord, Model
from daydream.methods.method import Method
from daydream.protocol.evaluate import percent
from daydream.protocol.inference import over_images
from daydream.stages.stage import State


def learn(lesson: Lesson, display: Display, beside: Path | None = None) -> Model:
    """Train a lesson, judge what came of it, and return the model after; it is kept beside a model's file meanwhile."""
    state, measured, seconds = train(lesson, display, beside)
    before, held = lesson.before, lesson.intake.held_out
    held = joined(before.held_out, held) if before else joined(held)
    scores = judge(lesson.method, state, held)
    temperature = fit_temperature(scores, held.labels)
    probabilities = (scores.double() / temperature).softmax(1).cpu()
    seen = before.seen if before else torch.zeros(0, dtype=torch.int64)
    # What only a lesson under way needs: the network before it, and which images of the pile were in use.
    state.nets.pop("old", None)
    state.tensors = {name: value for name, value in state.tensors.items() if not name.startswith("pile.")}
    return Model(
        settings=lesson.settings,
        carried=before.carried if before else carried_by(lesson),
        preprocessing=lesson.given.preprocessing,
        state=state,
        classes=classes_after(lesson, seen),
        lessons=(*(before.lessons if before else ()), record(lesson, held, probabilities, measured, seconds)),
        temperature=temperature,
        confidences=probabilities.max(1).values,
        held_out=held,
        pile=pile_after(lesson),
        seen=torch.cat([seen, lesson.digests]).unique(),
        exact=taught_too(before.exact, lesson.intake) if before and before.exact else b"",
    )


def carried_by(lesson: Lesson) -> dict[str, dict[str, Any]]:
    """Return what a new model carries from its first lesson on."""
    return complete(type(lesson.method), lesson.given.carried, lesson.given.lesson.epochs)


def record(
    lesson: Lesson, held: ImageSet, probabilities: Tensor, measured: Mapping[str, float], seconds: float
) -> LessonRecord:
    """Return what is remembered of a lesson."""
    right = (probabilities.argmax(1) == held.labels).double()
    settings = lesson.method.settings
    return LessonRecord(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        method=lesson.method_name,
        new=lesson.task.num_new,
        again=len(lesson.again.labels.unique()),
        images=len(lesson.intake.train),
        held_out=len(held),
        accuracy=percent(right, 2),
        class_accuracy=tuple(percent(right[held.labels == label], 2) for label in range(len(lesson.names))),
        calibration_error=round(100 * expected_calibration_error(probabilities, held.labels), 2),
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        lr=settings.lr,
        seconds=round(seconds, 1),
        counterparts_right=measured.get("accuracy"),
        counterparts_spread=relative_spread(measured),
    )


def classes_after(lesson: Lesson, seen: Tensor) -> tuple[ClassRecord, ...]:
    """Return the classes known now, with how many different images of each were trained on in all."""
    unseen = ~torch.isin(lesson.digests, seen)
    counts = torch.bincount(lesson.intake.train.labels[unseen], minlength=len(lesson.names)).tolist()
    known = lesson.before.classes if lesson.before else ()
    old = [(record.name, record.lesson, record.images) for record in known]
    new = [(name, lesson.index + 1, 0) for name in lesson.names[lesson.num_old :]]
    return tuple(
        ClassRecord(name=name, lesson=came, images=images + count)
        for (name, came, images), count in zip([*old, *new], counts, strict=True)
    )


def pile_after(lesson: Lesson) -> Tensor:
    """Return the share of the pile to keep for the next lesson."""
    if lesson.pile is None:
        side = lesson.given.preprocessing.canvas
        return torch.zeros(0, 3, side, side, dtype=torch.uint8)
    generator = rng.generator(lesson.method.setup.seed, "kept pile", lesson.index)
    return sampled(lesson.pile, lesson.given.lesson.keep_pile or 0, generator)


def judge(method: Method[Any], state: State, images: ImageSet) -> Tensor:
    """Return the method's scores [N, C] of images."""
    return over_images(lambda x: (method.predict(state, x).scores,), images, method.setup.prepare)[0]


def kept_pile(model: Model) -> ImageSet | None:
    """Return the pile share of a model, if it has one."""
    if not len(model.pile):
        return None
    return ImageSet(Resident(model.pile), torch.zeros(len(model.pile), dtype=torch.int64), ("unlabelled",))


def relative_spread(measured: Mapping[str, float]) -> float | None:
    """Return how widely counterparts spread, with real images as 1, if generators were trained."""
    real = measured.get("real_spread")
    return round(measured["spread"] / real, 2) if real else None
