"""Several jobs at once on this machine, each in a process of its own, begun again from its checkpoint if that dies."""

import contextlib
import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker

import torch

from daydream.engine import Display, Interrupted
from daydream.reproduce.jobs import LOOK_SECONDS, Job, Outcome, attempt

RETRIES = 2


@dataclass(frozen=True)
class SideBySide:
    """Carries out at most so many jobs at once."""

    at_once: int
    environment: Mapping[str, str]
    """Of the processes, on top of this one's."""
    stop_asked: Callable[[], bool]
    tell: Callable[[Job, str], None]
    """Told what happens to a job before it ends."""

    def run(self, jobs: Sequence[Job], ready: Callable[[Job], bool]) -> Iterator[Outcome]:
        torch.cuda.empty_cache()  # the memory that timing the runs took here is theirs now
        waiting, running, deaths, stopping = list(jobs), list[Child](), Counter[str](), False
        try:
            while running or (waiting and not stopping):
                if not stopping and self.stop_asked():
                    stopping = True
                    for child in running:
                        child.process.terminate()
                while not stopping and len(running) < self.at_once and (job := next(filter(ready, waiting), None)):
                    waiting.remove(job)
                    running.append(self.begin(job))
                connection.wait([child.reader for child in running], LOOK_SECONDS)
                for child in [child for child in running if child.ended()]:
                    running.remove(child)
                    outcome = child.outcome
                    if outcome is None and not stopping:
                        deaths[child.job.folder] += 1
                        outcome = self.died(child, deaths[child.job.folder])
                    if outcome is None:
                        waiting.insert(0, child.job)
                    else:
                        yield outcome
        finally:
            for child in running:
                child.process.kill()
                child.process.join()
        if waiting:
            raise Interrupted

    def begin(self, job: Job) -> "Child":
        self.tell(job, "begins")
        return Child(job, {**threads(self.at_once), **self.environment})

    def died(self, child: "Child", times: int) -> Outcome | None:
        """Return the failure of a job whose process died without an outcome, or None if it is to begin again."""
        if times > RETRIES:
            return Outcome(child.job, None, f"its process died {times} times, last {child.cause}")
        self.tell(child.job, f"its process died {child.cause}; it goes on from its checkpoint")
        return None


class Child:
    """One process that carries out a job."""

    def __init__(self, job: Job, environment: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        self.job, self.outcome = job, None
        self.reader, writer = context.Pipe(duplex=False)
        self.process = context.Process(target=carry_out_here, args=(job, os.getpid(), writer), name=job.name)
        with handing_down(environment):
            self.process.start()
        writer.close()

    def ended(self) -> bool:
        """Say whether it has ended; what it gave is its outcome from then on."""
        alive = self.process.is_alive()
        if self.reader.poll():
            with contextlib.suppress(EOFError, OSError):
                self.outcome = self.reader.recv()
        elif alive:
            return False
        self.process.join()
        self.reader.close()
        return True

    @property
    def cause(self) -> str:
        """Say what it died of."""
        code = self.process.exitcode or 0
        names = {number.value: number.name for number in signal.Signals}
        return f"by {names.get(-code, f'signal {-code}')}" if code < 0 else f"with exit code {code}"


class Told(Display):
    """The display of a process: told to stop by SIGTERM, however often, and by the end of the process it is for."""

    def __init__(self, parent: int) -> None:
        super().__init__()
        self.parent = parent

    def told(self, *_: object) -> None:
        self.switch.asked = True

    def stop_asked(self) -> bool:
        return super().stop_asked() or os.getppid() != self.parent


def carry_out_here(job: Job, parent: int, writer: "connection.Connection") -> None:
    """Carry out a job in a process made for it, and send its outcome."""
    os.setsid()  # a Ctrl-C at the terminal is the parent's to pass on
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    display = Told(parent)
    signal.signal(signal.SIGTERM, display.told)
    try:
        outcome = attempt(job, display)
    except Interrupted:
        sys.exit(128 + signal.SIGTERM)
    with contextlib.suppress(BrokenPipeError):  # nobody is left to read it; the result is on the disk
        writer.send(outcome)


@contextlib.contextmanager
def handing_down(environment: Mapping[str, str]) -> Iterator[None]:
    """Give an environment to the processes started inside, and keep Ctrl-C from them: they import torch first."""
    resource_tracker.ensure_running()  # it is started with the first process, and unblocks signals
    before = {name: os.environ.get(name) for name in environment}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def threads(at_once: int) -> dict[str, str]:
    """Share the cores out among processes, where the user has not: torch computes and compiles by so many threads."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    names = ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")
    return {name: str(max(1, cores // at_once)) for name in names if name not in os.environ}
