"""A process that teaches a model, so that the server answers while it trains; the server itself imports no torch.

It is this module run as a program: it reads a line of JSON for each thing to do, answers in frames (`wire.py`), and
ends when its input does, so none outlives the server. What changes the model file holds the command line's lock.
"""

import contextlib
import errno
import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch

from daydream import atomic
from daydream.atomic import signature
from daydream.engine import Interrupted
from daydream.engine.display import Display, Place, StopSwitch
from daydream.engine.loop import EpochReport
from daydream.errors import UserError
from daydream.learner import lesson_checkpoint
from daydream.learner.locking import taught
from daydream.learner.settings import LessonSettings
from daydream.serve import wire
from daydream.serve.refusal import FULL, UNCHANGED
from daydream.settings import from_dict
from daydream.stages.stage import Stage

OFTEN = 0.2
"""Seconds between two words of progress."""
SIDE = 64
"""Of pictures for a network of our own."""
POLITE = 5
"""How much a lesson steps back for the server, whose answers a person waits for."""


class Told(Display):
    """Tells the server how far a lesson is."""

    def __init__(self, switch: StopSwitch, out: BinaryIO) -> None:
        super().__init__(switch)
        self.out, self.spoke, self.began, self.from_step = out, 0.0, time.monotonic(), 0.0
        self.work: list[tuple[str, float]] = []

    def tell(self, stage: str, done: float, total: float, note: str = "") -> None:
        now = time.monotonic()
        if now - self.spoke < OFTEN and done < total:
            return
        self.spoke = now
        passed = now - self.began
        left = passed * (total - done) / (done - self.from_step) if done > self.from_step else None
        wire.say(self.out, {"stage": stage, "done": done, "total": total, "seconds_left": left, "note": note})

    def counts(self, what: str, done: int, total: int) -> None:
        self.tell(what, done, total)

    def begins(self, headline: str, ahead: Sequence[tuple[Place, Stage]]) -> None:
        self.began, self.from_step = time.monotonic(), -1.0
        self.work = [(stage.name, float(stage.epochs * stage.steps)) for _, stage in ahead]

    def before(self, stage: Stage) -> float:
        """Return the steps of the stages before one."""
        names = [name for name, _ in self.work]
        return sum(steps for _, steps in self.work[: names.index(stage.name)])

    def stage_begins(self, place: Place, stage: Stage, from_epoch: int) -> None:
        if self.from_step < 0:  # a lesson that goes on did what lies before in another process
            self.from_step = self.before(stage) + from_epoch * stage.steps

    def epoch_ends(self, place: Place, stage: Stage, report: EpochReport) -> None:
        done = self.before(stage) + (report.epoch + 1) * stage.steps
        note = f"epoch {report.epoch + 1} of {report.epochs}"
        self.tell(stage.name, done, sum(steps for _, steps in self.work), note)


class Keeper:
    """Holds the learner of a model file, as new as the file is."""

    def __init__(self, path: Path, made: dict[str, Any], switch: StopSwitch, out: BinaryIO) -> None:
        self.path, self.made, self.switch, self.out = path, made, switch, out
        self.read: object = ""
        self.learner: Any = None
        # What a killed process had begun to write of the file goes, unless another is writing it now.
        with contextlib.suppress(UserError, OSError), taught(path):
            atomic.sweep(path)

    def fresh(self) -> Any:
        """Return the learner of the file as it is now, or a new one where there is none."""
        from daydream.learner import opening

        now = signature(self.path)
        if self.learner is None or now != self.read:
            torch.manual_seed(0)  # a network without published weights is the same each time
            self.learner = opening.load(self.path) if now else self.new(opening)
            self.read = now
        return self.learner

    def new(self, opening: Any) -> Any:
        """Return a learner that knows nothing; a picture has its ID before the first lesson, so the size is chosen."""
        learner = opening.create(**self.made)
        if learner.kind == "adapting" and learner.given.image_size is None:
            learner = opening.create(**self.made, image_size=SIDE)
        return learner

    def changed(self, what: str, words: dict[str, Any]) -> None:
        """Change the model, and write its file: whole, or not at all."""
        with taught(self.path):
            learner = self.fresh()
            try:
                self.change(learner, what, words)
                learner.save(self.path)
                if what == "learn" and learner.kind == "adapting":
                    lesson_checkpoint.drop(self.path)
                if what == "learn" and learner.kind == "exact":
                    learner.make_ready()
                self.read = signature(self.path)
            except BaseException:
                self.learner = None  # what it knows now is not what the file says
                raise

    def change(self, learner: Any, what: str, words: dict[str, Any]) -> None:
        if what == "learn":
            told = Told(self.switch, self.out)
            if learner.kind == "exact":
                learner.learn(words["folder"], display=told)
                return
            if words["afresh"]:
                lesson_checkpoint.drop(self.path)
            settings = from_dict(LessonSettings, words["settings"])
            learner.take(
                learner.prepare(Path(words["folder"]), words["unlabelled"], None, settings)[0], told, self.path
            )
        elif what == "forget":
            learner.forget(*words["names"])
        elif what == "forget_digests":
            learner.forget_digests(torch.tensor(words["digests"]))
        elif what == "move":
            learner.move(torch.tensor(words["digests"]), words["to"])
        elif what == "rename":
            learner.rename(words["name"], words["to"])
        elif what == "merge":
            learner.merge(words["names"], words["into"])
        else:
            learner.undo()

    def answered(self, what: str, words: dict[str, Any]) -> tuple[Any, dict[str, bytes | memoryview]]:
        """Do one thing; return what there is to say, with raw content."""
        from daydream.serve import telling

        if what == "drop":
            with taught(self.path):
                lesson_checkpoint.drop(self.path)
            what = "open"
        if what in ("learn", "forget", "forget_digests", "move", "rename", "merge", "undo"):
            self.changed(what, words)
            return telling.whole(self.fresh(), self.path, words.get("have"))
        learner = self.fresh()
        if what == "open":
            return telling.whole(learner, self.path, words.get("have"))
        if what == "pace":
            return telling.pace(learner, words["batch"]), {}
        if what == "doubts":
            return telling.doubts(learner), {}
        if what == "next":
            return telling.ask_next(learner, Path(words["folder"]), words["count"]), {}
        if what == "test":
            return telling.tested(learner, Path(words["folder"])), {}
        target = Path(words["target"])
        learner.export_onnx(target) if what == "onnx" else learner.export_state_dict(target)
        return None, {}


def listen(requests: BinaryIO, asked: "queue.SimpleQueue[dict[str, Any]]", switch: StopSwitch) -> None:
    """Hand on what is asked; end the process with its input, whatever it is about."""
    for line in requests:
        words = json.loads(line)
        if words["do"] == "cancel":
            switch.asked = True
        else:
            asked.put(words)
    os._exit(0)


def mistake(error: UserError | OSError, path: Path) -> dict[str, Any]:
    """Say what is wrong; a full disk in the same words wherever it was met."""
    cause = error if isinstance(error, OSError) else error.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT):
        return {"error": f"{FULL}; {UNCHANGED}", "errno": number}
    if isinstance(error, UserError):
        return {"error": str(error)}
    return {"error": f"{error.filename or path}: {error.strerror or error}", "errno": number}


def main() -> None:
    out, sys.stdout = sys.stdout.buffer, sys.stderr  # nothing else may write between the frames
    asked: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    switch = StopSwitch()
    threading.Thread(target=listen, args=(sys.stdin.buffer, asked, switch), daemon=True).start()
    os.nice(POLITE)
    keeper: Keeper | None = None
    while True:
        words = asked.get()
        path, made = Path(words.pop("path")), words.pop("made")
        if keeper is None or keeper.path != path:
            keeper = Keeper(path, made, switch, out)
        switch.asked = False
        try:
            value, raw = keeper.answered(words.pop("do"), words)
            wire.say(out, {"answer": value}, raw)
        except Interrupted:
            wire.say(out, {"stopped": True})
        except (UserError, OSError) as error:
            wire.say(out, mistake(error, keeper.path))
        except MemoryError:
            wire.say(out, {"error": "there is not enough memory for this", "errno": errno.ENOMEM})
        except Exception as error:
            traceback.print_exc()
            line = f"something unforeseen went wrong ({type(error).__name__}); the server's own output says what"
            wire.say(out, {"error": line, "errno": -1})


if __name__ == "__main__":
    main()
