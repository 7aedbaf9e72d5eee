"""Whether kernels of our own can run: they are written in Triton, which is not everywhere."""

import functools
import importlib.util

from torch import Tensor


@functools.cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def by_kernels(x: Tensor) -> bool:
    """Say whether passes over a tensor can be kernels of our own: on a GPU, where Triton is installed."""
    return x.is_cuda and has_triton()
