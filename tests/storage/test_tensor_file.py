"""Tensors written by our own writer are read by the package's, and a process killed meanwhile leaves no other name."""

from pathlib import Path
from unittest.mock import patch

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from daydream.storage.tensor_file import KINDS, write_tensors


def test_every_kind_of_number_comes_back(tmp_path: Path) -> None:
    tensors = {
        f"{name}/{shape}": torch.arange(12).reshape(3, 4)[: shape or 3].to(kind)
        for kind, name in KINDS.items()
        for shape in (1, 2, 3)
    }
    tensors |= {
        "scalar": torch.tensor(2.5),
        "none": torch.zeros(0, 3),
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "last": torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last).requires_grad_(),
        "shared": torch.arange(4)[1:],
    }
    write_tensors(tmp_path / "f", tensors, {"about": '{"é": 1}'})
    found = load_file(tmp_path / "f")
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value), name
    with safe_open(tmp_path / "f", framework="pt") as file:
        assert file.metadata() == {"about": '{"é": 1}'}


def test_no_other_file_is_made(tmp_path: Path) -> None:
    """The package's writer left one of its own name where a process was killed."""
    with patch.object(Path, "open", autospec=True, side_effect=Path.open) as opened:
        write_tensors(tmp_path / "f", {"a": torch.zeros(3)})
    assert [call.args[0].name for call in opened.call_args_list] == ["f"]
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
