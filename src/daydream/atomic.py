"""Write files so that a reader sees the whole old one or the whole new one, and nothing else."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from daydream.errors import UserError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; rename it to `path` on success, remove it on failure."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        os.chmod(part, 0o644)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


@contextlib.contextmanager
def locked(path: Path, complaint: str) -> Iterator[None]:
    """Hold a lock file while inside; whoever finds it held gets the complaint. The lock dies with its process."""
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system
        yield
        return
    try:
        opened = path.open("w")
    except OSError as error:
        raise UserError(f"{path.parent} cannot be written to: {error.strerror}") from error
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(complaint) from error
        # A holder that left between our opening and our locking took the file away: this lock would hold nobody off.
        if not path.exists() or not os.path.samestat(os.fstat(file.fileno()), path.stat()):
            raise UserError(complaint)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
