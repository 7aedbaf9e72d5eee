"""Keep decoded sets on disk, so that the second run starts at once.

A file holds one sealed header line and the raw pixels. It is used only when its header names this very list of files
(path, size, time of change), its length is exact and every block has its checksum; otherwise the set is decoded again.
The pixels are read into memory, not mapped: a file that shrinks under a running process must not crash it.

What lies here are someone's pictures: the folder and its files are their owner's alone, and of those that are over the
limit the least recently used go.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import PIL
from numpy.typing import NDArray

from daydream import atomic
from daydream.data import decode
from daydream.data.decode import Decoding
from daydream.data.decode_pool import decode_all
from daydream.errors import UserError

log = logging.getLogger("daydream")

BLOCK = 2**26
"""Bytes under one checksum."""
LIMIT_GIB = 40.0
"""The cache holds at most this much; $DAYDREAM_CACHE_GB overrides it."""
HEADER = 2**26
"""Most bytes of a header: a line for each image that could not be decoded."""
NAME = re.compile(r"(?P<label>[a-z0-9-]+)-[0-9a-f]{16}\.images")
FOLDERS = ("features", "networks")
"""Folders of what a frozen network makes of pictures, and of what it takes to do so quickly."""
DERIVED = {".features": "features of pictures", ".onnx": "a frozen network", ".npy": "a frozen network's projection"}
LESSONS = "learn"
"""How labels of the sets of lessons begin: their classes, their tests, their piles."""
PART = re.compile(rf"\.{NAME.pattern}\.[0-9a-z_]{{8}}\.part")


@dataclass(frozen=True)
class Slot:
    """A file of the cache."""

    path: Path
    bytes: int
    used: float
    """When it was last read or written, in seconds since 1970."""

    @property
    def label(self) -> str:
        if self.path.suffix in DERIVED:
            return DERIVED[self.path.suffix]
        found = NAME.fullmatch(self.path.name)
        return found["label"] if found else "left by a process that was killed"

    @property
    def source(self) -> str:
        """Return the folder whose images these are, where the file says so."""
        if self.path.suffix in DERIVED:
            return ""
        try:
            with self.path.open("rb") as file:
                return str((_header(file.readline(HEADER)) or {}).get("root", ""))
        except OSError:
            return ""


def cache_folder() -> Path:
    """Return $DAYDREAM_CACHE, or `daydream` in the user's cache folder."""
    own, shared = os.environ.get("DAYDREAM_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own)
    return (Path(shared) if shared else Path.home() / ".cache") / "daydream"


def private(name: str) -> Path:
    """Return a folder of the cache, its owner's alone; it is made if it is not there."""
    folder = cache_folder() / name
    _make(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def decode_cached(label: str, root: Path, paths: Sequence[str], canvas: int) -> Decoding:
    """Return the decoded images, from the cache where it holds them; `label` tells a root's sets apart.

    A set that changed takes its old file's place, so the cache does not grow with every change of the source.
    """
    slot = hashlib.sha256(repr((str(root.resolve()), label, canvas)).encode()).hexdigest()[:16]
    folder = cache_folder()
    file, key = folder / f"{label}-{slot}.images", _key(paths, canvas)
    cached = _read(file, key, (len(paths), 3, canvas, canvas))
    if cached is not None and not _mended(cached, paths, canvas):
        with contextlib.suppress(OSError):
            os.utime(file)
        return cached
    decoding = decode_all(paths, canvas)
    try:
        rights = _make(folder)
        if _make_room(decoding.pixels.nbytes, file):
            _write(file, key, root, decoding, rights)
    except OSError as error:
        log.info("going on without a cache of decoded images: %s", error)
    return decoding


def limit_bytes() -> int:
    """Return how much the cache may hold."""
    text = os.environ.get("DAYDREAM_CACHE_GB", str(LIMIT_GIB))
    try:
        return round(max(0.0, float(text)) * 2**30)
    except (ValueError, OverflowError):
        raise UserError(f"DAYDREAM_CACHE_GB is '{text}', but takes a number of GiB such as {LIMIT_GIB:g}") from None


def slots() -> list[Slot]:
    """Return the files of the cache, the least recently used first; what is not of its making is none."""
    found = []
    with contextlib.suppress(OSError), os.scandir(cache_folder()) as entries:
        for entry in entries:
            if (NAME.fullmatch(entry.name) or PART.fullmatch(entry.name)) and entry.is_file(follow_symlinks=False):
                about = entry.stat(follow_symlinks=False)
                found.append(Slot(Path(entry.path), about.st_size, about.st_mtime))
    for name in FOLDERS:
        with contextlib.suppress(OSError), os.scandir(cache_folder() / name) as entries:
            for entry in entries:
                if os.path.splitext(entry.name)[1] in DERIVED and entry.is_file(follow_symlinks=False):
                    about = entry.stat(follow_symlinks=False)
                    found.append(Slot(Path(entry.path), about.st_size, about.st_mtime))
    return sorted(found, key=lambda slot: slot.used)


def clear() -> int:
    """Delete the files of the cache; return how many bytes they held."""
    return sum(map(_delete, slots()))


def drop() -> int:
    """Delete the decoded pictures of lessons, as someone wants pictures forgotten; return how many bytes they held."""
    return sum(_delete(slot) for slot in slots() if slot.label.startswith(LESSONS) or PART.fullmatch(slot.path.name))


def _delete(slot: Slot) -> int:
    try:
        slot.path.unlink()
    except OSError as error:
        log.warning("%s could not be deleted: %s", slot.path, error.strerror)
        return 0
    return slot.bytes


def _make(folder: Path) -> int:
    """Make the cache's folder, its owner's alone, and return the rights of its files: their owner's alone too.

    Only a folder that was chosen ($DAYDREAM_CACHE), and that others may enter already, is shared with them.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not folder.stat().st_mode & 0o077:
        return atomic.PRIVATE
    if os.environ.get("DAYDREAM_CACHE"):
        return atomic.PUBLIC
    folder.chmod(0o700)
    return atomic.PRIVATE


def _make_room(needed: int, replaced: Path) -> bool:
    """Delete what a killed process left, and what was least recently used, until a set fits; say whether it does."""
    limit, now, kept = limit_bytes(), time.time(), []
    for slot in slots():
        if PART.fullmatch(slot.path.name) and now - slot.used > atomic.ABANDONED:
            _delete(slot)
        elif slot.path.name != replaced.name:
            kept.append(slot)
    if needed > limit:
        log.info("a set of %.2f GB is not cached: the limit is %.2f GB ($DAYDREAM_CACHE_GB)", needed / 1e9, limit / 1e9)
        return False
    room = limit - needed - sum(slot.bytes for slot in kept)
    for slot in kept:
        if room < 0 and not slot.path.name.startswith("."):
            log.info("%s leaves the cache: %s was used longest ago", slot.path.name, slot.label)
            room += _delete(slot)
    return True


def _key(paths: Sequence[str], canvas: int) -> str:
    """Digest what the pixels depend on: the files as they are now, and how they are decoded."""
    digest = hashlib.sha256(repr((decode.VERSION, PIL.__version__, canvas)).encode())
    for path in paths:
        try:
            status = os.stat(path)
            state = f"{status.st_size}\0{status.st_mtime_ns}"
        except OSError:
            state = "absent"
        digest.update(os.fsencode(f"{os.path.abspath(path)}\0{state}\n"))  # a file's name need not be valid UTF-8
    return digest.hexdigest()


def _mended(cached: Decoding, paths: Sequence[str], canvas: int) -> bool:
    """Tell whether an image that failed can be decoded now: a change of rights leaves no trace in size and time."""
    failed = sorted(cached.failures)
    return len(decode.decode_group([paths[i] for i in failed], canvas).failures) < len(failed)


def _write(path: Path, key: str, root: Path, decoding: Decoding, rights: int) -> None:
    sums = [zlib.crc32(block) for block in _blocks(decoding.pixels)]
    about = {"key": key, "root": str(root.resolve()), "sums": sums, "failures": list(decoding.failures.items())}
    header = json.dumps(about).encode()
    with atomic.replacing(path, rights) as part, part.open("wb") as file:
        file.write(_seal(header) + b" " + header + b"\n")
        for block in _blocks(decoding.pixels):
            file.write(block)
    log.info("decoded images cached in %s (%.2f GB)", path, decoding.pixels.nbytes / 1e9)


def _read(path: Path, key: str, shape: tuple[int, ...]) -> Decoding | None:
    """Return what a file holds, or nothing where it is absent, of other content or damaged."""
    try:
        with path.open("rb") as file:
            header = _header(file.readline(HEADER))
            num_bytes = int(np.prod(shape))
            if header is None or header["key"] != key or path.stat().st_size != file.tell() + num_bytes:
                return None
            pixels = np.empty(shape, np.uint8)
            if not _fill(file, pixels, header["sums"]):
                log.info("the cache %s is damaged; decoding again", path)
                return None
    except OSError:
        return None
    return Decoding(pixels, dict(header["failures"]))


def _header(line: bytes) -> dict[str, Any] | None:
    seal, _, header = line.rstrip(b"\n").partition(b" ")
    return json.loads(header) if seal == _seal(header) else None


def _seal(header: bytes) -> bytes:
    return hashlib.sha256(header).hexdigest().encode()


def _fill(file: BinaryIO, pixels: NDArray[np.uint8], sums: list[int]) -> bool:
    """Read the pixels block by block; tell whether each is whole."""
    blocks = list(_blocks(pixels))
    if len(blocks) != len(sums):
        return False
    for block, checksum in zip(blocks, sums, strict=True):
        if file.readinto(block) != len(block) or zlib.crc32(block) != checksum:  # type: ignore[attr-defined]
            return False
    return True


def _blocks(pixels: NDArray[np.uint8]) -> Iterator[memoryview]:
    """Yield the array's memory in blocks."""
    flat = pixels.reshape(-1).data
    for start in range(0, len(flat), BLOCK):
        yield flat[start : start + BLOCK]
