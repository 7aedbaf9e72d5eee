"""The door to `kernels/`, our optional GPU speed: without that room, or without Triton, all runs by plain torch.

Whoever has a fast way asks here first, and imports from `daydream.kernels` only inside the answer.
"""

import functools
import importlib.util

from torch import Tensor


@functools.cache
def has_kernels() -> bool:
    """Say whether the kernels are there, and the language they are written in."""
    return all(importlib.util.find_spec(name) is not None for name in (f"{__package__}.kernels", "triton"))


def by_kernels(x: Tensor) -> bool:
    """Say whether passes over a tensor can be kernels of our own: on a GPU, where they are there."""
    return x.is_cuda and has_kernels()
