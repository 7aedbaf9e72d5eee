"""Tables for the terminal about a model: a lesson's settings, its classes, its history, doubts, a test."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from daydream.learner.settings import Choice

if TYPE_CHECKING:
    from daydream.learner.exact_learner import ExactLearner
    from daydream.learner.history import Record
    from daydream.learner.learner import Learner
    from daydream.learner.model import LessonRecord
    from daydream.learner.opening import Teachable
    from daydream.learner.reports import TestReport

SHOWN = 3
"""Classes an image was wrongly taken for that are named."""
LONG = 12
"""Accuracies in a row, of which the last are shown."""


def choices_table(choices: Sequence[Choice]) -> Table:
    """Show what a lesson is about to do, and why."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for choice in choices:
        table.add_row(Text(choice.name), Text(choice.value, style="bold"), Text(choice.why, style="dim"))
    return table


def counted(count: int, one: str, many: str) -> str:
    """Return a number of things in words."""
    return f"{count:,} {one if count == 1 else many}"


def lesson_text(learner: "Teachable", path: Path, record: Any) -> str:
    """Say what a lesson gave."""
    if learner.kind == "exact":
        return exact_lesson_text(cast("ExactLearner", learner), path, record)
    model = cast("Learner", learner).taught
    last = model.lessons[-1]
    known = f"lesson {len(model.lessons)}: {counted(len(model.classes), 'class', 'classes')}"
    right = f"{last.accuracy:.1f} % right on {last.held_out} held-out images"
    error = f"calibration error {last.calibration_error:.1f} %"
    return f"{known}, {right}, {error}, {last.seconds:.0f} s\n{path}: {size_text(cast('Learner', learner), path)}"


def exact_lesson_text(learner: "ExactLearner", path: Path, last: "Record") -> str:
    """Say what an exact lesson gave."""
    count, model = sum(record.what == "lesson" for record in learner.history), learner.taught
    classes = counted(len(learner.names), "class", "classes")
    said = [f"lesson {count}: {classes}, {counted(last.images, 'new picture', 'new pictures')}"]
    if not last.images:
        said = [f"nothing new: {path} knows all of these pictures"]
    elif last.accuracy is not None:
        said.append(f"{last.accuracy:.1f} % right on pictures left out in turn")
    said += [] if last.test is None else [f"{last.test:.1f} % on test pictures"]
    lines = [", ".join([*said, f"{last.seconds:.1f} s"]), f"{path}: {exact_size_text(learner, path)}"]
    if model.judged.temperature is None:
        lines.append("It keeps no features, so a lesson ends without probabilities: give test pictures, --test FOLDER.")
    elif last.test is not None and model.known.features is None:
        lines.append("Its probabilities were fitted on these test pictures, until the next lesson.")
    return "\n".join(lines)


def exact_size_text(learner: "ExactLearner", path: Path) -> str:
    """Say how large a model file is and what it holds of pictures."""
    count = len(learner.taught.known.labels)
    pictures = counted(count, "picture", "pictures")
    kept = counted(count, "feature", "features") if learner.keep_features else f"sums over {pictures}"
    return f"{path.stat().st_size / 1e6:.1f} MB, with {kept} and no picture"


def imagined_text(lesson: "LessonRecord") -> str:
    """Say how good a lesson's generators are: few counterparts taken for their class, or little spread, is bad."""
    if lesson.counterparts_right is None or lesson.counterparts_spread is None:
        return ""
    return f"{lesson.counterparts_right:.0f} % right, spread {lesson.counterparts_spread:.2f}"


def size_text(learner: "Learner", path: Path) -> str:
    """Say how large a model file is and what of it are images."""
    model = learner.taught
    parts = {"exemplars": len(model.state.memory), "held-out": len(model.held_out), "unlabelled": len(model.pile)}
    each = model.preprocessing.image_bytes / 1e6
    images = ", ".join(f"{count:,} {name} ({count * each:.1f} MB)" for name, count in parts.items())
    return f"{path.stat().st_size / 1e6:.1f} MB, with images: {images}"


def classes_table(learner: "Teachable", path: Path) -> RenderableType:
    """Show what a model knows, a line per class."""
    if learner.kind == "exact":
        return exact_classes_table(cast("ExactLearner", learner), path)
    return adapting_classes_table(cast("Learner", learner), path)


def exact_classes_table(learner: "ExactLearner", path: Path) -> RenderableType:
    """Show what an exact model knows, a line per class."""
    table = Table("class", "since lesson", "pictures", "accuracy after each change, %")
    for row in learner.classes:
        accuracy = " ".join("–" if value is None else f"{value:.1f}" for value in row.accuracy[-LONG:])
        earlier = "… " if len(row.accuracy) > LONG else ""
        table.add_row(Text(row.name), f"{row.lesson} ({row.since})", f"{row.images:,}", f"{earlier}{accuracy}")
    return Group(table, Text(learner.about), Text(exact_size_text(learner, path)))


def history_table(learner: "Teachable") -> Table:
    """Show lessons and changes, a line each."""
    table = Table("date", "what", "new classes", "pictures", "accuracy, %", "seconds")
    for record in learner.history:
        accuracy = "–" if record.accuracy is None else f"{record.accuracy:.1f}"
        counts = (f"{count:,}" if count else "–" for count in (record.new, record.images))
        table.add_row(record.date, record.what, *counts, accuracy, f"{record.seconds:.1f}")
    return table


def doubts_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Show pictures that look wrong, a line each."""
    table = Table("looks", "given as", "looks like", "how surely", "picture")
    units = {"mislabelled": "{:.0f} times likelier", "doubled": "cosine {:.3f}", "odd": "{:.1f} deviations off"}
    for row in rows:
        like = "nothing in its class" if row["kind"] == "odd" else row["other"]
        where = row["path"] or f"{row['digest'] % 2**64:016x}"
        table.add_row(
            row["kind"], Text(row["name"]), Text(like), units[row["kind"]].format(row["strength"]), Text(where)
        )
    return table


def adapting_classes_table(learner: "Learner", path: Path) -> RenderableType:
    """Show what a model knows, a line per class and one per lesson."""
    model, rows = learner.taught, learner.classes
    heads = ("class", "since lesson", "images", "exemplars", "held out", "generator", "accuracy after each lesson, %")
    table = Table(*heads)
    for row in rows:
        accuracy = " ".join(f"{value:.1f}" for value in row.accuracy)
        since = f"{row.lesson} ({row.since})"
        counts = (str(row.images), str(row.exemplars), str(row.held_out))
        table.add_row(Text(row.name), since, *counts, "yes" if row.generator else "none yet", accuracy)
    history = Table(
        "lesson", "date", "method", "new classes", "given again", "images", "accuracy, %", "held-out images", "imagined"
    )
    for number, lesson in enumerate(model.lessons, 1):
        counts = (str(lesson.new), str(lesson.again), str(lesson.images))
        judged = (f"{lesson.accuracy:.1f}", str(lesson.held_out), imagined_text(lesson))
        history.add_row(str(number), lesson.date, lesson.method, *counts, *judged)
    settings, last = model.settings, model.lessons[-1]
    probabilities = (
        f"temperature {model.temperature:.2f}, calibration error {last.calibration_error:.1f} % (held-out images)"
    )
    lines = [f"{settings.backbone}, images of {settings.image_size} pixels; {probabilities}", size_text(learner, path)]
    if model.exact:
        lines.append(
            "It adapted, so its lessons are not exact; `learn --adapt off` goes back to the exact model in it."
        )
    lacking = sum(not row.generator for row in rows)
    if 0 < lacking < len(rows):
        lines.append(f"{lacking} classes have no generator yet; a lesson with --unlabeled gives them one")
    return Group(table, history, *map(Text, lines))


def report_table(report: "TestReport") -> RenderableType:
    """Show a test: a line per class, with what it was taken for."""
    table = Table("class", "images", "accuracy, %", "taken for")
    for name, accuracy in report.per_class.items():
        wrong = sorted(((n, other) for other, n in report.confusion[name].items() if other != name), reverse=True)
        more = f", {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        taken = ", ".join(f"{other} {n}" for n, other in wrong[:SHOWN]) + more
        table.add_row(Text(name), str(report.images[name]), f"{accuracy:.1f}", Text(taken))
    total = sum(report.images.values())
    return Group(
        table,
        Text(f"overall {report.accuracy:.2f} % of {total} images; calibration error {report.calibration_error:.1f} %"),
    )
