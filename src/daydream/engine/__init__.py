"""The one training loop: runs the stages of a method on a device, and knows no method."""

from daydream.engine.display import Display, Place
from daydream.engine.engine import Engine
from daydream.engine.hardware import Hardware
from daydream.engine.lockstep import Lockstep
from daydream.engine.loop import Diverged, EpochReport, Interrupted, Partial, Training, Watcher

__all__ = [
    "Display",
    "Diverged",
    "Engine",
    "EpochReport",
    "Hardware",
    "Interrupted",
    "Lockstep",
    "Partial",
    "Place",
    "Training",
    "Watcher",
]
