"""Weight files: tensors come back as torch wrote them, and nothing else is loaded."""

import io
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from daydream.errors import UserError
from daydream.nets.unpickle import read_tensors


def written(content: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


def weights() -> OrderedDict[str, torch.Tensor]:
    whole = torch.randn(4, 6)
    return OrderedDict(
        plain=torch.randn(3, 2, 5),
        permuted=torch.randn(5, 4, 3).permute(2, 0, 1),
        part=whole[1:3, 2:5],
        again=whole,
        single=torch.tensor(7),
        counter=torch.arange(5),
    )


def test_tensors_come_back_as_they_were() -> None:
    given = weights()
    found = read_tensors(io.BytesIO(written(given)), "net.pth")
    assert list(found) == list(given)
    for name, value in given.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value), name
        assert found[name].is_contiguous()


class Hostile:
    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.place),)


def test_a_file_that_would_run_code_is_refused_and_runs_none(tmp_path: Path) -> None:
    place = tmp_path / "made"
    content = written({"weight": torch.zeros(2), "more": Hostile(place)})
    with pytest.raises(UserError, match=r"net\.pth asks to load \w+.mkdir, which weights never need"):
        read_tensors(io.BytesIO(content), "net.pth")
    assert not place.exists()


def test_a_storage_of_another_kind_is_refused() -> None:
    with pytest.raises(UserError, match=r"asks to load torch\.DoubleStorage"):
        read_tensors(io.BytesIO(written({"weight": torch.zeros(2, dtype=torch.float64)})), "net.pth")


@pytest.mark.parametrize("keep", [0, 5, 60, 300, -1])
def test_a_truncated_file_is_said_to_be(keep: int) -> None:
    content = written(weights())
    with pytest.raises(UserError, match=r"net\.pth is truncated, damaged or of another format"):
        read_tensors(io.BytesIO(content[:keep]), "net.pth")


def test_a_file_of_the_newer_format_is_none_of_these() -> None:
    file = io.BytesIO()
    torch.save(weights(), file)
    with pytest.raises(UserError, match="another format"):
        read_tensors(io.BytesIO(file.getvalue()), "net.pth")


def test_a_tensor_that_reaches_beyond_its_storage_is_refused() -> None:
    content = written({"weight": torch.arange(6.0).reshape(2, 3)})
    longer = content.replace(b"K\x02K\x03\x86", b"K\x02K\x09\x86")  # its shape as (2, 9)
    assert longer != content
    with pytest.raises(UserError, match="damaged"):
        read_tensors(io.BytesIO(longer), "net.pth")
