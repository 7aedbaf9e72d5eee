"""Streams for passes beside other passes on a GPU.

A small network leaves it half idle, and some of a step waits for nothing else.

Between a pass's beginning and its `join` it shares no memory with the work beside it but what both only read. Within a
captured step it becomes a branch of the graph.
"""

import functools
from types import TracebackType
from typing import Self

import torch
from torch import Tensor


class SideStream:
    """A stream beside the current one, by the name of its work.

    What is asked for inside `with` begins after all that was asked for before it. It runs beside what comes after,
    until `join`: not before then may what it makes be used.
    """

    def __init__(self, device: torch.device, place: str) -> None:
        apart = device.type == "cuda"
        self.stream = beside(torch.cuda.current_stream(device), place) if apart else None
        self.used = False
        self.kept: list[Tensor] = []

    def __enter__(self) -> Self:
        self.used = True
        if self.stream is not None:
            self.here = torch.cuda.current_stream(self.stream.device)
            self.stream.wait_stream(self.here)
            torch.cuda.set_stream(self.stream)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.stream is not None:
            torch.cuda.set_stream(self.here)

    def keep(self, *tensors: Tensor) -> None:
        """Keep what is read beside and made here: let go of before `join`, its memory would be handed out again."""
        self.kept += tensors

    def join(self) -> None:
        """Let what is asked for from now on wait for all that runs beside."""
        # Without work of its own a stream is no part of a capture, which cannot wait for it then.
        if self.stream is not None and self.used:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
        self.kept.clear()


@functools.cache
def beside(stream: torch.cuda.Stream, place: str) -> torch.cuda.Stream:
    """Return the stream of this place beside another, always the same of a name: each keeps memory of its own.

    A device has 32 of them; beyond that two places share one, and their work is done in line.
    """
    return torch.cuda.Stream(stream.device)
