"""How many threads torch takes for an operation: one, where several would mostly wait for each other."""

import contextlib
import threading
from collections.abc import Iterator

import torch

HELD = threading.RLock()
"""Torch's number of threads is the process's: nobody else may change it meanwhile."""


@contextlib.contextmanager
def one_each() -> Iterator[None]:
    """Let each operation inside run in the thread that asks for it.

    Threads that share a small operation meet at its end. On a machine that does other work too, each meeting takes a
    slice of the scheduler's time: an eigenvalue problem of 500 took 60 times as long by two threads as by one.
    """
    with HELD:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
