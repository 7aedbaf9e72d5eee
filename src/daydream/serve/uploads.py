"""Pictures as they come: files, and archives of files. Each is decoded before it is kept; what is none is told apart.

A name only says which class a picture is of (`cats/1.jpg`): nothing is ever written under a name that came.
"""

import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import BinaryIO

from daydream.data.decode import SUFFIXES
from daydream.escapes import visible
from daydream.serve.pictures import PICTURE, Pictures, Read, read
from daydream.serve.refusal import Refusal, class_name

MEMBERS = 20_000
UNPACKED = 2**32
"""Pictures in all archives of a request, and the bytes they unpack to."""
KEPT = 200_000
"""Pictures beside a model."""
DAMAGE = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError, OSError)
"""What Python's zipfile raises of an archive that is damaged, locked, or packed in a way it does not know."""
GROUP = 64
"""Pictures that are kept at once; more are never in memory."""
TOLD = 20
"""Pictures passed over that are told one by one."""


@dataclass
class Taken:
    """What came of an upload."""

    kept: dict[str, int] = field(default_factory=dict)
    """By class; the unlabelled ones under no name."""
    doubled: int = 0
    """Pictures that were here before."""
    passed_over: int = 0
    why: list[str] = field(default_factory=list)
    """Of the first that were passed over, each with its reason."""

    def refuse(self, name: str, why: str) -> None:
        self.passed_over += 1
        if len(self.why) < TOLD:
            self.why.append(f"{visible(name)[-80:]}: {visible(' '.join(why.split()))[:160]}")


class Room:
    """What a request may still unpack."""

    def __init__(self) -> None:
        self.members, self.bytes = MEMBERS, UNPACKED

    def take(self, name: str, wanted: list[zipfile.ZipInfo]) -> None:
        self.members -= len(wanted)
        self.bytes -= sum(info.file_size for info in wanted)
        if self.members < 0:
            raise Refusal(413, f"{name} holds {len(wanted):,} pictures; {MEMBERS:,} in a request is the limit")
        if self.bytes < 0:
            raise Refusal(413, f"{name} unpacks to too much: {UNPACKED // 2**30} GiB in a request is the limit")


def taken(pictures: Pictures, side: int, files: Iterable[tuple[str, BinaryIO]], label: str | None, pile: bool) -> Taken:
    """Keep the pictures of an upload: of one class, of those their folders name, or of none.

    What cannot be kept is passed over and told; where nothing at all could be taken of archives, the first says why.
    """
    found, waiting, refused = Taken(), defaultdict[str | None, dict[str, Read]](dict), list[Refusal]()
    here = {one: kept.label for one, kept in pictures.all().items()}
    for inner, content in contents(files, refused):
        try:
            if isinstance(content, Refusal):
                raise content
            of = None if pile else class_name(label if label is not None else folder_of(inner))
            one = read(content, side)
        except MemoryError:
            raise
        except Exception as error:  # a damaged file can raise nearly anything
            found.refuse(inner, str(error) or type(error).__name__)
            continue
        known = one.id in here
        if known and (pile or here[one.id] == of):
            found.doubled += 1
        elif known and here[one.id] is not None:
            found.refuse(inner, f"is here already, of the class '{here[one.id]}': move it there")
        elif not known and len(here) >= KEPT:
            found.refuse(inner, f"there are {KEPT:,} pictures beside this model, which is the limit")
        else:
            waiting[of][one.id], here[one.id] = one, of
            if len(waiting[of]) >= GROUP:
                _keep(pictures, of, waiting.pop(of), found)
    for of, group in waiting.items():
        _keep(pictures, of, group, found)
    if refused and not found.kept and not found.doubled:
        raise refused[0]
    return found


def _keep(pictures: Pictures, label: str | None, group: dict[str, Read], found: Taken) -> None:
    pictures.add(label, group.values())
    found.kept[label or ""] = found.kept.get(label or "", 0) + len(group)


def folder_of(name: str) -> str:
    """Return the folder right above a picture, which is its class."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if len(parts) < 2:
        raise Refusal(422, "nothing says of which class it is: name one, or give a folder for each class")
    return parts[-2]


def contents(files: Iterable[tuple[str, BinaryIO]], refused: list[Refusal]) -> Iterator[tuple[str, "bytes | Refusal"]]:
    """Yield pictures by name, those of archives too, or why one is not taken; an archive refused whole is noted."""
    room = Room()
    for name, file in files:
        if not name.lower().endswith(".zip"):
            content = file.read(PICTURE + 1)
            yield name, content if len(content) <= PICTURE else too_large()
            continue
        try:
            with zipfile.ZipFile(file) as archive:
                wanted = wanted_of(archive, visible(name)[-80:])
                room.take(visible(name)[-80:], wanted)
                yield from unpacked(archive, wanted)
        except DAMAGE as error:
            refused.append(Refusal(422, f"{visible(name)[-80:]} is damaged or no zip: {visible(str(error))[:100]}"))
            yield name, refused[-1]
        except Refusal as refusal:
            refused.append(refusal)
            yield name, refusal


def wanted_of(archive: zipfile.ZipFile, name: str) -> list[zipfile.ZipInfo]:
    """Return the pictures of an archive; a name that leads elsewhere refuses the whole."""
    inner = [info for info in archive.infolist() if not info.is_dir()]
    for info in inner:
        parts = info.filename.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or ":" in parts[0]:
            raise Refusal(422, f"{name} holds a name that leads out of its folder: {visible(info.filename)[:80]}")
    wanted = [info for info in inner if is_picture(info.filename)]
    if not wanted:
        raise Refusal(422, f"{name} holds no picture (png, jpg, jpeg, webp, bmp, gif)")
    return wanted


def unpacked(archive: zipfile.ZipFile, wanted: list[zipfile.ZipInfo]) -> Iterator[tuple[str, "bytes | Refusal"]]:
    """Yield the pictures of an archive, one at a time, or why one is not taken."""
    for info in wanted:
        content: bytes | Refusal = too_large()
        if info.file_size <= PICTURE:
            try:
                with archive.open(info) as member:
                    content = member.read(PICTURE + 1)  # whatever the archive says of its size
            except DAMAGE as error:
                content = Refusal(422, f"it is damaged in the zip ({visible(str(error) or type(error).__name__)})")
        large = isinstance(content, bytes) and len(content) > PICTURE
        yield info.filename, too_large() if large else content


def too_large() -> Refusal:
    return Refusal(413, f"it is larger than {PICTURE // 2**20} MiB")


def is_picture(name: str) -> bool:
    path = PurePosixPath(name)
    hidden = any(part.startswith((".", "__MACOSX")) for part in path.parts)
    return path.suffix.lower() in SUFFIXES and not hidden
