"""Joint training: the upper bound, in the two meanings the field gives it.

`once` is the paper's (section 4.2): one training on all classes, one number, no tasks; of a run that stops after some
tasks, on theirs. `per-task` trains from scratch,
after each task, on the data of all classes seen, and averages over tasks; it is higher, since early tasks have fewer
classes.
Exemplars are herded only so that NME accuracy is measured as for the other methods.
"""

from dataclasses import dataclass
from typing import Literal

from daydream.methods.method import Method, TrainingSettings
from daydream.protocol.stream import Stream, Task
from daydream.settings import setting
from daydream.stages.stage import Stage, State


@dataclass(frozen=True, kw_only=True)
class JointSettings(TrainingSettings):
    """Settings of joint training."""

    kind: Literal["once", "per-task"] = setting("once", "one training on all classes, or one per task on all seen")


class Joint(Method[JointSettings]):
    """Cross-entropy on all data, by the recipe of the base task."""

    Settings = JointSettings
    reports = "cnn"
    carries = frozenset({"rotations", "erase", "augment"})

    def reshape(self, stream: Stream, tasks: int | None) -> Stream:
        return stream.merged(tasks) if self.settings.kind == "once" else stream

    def stages(self, task: Task) -> list[Stage]:
        return [self.classify(task, task.seen, self.settings.base_epochs), self.reselect(task)]

    def reselect(self, task: Task) -> Stage:
        """Herd all classes anew: a network from scratch has no use for exemplars another one chose."""

        def begin(state: State) -> None:
            state.memory = state.memory.shrunk(0).updated(task.seen, self.features(state, task.seen), task.num_seen)

        return Stage(name="select", begin=begin)
