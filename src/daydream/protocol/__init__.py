"""Which classes arrive when, what is kept of them, and how what was learnt is judged."""

from daydream.protocol.evaluate import Accuracy, accuracy, average, forgetting
from daydream.protocol.inference import over_images
from daydream.protocol.memory import Budget, Memory
from daydream.protocol.stream import Stream, Task, class_order, make_stream

__all__ = [
    "Accuracy", "Budget", "Memory", "Stream", "Task", "accuracy", "average", "class_order", "forgetting",
    "make_stream", "over_images",
]  # fmt: skip
