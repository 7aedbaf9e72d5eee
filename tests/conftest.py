"""What every test has around it."""

import os

import pytest
import torch

torch.set_num_threads(1)
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # tests import onnxruntime themselves
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("DAYDREAM_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
