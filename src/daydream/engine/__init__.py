"""Runs stages: the only place that calls backward and an optimiser's step."""

from daydream.engine.hardware import Hardware
from daydream.engine.trainer import Engine, EpochReport, Interrupted, Lockstep, Partial, Training, Watcher

__all__ = [
    "Engine",
    "EpochReport",
    "Hardware",
    "Interrupted",
    "Lockstep",
    "Partial",
    "Training",
    "Watcher",
]
