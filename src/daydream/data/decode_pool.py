"""Worker processes that decode images ahead of their use.

A worker is this module run as a program: it reads lines of paths, answers with pixels and ends when its input does, so
none outlives the process that started it. Unlike `multiprocessing`'s, it imports neither the caller's script nor torch
(it is ready in a fraction of a second, and a script needs no `if __name__ == "__main__"`), it shares no state with CUDA
or threads, and its pixels come through the pipe straight into the array that is returned.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO, cast

import numpy as np

from daydream.data.decode import Decoding, decode_group
from daydream.errors import UserError

Process = subprocess.Popen[bytes]

PARALLEL_FROM = 1024
"""Fewer images than this are decoded sooner than worker processes start."""
STREAMED_FROM = 96
"""The same where a network works on some while others are decoded."""
GROUP_BYTES = 2**24
"""Decoded bytes that a worker sends at once when a whole set is read."""


def num_workers() -> int:
    """Return how many decoding processes this machine's cores can feed."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 32)


def decode_all(paths: Sequence[str], canvas: int, workers: int | None = None) -> Decoding:
    """Decode a whole list into one array; `workers` processes share the work (default: the cores), 0 for none."""
    if workers is None:
        workers = num_workers() if len(paths) >= PARALLEL_FROM else 0
    size = max(1, min(256, GROUP_BYTES // (3 * canvas**2)))
    groups = [paths[start : start + size] for start in range(0, len(paths), size)]
    pixels = np.empty((len(paths), 3, canvas, canvas), np.uint8)
    failures = {}
    with contextlib.closing(stream(groups, canvas, min(workers, len(groups)))) as parts:
        for number, part in enumerate(parts):
            start = number * size
            pixels[start : start + len(part.pixels)] = part.pixels
            failures.update({start + i: reason for i, reason in part.failures.items()})
    return Decoding(pixels, failures)


def few_at_a_time(paths: Sequence[str], canvas: int, count: int) -> Generator[tuple[int, Decoding], None, None]:
    """Yield the place of the first of `count` images and what they are decoded to, in order."""
    starts = range(0, len(paths), count)
    workers = min(num_workers(), len(starts)) if len(paths) >= STREAMED_FROM else 0
    groups = (paths[start : start + count] for start in starts)
    with contextlib.closing(stream(groups, canvas, workers)) as parts:
        yield from zip(starts, parts, strict=True)


def stream(groups: Iterable[Sequence[str]], canvas: int, workers: int) -> Generator[Decoding, None, None]:
    """Yield the decoded groups in order, at most two per worker ahead; closing the iterator ends the workers."""
    if workers < 1:
        yield from (decode_group(group, canvas) for group in groups)
        return
    threads = ThreadPoolExecutor(workers, thread_name_prefix="decode")  # each waits for one process at a time
    processes: list[Process] = []
    idle: queue.SimpleQueue[Process] = queue.SimpleQueue()
    ahead: deque[Future[Decoding]] = deque()
    try:
        for _ in range(workers):
            processes.append(_start())
            idle.put(processes[-1])
        for group in groups:
            ahead.append(threads.submit(_ask, idle, group, canvas))
            if len(ahead) > 2 * workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        for future in ahead:
            future.cancel()
        _end(processes, threads)


def _start() -> Process:
    places = [place or os.getcwd() for place in sys.path]  # the worker must find this very package
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    command = [sys.executable, "-P", "-m", "daydream.data.decode_pool"]  # -P: not what lies in the current folder
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def _ask(idle: "queue.SimpleQueue[Process]", group: Sequence[str], canvas: int) -> Decoding:
    """Have an idle worker decode a group."""
    process = idle.get()
    request, answer = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
    pixels = np.empty((len(group), 3, canvas, canvas), np.uint8)
    try:
        request.write(json.dumps([canvas, list(group)]).encode() + b"\n")
        request.flush()
        line = answer.readline()
        if not line or answer.readinto(pixels.reshape(-1).data) != pixels.nbytes:  # type: ignore[attr-defined]
            raise BrokenPipeError
    except BrokenPipeError:
        raise UserError(
            "a process that decodes images died, most likely out of memory; free some and try again"
        ) from None
    finally:
        idle.put(process)
    return Decoding(pixels, {int(i): reason for i, reason in json.loads(line).items()})


def _end(processes: Sequence[Process], threads: ThreadPoolExecutor) -> None:
    """End the workers, which have nothing to lose, and then the threads that wait for them."""
    for process in processes:
        process.kill()
    threads.shutdown(cancel_futures=True)
    for process in processes:
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):  # a request that was never read
                cast(BinaryIO, pipe).close()


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer each line `[canvas, paths]` with a line of failures and the pixels, until the input ends."""
    for line in requests:
        canvas, paths = json.loads(line)
        decoding = decode_group(paths, canvas)
        answers.write(json.dumps(decoding.failures).encode() + b"\n")
        answers.write(decoding.pixels.reshape(-1).data)
        answers.flush()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # nothing else may write between the pixels
    try:
        serve(sys.stdin.buffer, answers)
    except BrokenPipeError:  # the parent is gone
        os._exit(0)


if __name__ == "__main__":
    main()
