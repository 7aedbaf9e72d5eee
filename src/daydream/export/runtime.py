"""onnxruntime, kept quiet: from version 1.29 on it reports its use to its maker, on Linux too, unless told otherwise.

It reads that when it is imported, so every import of ours is this one. It imports no torch.
"""

import importlib
import os
from typing import Any

SILENT = "ORT_DISABLE_TELEMETRY"


def onnxruntime() -> Any:
    """Return the module, which sends nothing and notes nothing about this machine unless the environment says so."""
    os.environ.setdefault(SILENT, "1")
    return importlib.import_module("onnxruntime")
