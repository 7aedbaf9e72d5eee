"""A worker process seen from the server, and the lesson it is about: how far it is, for whoever looks on."""

import asyncio
import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from daydream.serve import wire
from daydream.serve.refusal import Refusal

PATIENCE = 5.0
"""Seconds a cancelled lesson has to stop by itself; then its process is ended, which the model file survives."""

IDLE = 180.0
"""Seconds after which a process that has nothing to do ends."""
STATUS = {errno.ENOSPC: 507, errno.EDQUOT: 507, errno.ENOMEM: 507, -1: 500}
"""Of what the worker could not help."""
Heard = Callable[[dict[str, Any]], None]
OFTEN = 0.2
"""Seconds between two looks at a lesson."""


class Stopped(Exception):
    """A lesson was cancelled."""


class Died(Exception):
    """The worker process ended in the middle."""


class Worker:
    """A process that holds a model's learner, and does one thing at a time."""

    def __init__(self) -> None:
        self.process: asyncio.subprocess.Process | None = None
        self.path = Path()
        self.busy = False
        self.asked = 0
        """How many things it has been asked to do."""
        self.used = time.monotonic()

    async def ask(
        self, path: Path, made: dict[str, Any], what: str, heard: Heard | None = None, **words: Any
    ) -> tuple[Any, dict[str, bytes]]:
        """Have one thing done for a model; `heard` is told of the progress."""
        self.path, self.busy, self.asked = path, True, self.asked + 1
        try:
            process = await self._started()
            self._tell(process, {"do": what, "path": str(path), "made": made, **words})
            while True:
                value, raw = await self._heard(process)
                if "answer" in value:
                    return value["answer"], raw
                if "stopped" in value:
                    raise Stopped
                if "error" in value:
                    raise Refusal(STATUS.get(value.get("errno", 0), 422), value["error"])
                if heard is not None:
                    heard(value)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            await self.close()
            raise Died from error
        except asyncio.CancelledError:
            await self.close()  # what it would still say is nobody's answer
            raise
        finally:
            self.used, self.busy = time.monotonic(), False

    async def _started(self) -> asyncio.subprocess.Process:
        if self.process is None or self.process.returncode is not None:
            places = [place or os.getcwd() for place in sys.path]  # the worker must find this very package
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
            command = (sys.executable, "-P", "-m", "daydream.serve.worker")
            pipe = asyncio.subprocess.PIPE
            self.process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, env=environment, start_new_session=True
            )
        return self.process

    @staticmethod
    def _tell(process: asyncio.subprocess.Process, words: dict[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(words).encode() + b"\n")

    @staticmethod
    async def _heard(process: asyncio.subprocess.Process) -> tuple[dict[str, Any], dict[str, bytes]]:
        assert process.stdout is not None
        out = process.stdout

        async def frame() -> bytes:
            _, length = wire.HEAD.unpack(await out.readexactly(wire.HEAD.size))
            return await out.readexactly(length)

        said = json.loads(await frame())
        return said["value"], {name: await frame() for name in said["raw"]}

    async def cancel(self) -> None:
        """Ask what is under way to stop; end the process if it does not. What is asked of it next goes on."""
        process, number = self.process, self.asked
        if process is None or process.returncode is not None:
            return
        self._tell(process, {"do": "cancel"})
        until = time.monotonic() + PATIENCE
        while (under_way := self.busy and self.asked == number) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        if under_way and process.returncode is None:
            process.kill()

    async def close(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class Workers:
    """The processes there are: one that is idle is taken before another is started."""

    def __init__(self) -> None:
        self.all: list[Worker] = []

    def idle(self, path: Path) -> Worker:
        """Return a worker for a model; the one that held it last where it can be."""
        free = sorted((worker for worker in self.all if not worker.busy), key=lambda worker: worker.path != path)
        if not free:
            free = [Worker()]
            self.all += free
        free[0].busy = True
        return free[0]

    async def rest(self) -> None:
        """End those that have had nothing to do for a while."""
        for worker in [w for w in self.all if not w.busy and time.monotonic() - w.used > IDLE]:
            self.all.remove(worker)
            await worker.close()

    async def close(self) -> None:
        await asyncio.gather(*(worker.close() for worker in self.all))


@dataclass(frozen=True)
class Progress:
    """How far a lesson is."""

    state: str = "running"
    """running, done, failed or cancelled."""
    images: int = 0
    stage: str = "starting"
    done: float = 0.0
    total: float = 0.0
    seconds: float = 0.0
    seconds_left: float | None = None
    note: str = ""
    error: str = ""
    before: dict[str, float | None] = field(default_factory=dict)
    """Accuracy of each class before it, in per cent."""
    after: dict[str, float | None] = field(default_factory=dict)


class Lesson:
    """A lesson under way or over; any number of pages look on."""

    def __init__(self, images: int, seconds: float | None, before: dict[str, float | None]) -> None:
        self.progress = Progress(images=images, seconds_left=seconds, before=before)
        self.began = time.monotonic()
        self.cancelling = False
        self.task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self.progress.state == "running"

    def update(self, **changes: Any) -> None:
        if not self.running:
            return
        seconds = round(time.monotonic() - self.began, 1)
        self.progress = replace(self.progress, seconds=seconds, **changes)

    def heard(self, said: dict[str, Any]) -> None:
        self.update(**said)

    async def followed(self) -> AsyncIterator[Progress]:
        """Yield how far it is, now and whenever that changes, until it is over."""
        shown: Progress | None = None
        while True:
            if self.progress is not shown:
                shown = self.progress
                yield shown
            if shown.state != "running":
                return
            await asyncio.sleep(OFTEN)
