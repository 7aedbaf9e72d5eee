"""Read pickled arrays without running what a pickle may contain.

The files read here need six names, NumPy's and that of the codec by which Python 3 writes bytes in old protocols.
NumPy's own functions are never called from a file.
"""

import math
from typing import Any, BinaryIO, NoReturn

import numpy as np

from daydream.errors import UserError
from daydream.unpickling import Admitted, Refused, Unpickler, reading

KINDS = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})
"""Element types admitted: plain numbers. `O8`, an array of any objects, is not."""


class Dtype:
    """Stands in for `numpy.dtype`: a number's kind and its byte order."""

    def __init__(self, kind: bytes | str, *flags: Any) -> None:
        self.kind, self.order = _text(kind), "<"
        if self.kind not in KINDS:
            raise Refused(f"an array of type '{self.kind}'")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = ">" if _text(state[1]) == ">" else "<"

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.kind)


class Array(np.ndarray[Any, np.dtype[Any]]):
    """Stands in for `_reconstruct`: an empty array that takes its content from a checked state."""

    def __new__(cls, *ignored: Any) -> "Array":
        return super().__new__(cls, (0,), np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, columns_first, raw = state
        kind = _checked(raw, dtype, shape)
        super().__setstate__((1, shape, kind, bool(columns_first), bytes(raw)))  # type: ignore[arg-type]


class FromBuffer:
    """Stands in for `_frombuffer`, which protocol 5 calls."""

    def __new__(cls, raw: Any, dtype: Any, shape: Any, order: Any) -> Any:
        kind = _checked(raw, dtype, shape)
        return np.frombuffer(raw, kind).reshape(shape, order="F" if _text(order) == "F" else "C")

    __setstate__ = None


class Scalar:
    """Stands in for `scalar`: one number."""

    def __new__(cls, dtype: Any, raw: Any) -> Any:
        return np.frombuffer(raw, _checked(raw, dtype, ())).item()

    __setstate__ = None


class Subtype:
    """Stands in for the class `numpy.ndarray`, which is only ever passed along."""

    def __init__(self) -> NoReturn:
        raise Refused("a call of numpy.ndarray")

    __setstate__ = None


class Encode:
    """Stands in for `_codecs.encode`, by which Python 3 writes bytes in protocol 2."""

    def __new__(cls, text: Any, codec: Any) -> Any:
        if not isinstance(text, str) or _text(codec) != "latin1":
            raise Refused("a call of _codecs.encode other than for bytes")
        return text.encode("latin1")

    __setstate__ = None


ADMITTED: Admitted = {
    ("numpy", "ndarray"): Subtype,
    ("numpy", "dtype"): Dtype,
    ("_codecs", "encode"): Encode,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): Array for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): Scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): FromBuffer for core in ("core", "_core")},
}


def read_pickle(file: BinaryIO, name: str) -> dict[str, Any]:
    """Return the dict that a data file holds, with text keys; `name` is the file's, for the message if it is bad."""
    never = "image data never needs: it was not read; take the official file"
    with reading(name, never, "is truncated or damaged; download it again"):
        content = Unpickler(file, ADMITTED, encoding="bytes").load()  # so the strings of Python 2 become bytes
    if not isinstance(content, dict):
        raise UserError(f"{name} holds a {type(content).__name__} where a dict of images and labels was expected")
    return {_text(key): value for key, value in content.items()}


def _checked(raw: Any, dtype: Any, shape: Any) -> np.dtype[Any]:
    """Return the element type when the raw bytes are as many as the shape needs."""
    if not isinstance(dtype, Dtype) or not isinstance(raw, bytes | bytearray):
        raise Refused("an array of objects")
    kind = dtype.numpy()
    if any(size < 0 for size in shape) or math.prod(shape) * kind.itemsize != len(raw):
        raise ValueError(f"{len(raw)} bytes for an array of shape {shape}")
    return kind


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
