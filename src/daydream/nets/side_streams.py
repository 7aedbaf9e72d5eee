"""Passes beside other passes: on a GPU by a stream of their own, where the room `kernels/` is there; else in line."""

from types import TracebackType
from typing import Protocol, Self

import torch
from torch import Tensor

from daydream.fast import has_kernels


class Beside(Protocol):
    """What is asked for inside `with` may run beside what comes after, until `join`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def keep(self, *tensors: Tensor) -> None:
        """Keep what is read inside until `join`."""

    def join(self) -> None:
        """Let what is asked for from now on wait for all that runs beside."""


class InLine:
    """Runs what is inside at once, like all other work."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def keep(self, *tensors: Tensor) -> None: ...

    def join(self) -> None: ...


def beside(device: torch.device, work: str) -> Beside:
    """Return where work of this name runs beside a step: `teaching`, `imagining`."""
    if device.type != "cuda" or not has_kernels():
        return InLine()
    from daydream.kernels.side_streams import SideStream

    return SideStream(device, work)
