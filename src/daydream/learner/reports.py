"""What learners say of themselves: of each class, and of a test.

Shapes: N pictures, C classes.
"""

from dataclasses import dataclass

from torch import Tensor

from daydream.learner.calibration import expected_calibration_error
from daydream.protocol.evaluate import confusion, percent


@dataclass(frozen=True)
class ClassReport:
    """What is known of a class."""

    name: str
    lesson: int
    """The lesson it came with, from 1 on."""
    since: str
    images: int
    accuracy: tuple[float | None, ...]
    """In per cent on pictures not learnt, after each lesson since it came; None where too few could tell."""
    exemplars: int = 0
    """Pictures kept of it."""
    held_out: int = 0
    generator: bool = False


@dataclass(frozen=True)
class TestReport:
    """How a learner does on a folder of test images, in per cent."""

    accuracy: float
    per_class: dict[str, float]
    images: dict[str, int]
    confusion: dict[str, dict[str, int]]
    """Of images of a class, how many were taken for which."""
    calibration_error: float


def report(probabilities: Tensor, labels: Tensor, names: tuple[str, ...]) -> TestReport:
    """Return how probabilities [N, C] agree with labels [N]."""
    right = (probabilities.argmax(1) == labels).double()
    matrix = confusion(probabilities, labels)
    present = labels.unique().tolist()
    return TestReport(
        accuracy=percent(right, 2),
        per_class={names[label]: percent(right[labels == label], 2) for label in present},
        images={names[label]: sum(matrix[label]) for label in present},
        confusion={names[label]: {names[i]: n for i, n in enumerate(matrix[label]) if n} for label in present},
        calibration_error=round(100 * expected_calibration_error(probabilities, labels), 2),
    )
