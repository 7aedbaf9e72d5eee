"""Read a few members of a tar archive into memory; whatever it unpacks to, a little is all that is taken.

A compressed archive of a megabyte can unpack to gigabytes, in its members or in the headers before them.
"""

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, ValueError, OverflowError)
"""What a damaged archive may raise."""
AT_ONCE = 2**24
"""Most bytes read in one piece: of a header, as members are read in small pieces."""
IN_ALL = 2**29
"""Most bytes that an archive may unpack to."""
OPENERS: Mapping[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}


class TooMuch(Exception):
    """An archive unpacks to more than it is expected to hold."""


class Bounded:
    """A file that is read so far and no further."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= AT_ONCE:
            raise TooMuch
        self.seek(self.file.tell())
        return self.file.read(size)

    def seek(self, place: int) -> int:
        if place > IN_ALL:
            raise TooMuch
        return self.file.seek(place)

    def tell(self) -> int:
        return self.file.tell()


def members(path: Path, wanted: Mapping[str, str], most: int) -> tuple[dict[str, bytes], list[str]]:
    """Return what an archive holds of the wanted files, by the values of `wanted`, and the names of its other files.

    Together the wanted may hold `most` bytes.
    """
    raw: dict[str, bytes] = {}
    others: list[str] = []
    with _unpacked(path) as file, tarfile.open(fileobj=cast(Any, Bounded(file)), mode="r:") as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if not member.isreg():
                continue
            if name not in wanted:
                others.append(name)
                continue
            most -= member.size
            if most < 0:
                raise TooMuch
            content = archive.extractfile(member)
            assert content is not None
            raw[wanted[name]] = content.read()
    return raw, others


def _unpacked(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        start = file.read(6)
    opener = next((opener for magic, opener in OPENERS.items() if start.startswith(magic)), open)
    return cast(BinaryIO, opener(path, "rb"))
