"""Fine-tuning: train on the new classes alone, keep nothing. The lower bound, which forgets."""

from dataclasses import dataclass, replace

from daydream.methods.method import Method, TrainingSettings
from daydream.protocol.stream import Task
from daydream.stages.stage import Stage


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(TrainingSettings):
    """Settings of fine-tuning: the common recipe."""


class Finetune(Method[FinetuneSettings]):
    """Cross-entropy over all classes seen, on images of the new ones; a linear head that grows."""

    Settings = FinetuneSettings
    keeps_exemplars = False
    reports = "cnn"
    head = "linear"

    def stages(self, task: Task) -> list[Stage]:
        if task.is_base:
            return [self.classify(task, task.train, self.settings.base_epochs)]
        train = self.classify(task, task.train, self.settings.epochs)
        return [replace(train, begin=lambda state: self.grow(state, task), shared_as=None)]
