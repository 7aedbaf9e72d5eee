"""What every test has around it."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("DAYDREAM_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
