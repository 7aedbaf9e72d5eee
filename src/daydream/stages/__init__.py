"""The words in which a method describes training: stages as plain data, schedules, losses as pure functions."""

from daydream.stages import losses, schedules
from daydream.stages.stage import SGD, Adam, Batch, Batches, Clock, Group, Kinds, Samples, Stage, State

__all__ = [
    "SGD", "Adam", "Batch", "Batches", "Clock", "Group", "Kinds", "Samples", "Stage", "State", "losses", "schedules",
]  # fmt: skip
