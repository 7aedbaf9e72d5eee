"""timm, where it can be imported: torchvision, which it imports, often does not fit the torch that is there."""

import contextlib
import importlib
import sys
from typing import Any

import pytest
import torch

DECLARED: list[Any] = []
"""Of torchvision's operators, which timm's classifiers never call: kept, as they go with the library."""


def real_timm() -> Any:
    """Return timm, or skip the test."""
    with contextlib.suppress(ImportError, RuntimeError):
        return importlib.import_module("timm")
    if not DECLARED:
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        DECLARED.append(library)
    for name in [name for name in sys.modules if name.split(".")[0] in ("timm", "torchvision")]:
        del sys.modules[name]
    try:
        return importlib.import_module("timm")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"timm does not import here: {error}")
