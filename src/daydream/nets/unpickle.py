"""Read the tensors of a torch weight file without running what its pickles may contain.

The files read here are of torch's format before 2020: five pickles in a row (a magic number, a version, the writer's
machine, a dict of tensors by name, the storages' keys) and then each storage, its length and its raw numbers. Four
names are all that such a dict of tensors needs; each is answered by a stand-in of ours, any other is refused.
"""

import math
import struct
from collections import OrderedDict
from typing import Any, BinaryIO, NoReturn

import numpy as np
import torch
from torch import Tensor

from daydream.unpickling import Admitted, Refused, Unpickler, reading

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
KINDS = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


class Storage:
    """Stands in for a torch storage: where its numbers lie is only known once all pickles are read."""

    def __init__(self, kind: np.dtype[Any], length: int) -> None:
        self.kind, self.length = kind, length
        self.numbers = torch.empty(0)


class View:
    """Stands in for `_rebuild_tensor_v2`: a tensor that its storage still lacks the numbers of."""

    def __init__(self, storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> None:
        if not isinstance(storage, Storage):
            raise Refused("a tensor without a storage")
        self.storage, self.offset, self.shape, self.strides = storage, int(offset), tuple(shape), tuple(strides)

    def tensor(self) -> Tensor:
        """Return the tensor, once its numbers are read, if it lies within them."""
        sizes, strides = self.shape, self.strides
        if len(sizes) != len(strides) or min((*sizes, *strides, self.offset), default=0) < 0:
            raise ValueError(f"a tensor of shape {sizes} with strides {strides}")
        last = self.offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        if 0 in sizes or last >= len(self.storage.numbers) or math.prod(sizes) > len(self.storage.numbers):
            raise ValueError(f"a tensor of shape {sizes} in {len(self.storage.numbers)} numbers")
        return torch.as_strided(self.storage.numbers, sizes, strides, self.offset).clone(
            memory_format=torch.contiguous_format
        )

    __setstate__ = None


class Named(OrderedDict):  # type: ignore[type-arg]
    """Stands in for `collections.OrderedDict`; what torch hangs on it (versions of modules) is left out."""

    def __setstate__(self, state: Any) -> None: ...


class Kind:
    """Stands in for the class of a storage, which is only ever passed along."""

    def __init__(self, *ignored: Any) -> NoReturn:
        raise Refused("a call of a storage")

    __setstate__ = None


class Floats(Kind):
    kind = KINDS["FloatStorage"]


class Longs(Kind):
    kind = KINDS["LongStorage"]


ADMITTED: Admitted = {
    ("collections", "OrderedDict"): Named,
    ("torch._utils", "_rebuild_tensor_v2"): View,
    ("torch", "FloatStorage"): Floats,
    ("torch", "LongStorage"): Longs,
}


class TensorUnpickler(Unpickler):
    """Admits tensors; collects the storages that they lie in."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, ADMITTED)
        self.storages: dict[str, Storage] = {}

    def persistent_load(self, about: Any) -> Storage:
        word, kind, key, _, length, view = about
        if word != "storage" or kind not in (Floats, Longs) or view is not None:
            raise Refused("a storage of another kind")
        return self.storages.setdefault(str(key), Storage(kind.kind, int(length)))


def read_tensors(file: BinaryIO, name: str) -> dict[str, Tensor]:
    """Return the tensors of a weight file by their names; `name` is the file's, for the message if it is bad."""
    with reading(name, "weights never need: it was not read", "is truncated, damaged or of another format"):
        return _read(file)


def _read(file: BinaryIO) -> dict[str, Tensor]:
    def load() -> Any:
        return TensorUnpickler(file).load()

    if (load(), load()) != (MAGIC, VERSION) or not load()["little_endian"]:
        raise ValueError("not torch's format before 2020")
    unpickler = TensorUnpickler(file)
    named = unpickler.load()
    for key in load():
        storage = unpickler.storages[key]
        (length,) = struct.unpack("<q", file.read(8))
        raw = file.read(storage.length * storage.kind.itemsize)
        if length != storage.length or len(raw) != storage.length * storage.kind.itemsize:
            raise ValueError("a storage is cut short")
        storage.numbers = torch.from_numpy(np.frombuffer(bytearray(raw), storage.kind))
    return {str(key): view.tensor() for key, view in named.items()}
