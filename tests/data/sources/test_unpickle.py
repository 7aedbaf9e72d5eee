"""The unpickler: reads arrays as Python 2 and 3 wrote them, refuses everything else."""

import contextlib
import io
import os
import pickle
import struct
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daydream.data.sources.unpickle import ADMITTED, read_pickle
from daydream.errors import UserError

CONTENT = {"data": np.arange(24, dtype=np.uint8).reshape(4, 6), "labels": [3, 1, 2, 0]}


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 wrote its strings."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)

    def save_bytes(self, value: bytes) -> None:
        self.write(b"T" + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch[bytes] = save_bytes


class Calls:
    """Pickles as a call of any function."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


def read(raw: bytes) -> dict[str, Any]:
    return read_pickle(io.BytesIO(raw), "some/file")


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("module", [b"numpy._core.", b"numpy.core."])
def test_reads_arrays_of_every_protocol_and_both_module_names(protocol: int, module: bytes) -> None:
    raw = pickle.dumps(CONTENT, protocol=protocol)
    if protocol < 4:  # later ones put a length before the name
        raw = raw.replace(b"numpy._core.", module)
    content = read(raw)
    assert np.array_equal(np.asarray(content["data"]), CONTENT["data"])
    assert content["labels"] == CONTENT["labels"]


def test_reads_what_python_2_wrote() -> None:
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump({b"data": CONTENT["data"], b"names": [b"a_1.png", b"\xe9"]})
    assert b"_codecs" not in file.getvalue()
    content = read(file.getvalue())
    assert type(np.asarray(content["data"])) is np.ndarray
    assert np.array_equal(np.asarray(content["data"]), CONTENT["data"])
    assert content["names"] == [b"a_1.png", b"\xe9"]


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)),
        np.array(7, dtype=np.int16),
        np.array([True, False]),
    ],
)
def test_keeps_byte_order_and_memory_order(array: np.ndarray, protocol: int) -> None:
    copy = np.asarray(read(pickle.dumps({"a": array}, protocol=protocol))["a"])
    assert copy.shape == array.shape
    assert np.array_equal(copy, array)


def test_reads_numpy_numbers_as_plain_ones() -> None:
    content = read(pickle.dumps({"labels": [np.int64(5), np.float32(0.5)]}))
    assert content["labels"] == [5, 0.5]
    assert type(content["labels"][0]) is int


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize(
    ("function", "args"),
    [
        (os.system, "touch {mark}"),
        (eval, "open({mark!r}, 'w')"),
        (exec, "open({mark!r}, 'w')"),
        (getattr, "touch"),
        (np.load, "{mark}"),
        (np.memmap, "{mark}"),
    ],
)
def test_refuses_calls(function: Any, args: str, protocol: int, tmp_path: Path, user_error: Any) -> None:
    mark = tmp_path / "mark"
    raw = pickle.dumps({"data": Calls(function, args.format(mark=str(mark)))}, protocol=protocol)
    with user_error("some/file", function.__name__, "was not read"):
        read(raw)
    assert not mark.exists()


def test_refuses_an_array_of_objects_even_when_hostile(tmp_path: Path, user_error: Any) -> None:
    mark = tmp_path / "mark"
    hostile = np.array([Calls(os.system, f"touch {mark}"), 1], dtype=object)
    with user_error("some/file"):
        read(pickle.dumps({"data": hostile}))
    assert not mark.exists()
    with user_error("type 'O8'"):
        read(pickle.dumps({"data": np.array([None, "harmless"], dtype=object)}))


def test_refuses_encode_other_than_for_bytes(user_error: Any) -> None:
    import codecs

    with user_error("_codecs.encode"):
        read(pickle.dumps({"data": Calls(codecs.encode, "text", "rot13")}, protocol=2))


def test_refuses_other_element_types(user_error: Any) -> None:
    with user_error("some/file", "type"):
        read(pickle.dumps({"data": np.zeros(2, dtype=[("a", "i4")])}))


@pytest.mark.parametrize("shape", [(10**12,), (-4, -6), (5, 6), (4,)])
def test_refuses_a_shape_its_bytes_do_not_fill(shape: tuple[int, ...], user_error: Any) -> None:
    class Lies:
        def __reduce__(self) -> Any:
            function, args, state = np.zeros(24, np.uint8).__reduce__()
            return function, args, (1, shape, state[2], False, bytes(24))

    with user_error("truncated or damaged"):
        read(pickle.dumps({"data": Lies()}))


@pytest.mark.parametrize(
    "name", ["numpy\nndarray", "numpy\ndtype", "numpy._core.multiarray\n_reconstruct", "_codecs\nencode"]
)
def test_a_file_cannot_alter_the_stand_ins(name: str, user_error: Any) -> None:
    # BUILD with (None, {attribute: value}) sets attributes of whatever lies on the stack: here a class.
    raw = b"c" + name.encode() + b"\n(N}X\x07\x00\x00\x00changedK\x01stb."
    with user_error("truncated or damaged"):
        read(raw)
    assert not any(hasattr(kind, "changed") for kind in ADMITTED.values())


def test_every_truncation_is_a_user_error() -> None:
    raw = pickle.dumps(CONTENT, protocol=2)
    for length in range(len(raw)):
        with pytest.raises(UserError, match=r"^some/file is truncated or damaged; download it again$"):
            read(raw[:length])


@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 255))
def test_damage_is_a_user_error_or_harmless(noise: bytes, place: int, value: int) -> None:
    raw = bytearray(pickle.dumps(CONTENT, protocol=2))
    raw[place % len(raw)] = value
    for damaged in (noise, bytes(raw)):
        with contextlib.suppress(UserError):
            read(damaged)


def test_a_pickle_of_something_else_is_a_user_error(user_error: Any) -> None:
    with user_error("some/file", "holds a list"):
        read(pickle.dumps([1, 2]))
