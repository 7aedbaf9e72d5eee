"""Keep decoded sets on disk, so that the second run starts at once.

A file holds one sealed header line and the raw pixels. It is used only when its header names this very list of files
(path, size, time of change), its length is exact and every block has its checksum; otherwise the set is decoded again.
The pixels are read into memory, not mapped: a file that shrinks under a running process must not crash it.
"""

import hashlib
import json
import logging
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import PIL
from numpy.typing import NDArray

from daydream import atomic
from daydream.data import decode
from daydream.data.decode import Decoding
from daydream.data.decode_pool import decode_all

log = logging.getLogger("daydream")

BLOCK = 2**26
"""Bytes under one checksum."""


def cache_folder() -> Path:
    """Return $DAYDREAM_CACHE, or `daydream` in the user's cache folder."""
    own, shared = os.environ.get("DAYDREAM_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own)
    return (Path(shared) if shared else Path.home() / ".cache") / "daydream"


def decode_cached(label: str, root: Path, paths: Sequence[str], canvas: int) -> Decoding:
    """Return the decoded images, from the cache where it holds them; `label` tells a root's sets apart.

    A set that changed takes its old file's place, so the cache does not grow with every change of the source.
    """
    slot = hashlib.sha256(repr((str(root.resolve()), label, canvas)).encode()).hexdigest()[:16]
    folder = cache_folder()
    file, key = folder / f"{label}-{slot}.images", _key(paths, canvas)
    cached = _read(file, key, (len(paths), 3, canvas, canvas))
    if cached is not None and not _mended(cached, paths, canvas):
        return cached
    decoding = decode_all(paths, canvas)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(file, key, decoding)
    except OSError as error:
        log.info("going on without a cache of decoded images: %s", error)
    return decoding


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


def _write(path: Path, key: str, decoding: Decoding) -> None:
    sums = [zlib.crc32(block) for block in _blocks(decoding.pixels)]
    header = json.dumps({"key": key, "sums": sums, "failures": list(decoding.failures.items())}).encode()
    with atomic.replacing(path) as part, part.open("wb") as file:
        file.write(_seal(header) + b" " + header + b"\n")
        for block in _blocks(decoding.pixels):
            file.write(block)
    log.info("decoded images cached in %s (%.2f GB)", path, decoding.pixels.nbytes / 1e9)


def _read(path: Path, key: str, shape: tuple[int, ...]) -> Decoding | None:
    """Return what a file holds, or nothing where it is absent, of other content or damaged."""
    try:
        with path.open("rb") as file:
            header = _header(file.readline())
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
