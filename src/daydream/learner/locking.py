"""Who may teach a model file: one process at a time, whichever command or page it serves."""

import os
from contextlib import AbstractContextManager
from pathlib import Path

from daydream import atomic
from daydream.errors import UserError


def taught(model: Path) -> AbstractContextManager[None]:
    """Keep a second process from changing the same model file; a folder that cannot hold it is said at once."""
    if not model.parent.is_dir() or not os.access(model.parent, os.W_OK):
        what = "cannot be written to" if model.parent.is_dir() else "is not a folder"
        raise UserError(f"{model.parent} {what}: the model cannot be saved there")
    complaint = f"{model} is being taught by another process; wait until it is done, or stop it"
    return atomic.locked(model.parent / f".{model.name}.lock", complaint)
