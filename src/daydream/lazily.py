"""Names that a room offers, imported when they are first asked for: `daydream --help` must not pay for torch."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def offers(room: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a room that offers names, each from one of its modules."""

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module '{room}' has no attribute '{name}'")
        return getattr(importlib.import_module(f"{room}.{names[name]}"), name)

    return find
