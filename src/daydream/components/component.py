"""What a component is: something a method carries, which changes the stages of its tasks."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from daydream.protocol.stream import Stream, Task
from daydream.stages.stage import Kinds, Stage


class Component(ABC):
    """Carried by a method; runs and lessons put it around the method's stages."""

    kinds: ClassVar[Kinds] = {}
    """Builders of the networks it adds to the state, by class name."""

    def check(self, stream: Stream) -> None:
        """Raise the user's mistake if stream and component do not fit; called before anything is written."""
        return None

    @abstractmethod
    def stages(self, task: Task, stages: Sequence[Stage]) -> list[Stage]:
        """Return the stages of a task with the component in them. They are only described: nothing may train yet."""
