"""What a task of `imagine` does beside its training steps, and how long each part takes.

    python benchmarks/extras.py [--device cuda] [--base 50] [--per-class 500] [--pile 50000] [--tasks 4]

Random images of CIFAR's size, untrained networks, a base task and increments of 5 classes, in milliseconds. A task is
timed once, as a run goes through it: sizes differ from task to task, and what a size costs when it is met for the first
time belongs to it. `checkpoints` is what two of them keep the run waiting, and `written` until they are on the disk.
"""

import argparse
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from step import random_stream
from timing import show

from daydream.components.imagination import Imagination
from daydream.components.imagination_settings import ImaginationSettings
from daydream.data.augment import CropFlip, Prepare
from daydream.engine.hardware import Hardware
from daydream.methods.method import Setup
from daydream.methods.replay import Replay, ReplaySettings
from daydream.protocol.evaluate import accuracy, nearest_mean_scores
from daydream.protocol.inference import over_images
from daydream.protocol.memory import Budget, Memory, class_means
from daydream.protocol.stream import Stream
from daydream.stages.stage import State
from daydream.storage import state as checkpoint
from daydream.storage.checkpoint_files import CheckpointWriter

NEW = 5
NAMES = {"train": "k-means", "select": "herding", "imagine": "mining"}


class Tasks:
    """A run without its steps."""

    def __init__(self, hardware: Hardware, stream: Stream, pile: int, folder: Path) -> None:
        self.hardware, self.stream = hardware, stream
        prepare, budget = Prepare((0.5,) * 3, (0.25,) * 3, 32), Budget("total", 2000)
        setup = Setup("resnet32", "stage3", budget, prepare, CropFlip(prepare), seed=1)
        self.method = Replay(ReplaySettings(), setup)
        unlabelled = random_stream(hardware.device, 1, 0, pile).train
        self.imagination = Imagination(ImaginationSettings(), self.method, unlabelled)
        self.state = State(Memory.empty(budget), hardware.device)
        self.writer, self.ledger = CheckpointWriter(folder), checkpoint.Ledger()
        self.spent: dict[str, float] = {}

    def timed(self, name: str, call: Callable[[], object]) -> None:
        began = time.perf_counter()
        call()
        if self.hardware.device.type == "cuda":
            torch.cuda.synchronize()
        self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - began

    def run(self, index: int) -> dict[str, float]:
        """Go through a task; return the seconds of each part."""
        self.spent, state = {}, self.state
        task = self.stream.task(index)
        for stage in self.imagination.stages(task, self.method.stages(task)):
            name = "new network" if task.is_base and stage.name == "train" else NAMES[stage.name]
            hooks = {name: stage.begin, "join generators": stage.finish, "measure counterparts": stage.report}
            for part, hook in hooks.items():
                if hook is not None:
                    self.timed(part, functools.partial(hook, state))
                for net in state.nets.values():
                    net.eval()  # as after every stage
        self.timed("checkpoints", self.save)
        self.timed("evaluation", lambda: self.evaluate(index))
        self.timed("checkpoints", self.save)
        self.timed("written", self.writer.wait)
        return self.spent

    def evaluate(self, index: int) -> None:
        state, prepare, test = self.state, self.method.setup.prepare, self.stream.test_seen(index)
        features, scores = over_images(lambda x: self.method.predict(state, x), test, prepare)
        held = state.memory.as_set(test.class_names)
        sides = [
            over_images(lambda x: self.method.predict(state, x)[:1], held, prepare, flip)[0] for flip in (False, True)
        ]
        seen = self.stream.sizes[: index + 1]
        means = class_means(sides[0], sides[1], held.labels, sum(seen))
        for judged in (scores, nearest_mean_scores(features, means)):
            accuracy(judged, test.labels, seen)

    def save(self) -> None:
        info, components = checkpoint.pack(self.state)
        self.writer.save(info, components, self.ledger.unchanged(self.state, ()))
        self.ledger.note(self.state)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--base", type=int, default=50, help="classes of the base task")
    parser.add_argument("--per-class", type=int, default=500, help="training images of a class")
    parser.add_argument("--pile", type=int, default=50_000, help="unlabelled images")
    parser.add_argument("--tasks", type=int, default=4, help="the base task and increments")
    given = parser.parse_args()
    hardware = Hardware.choose(given.device, "auto", None, None)
    hardware.set_up()
    train, test = (
        random_stream(hardware.device, given.base, NEW * given.tasks, n).train for n in (given.per_class, 100)
    )
    stream = Stream(train, test, (given.base, *[NEW] * given.tasks))
    with tempfile.TemporaryDirectory() as folder:
        tasks = Tasks(hardware, stream, given.pile, Path(folder) / "checkpoint")
        found = [tasks.run(index) for index in range(given.tasks)]
        tasks.writer.close()
    names = list(dict.fromkeys(name for spent in found for name in spent))
    rows = [[name, *(f"{1000 * spent[name]:,.0f}" if name in spent else "" for spent in found)] for name in names]
    waits = [sum(seconds for name, seconds in spent.items() if name != "written") for spent in found]
    rows.append(["all but written", *(f"{1000 * wait:,.0f}" for wait in waits)])
    heads = ("milliseconds", "base task", *(f"increment {index}" for index in range(1, given.tasks)))
    show("beside training steps", given.device, heads, rows)


if __name__ == "__main__":
    main()
