"""Write files so that a reader sees the whole old one or the whole new one, and nothing else.

A folder may be a stranger's: nothing is ever written through a link, and no file of another's making is cut short.
"""

import contextlib
import errno
import json
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from daydream.errors import UserError

log = logging.getLogger("daydream")

AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
"""How a file is opened to be read: never waiting for a pipe's other end."""
SAFELY = getattr(os, "O_NOFOLLOW", 0) | AT_ONCE
"""How any file is opened to be written: never through a link either."""
HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
"""What the system says of a lock that another process holds."""


PUBLIC, PRIVATE = 0o666, 0o600
"""Rights of a new file, before the umask takes some away: as any program's, or the owner's alone."""


ABANDONED = 3600.0
"""Seconds after which a part that nobody goes on writing is one that a killed process left."""


def parts_of(name: str) -> re.Pattern[str]:
    """Return the names of parts of a file of this name."""
    return re.compile(rf"\.{re.escape(name)}\.[0-9a-z_]{{8}}\.part")


def sweep(path: Path, age: float = 0.0) -> None:
    """Remove the parts of a file that killed processes left beside it, those of that age at least."""
    ours, last = parts_of(path.name), time.time() - age
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            found = ours.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
            if found and (not age or entry.stat(follow_symlinks=False).st_mtime <= last):
                os.unlink(entry.path)


@contextlib.contextmanager
def part_of(path: Path, rights: int = PUBLIC) -> Iterator[Path]:
    """Yield a new file beside `path`, to be brought to its place by `land`; what was not is removed."""
    sweep(path, ABANDONED)
    part = create_part(path, rights)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def create_part(path: Path, rights: int) -> Path:
    while True:
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        with contextlib.suppress(FileExistsError):
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFELY, rights))
            return part


def rights_of(path: Path, otherwise: int = PRIVATE) -> int:
    """Return the rights of a file that is to be replaced; those of a new one where there is none."""
    return stat.S_IMODE(path.stat().st_mode) & PUBLIC if path.is_file() else otherwise


def settle(part: Path) -> None:
    """Bring a written part to the disk."""
    with part.open("rb+") as file:
        os.fsync(file.fileno())


def land(part: Path, path: Path) -> None:
    """Bring a written part to its place, once it is on the disk; a link that is there is replaced, not followed."""
    settle(part)
    os.replace(part, path)
    settle_folder(path.parent)


def settle_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where its system can: a file without its name is lost."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # it may be written to and not read, or the system opens no folders
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES):
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path: Path, rights: int = PUBLIC) -> Iterator[Path]:
    """Yield a temporary name beside `path`; rename it to `path` on success, remove it on failure."""
    with part_of(path, rights) as part:
        yield part
        land(part, path)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_new_json(path: Path, value: Any) -> None:
    """Write a file that must not be there yet: of two that do so at once, one gets a FileExistsError."""
    with part_of(path) as part:
        part.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
        settle(part)
        try:
            os.link(part, path)
        except FileExistsError:
            raise
        except OSError:  # a disk without second names for a file: a lock is all that keeps two apart
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
            os.replace(part, path)
    settle_folder(path.parent)


def read(path: Path, most: int) -> bytes:
    """Return what a file holds; a pipe, a device and one of more than so many bytes are refused, not waited for."""
    with os.fdopen(os.open(path, os.O_RDONLY | AT_ONCE), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no file but a folder, a device or a pipe", str(path))
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"it is larger than {most / 1e6:.0f} MB", str(path))
        return file.read(most + 1)


def signature(path: Path) -> list[int] | None:
    """Return what tells a file from the one that was there before; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def append(path: Path, text: str) -> None:
    """Append to a file, which must be one and no link; one with a second name elsewhere becomes a file of its own."""
    if path.exists() and path.stat().st_nlink > 1:
        with replacing(path) as part:
            part.write_bytes(path.read_bytes())
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | SAFELY, PUBLIC)
    with os.fdopen(handle, "a", encoding="utf-8") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        file.write(text)


@contextlib.contextmanager
def locked(path: Path, complaint: str) -> Iterator[None]:
    """Hold a lock file while inside; whoever finds it held gets the complaint. The lock dies with its process."""
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system
        yield
        return
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | SAFELY, PRIVATE)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise UserError(f"{path} is a link or no file, so it is no lock of daydream's: take it away") from error
        raise UserError(f"{path.parent} cannot be written to: {error.strerror}") from error
    with os.fdopen(handle, "rb+", buffering=0) as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size:
            raise UserError(f"{path} holds something, so it is no lock of daydream's: take it away")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in HELD:
                raise UserError(complaint) from error
            log.warning("%s cannot be locked (%s): see that no second process writes there", path, error.strerror)
        # A holder that left between our opening and our locking took the file away: this lock would hold nobody off.
        if not path.exists() or not os.path.samestat(os.fstat(handle), path.stat()):
            raise UserError(complaint)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
