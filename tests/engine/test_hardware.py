"""What a run sets up on the device it was given."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from daydream.engine.hardware import Hardware


@pytest.fixture(autouse=True)
def _switches_put_back() -> Iterator[None]:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    yield
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before


@pytest.mark.parametrize(("name", "current"), [("cuda:1", ["cuda:1"]), ("cuda", []), ("cpu", [])])
def test_a_device_that_is_named_becomes_the_current_one(
    name: str, current: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton launches on the current device, whichever one a tensor lies on."""
    told: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: told.append(str(device)))
    Hardware(torch.device(name), "fp32", compile=False, capture=False).set_up()
    assert told == current


@pytest.mark.parametrize(
    ("device", "precision", "compiled", "bf16", "faster"),
    [
        ("cpu", "fp32", False, True, True),
        ("cpu", "fp32", False, False, False),
        ("cpu", "bf16", False, True, False),
        ("cpu", "fp32", True, True, False),
        ("cuda", "fp32", False, True, False),
    ],
)
def test_where_bf16_and_compilation_would_be_faster(
    device: str, precision: Any, compiled: bool, bf16: bool, faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert Hardware(torch.device(device), precision, compiled, capture=False).could_be_faster == faster
