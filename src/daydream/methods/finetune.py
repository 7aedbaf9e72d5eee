"""Fine-tuning: train on the new classes alone, keep nothing. The lower bound, which forgets."""

from dataclasses import dataclass, replace

from daydream import rng
from daydream.methods.method import Method, TrainingSettings, network
from daydream.stage import Stage, State
from daydream.stream import Task


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

        def grow(state: State) -> None:
            with rng.seeded(self.setup.seed, "init", task.index):
                network(state).head.grow(task.num_new)

        return [replace(self.classify(task, task.train, self.settings.epochs), begin=grow, shared_as=None)]
