"""A device for tests on machines without one: its tensors say they are on `meta`, and keep their numbers on the CPU.

While `claimed_device()` is open, whatever is made on or brought to the device `meta` is a `Claimed`, and an operation
that a GPU would refuse, because some of its tensors are on the device and some are not, raises `MixedDevices`.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")
CPU = torch.device("cpu")
aten = torch.ops.aten

COPIES = (aten.copy_.default, aten._to_copy.default)
INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)
JOINS = (aten.cat.default, aten.stack.default)


class MixedDevices(AssertionError):
    """An operation was given tensors of two devices."""


class Claimed(Tensor):
    """A tensor that says it is on the device."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Claimed":
        made = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        made.inner = inner.detach()
        return made

    def tolist(self) -> Any:
        return self.inner.tolist()

    def numpy(self, **_: Any) -> Any:
        raise MixedDevices("numpy() of a tensor on the device")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return carry_out(func, args, kwargs or {})


class Watching(TorchDispatchMode):
    """Sees every operation, those that make tensors too."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return carry_out(func, args, kwargs or {})


def carry_out(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Do on the CPU what was asked of the device, if a GPU would have done it."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    here = [tensor for tensor in tensors if isinstance(tensor, Claimed)]
    # A GPU takes single numbers of the CPU in most places, and an index of the CPU into what it holds.
    elsewhere = [t for t in tensors if not isinstance(t, Claimed) and (t.ndim or func in JOINS)]
    indexed = func in INDEXING and isinstance(args[0], Claimed)
    if here and elsewhere and not (func in COPIES or indexed):
        raise MixedDevices(f"{func} of tensors on the device and of {[tuple(t.shape) for t in elsewhere]} on the CPU")
    asked = kwargs.get("device")
    lands = torch.device(asked) == DEVICE if asked is not None else bool(here)
    if func is aten.copy_.default:
        lands = isinstance(args[0], Claimed)
    given = kwargs if asked is None else {**kwargs, "device": CPU}
    plain_args, plain_kwargs = tree_map(lambda x: x.inner if isinstance(x, Claimed) else x, (args, given))
    found = func(*plain_args, **plain_kwargs)
    if not lands:
        return found
    found = tree_map(lambda x: Claimed(x) if isinstance(x, Tensor) else x, found)
    return return_and_correct_aliasing(func, args, kwargs, found)


@contextlib.contextmanager
def claimed_device() -> Iterator[torch.device]:
    """Open the device. Optimisers are not fused on it: torch knows no fused step there."""
    tensor, sgd = torch.tensor, torch.optim.SGD

    def made(*args: Any, device: Any = None, **kwargs: Any) -> Tensor:  # `torch.tensor` makes a `meta` tensor unseen
        whole = tensor(*args, **kwargs)
        return Claimed(whole) if device is not None and torch.device(device) == DEVICE else whole

    def stepped(*args: Any, fused: bool, **kwargs: Any) -> torch.optim.SGD:
        return sgd(*args, foreach=False, **kwargs)

    with mock.patch("torch.tensor", made), mock.patch("torch.optim.SGD", stepped), Watching():
        yield DEVICE
