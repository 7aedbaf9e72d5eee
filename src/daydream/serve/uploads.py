"""Pictures as they come: files, and archives of files. Each is decoded before it is kept; what is none is told apart.

A name only says which class a picture is of (`cats/1.jpg`): nothing is ever written under a name that came.
"""

import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import BinaryIO

from daydream.data.decode import SUFFIXES
from daydream.escapes import visible
from daydream.serve.pictures import Pictures, Read, read
from daydream.serve.refusal import Refusal, class_name

PICTURE = 2**26
"""Bytes of one picture."""
MEMBERS = 20_000
UNPACKED = 2**32
"""Pictures in an archive, and the bytes they unpack to."""
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


def taken(pictures: Pictures, side: int, files: Iterable[tuple[str, BinaryIO]], label: str | None, pile: bool) -> Taken:
    """Keep the pictures of an upload: of one class, of those their folders name, or of none."""
    found, waiting = Taken(), defaultdict[str | None, dict[str, Read]](dict)
    here = {one: kept.label for one, kept in pictures.all().items()}
    for name, file in files:
        for inner, content in members(name, file):
            try:
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
            else:
                waiting[of][one.id], here[one.id] = one, of
                if len(waiting[of]) >= GROUP:
                    _keep(pictures, of, waiting.pop(of), found)
    for of, group in waiting.items():
        _keep(pictures, of, group, found)
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


def members(name: str, file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Yield the picture of a file, or those of an archive, by name."""
    if not name.lower().endswith(".zip"):
        content = file.read(PICTURE + 1)
        if len(content) > PICTURE:
            raise Refusal(413, f"{visible(name)[-80:]} is larger than {PICTURE // 2**20} MiB")
        yield name, content
        return
    try:
        with zipfile.ZipFile(file) as archive:
            yield from unpacked(archive, visible(name)[-80:])
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise Refusal(422, f"{visible(name)[-80:]} is damaged or no zip: {visible(str(error))[:100]}") from error


def unpacked(archive: zipfile.ZipFile, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the pictures of an archive, one at a time; a bomb, or a name that leads elsewhere, refuses the whole."""
    inner = [info for info in archive.infolist() if not info.is_dir()]
    for info in inner:
        parts = info.filename.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or ":" in parts[0]:
            raise Refusal(422, f"{name} holds a name that leads out of its folder: {visible(info.filename)[:80]}")
    wanted = [info for info in inner if is_picture(info.filename)]
    if len(wanted) > MEMBERS:
        raise Refusal(413, f"{name} holds {len(wanted):,} pictures; {MEMBERS:,} is the limit")
    if sum(info.file_size for info in wanted) > UNPACKED or any(info.file_size > PICTURE for info in wanted):
        raise Refusal(413, f"{name} unpacks to more than {UNPACKED // 2**30} GiB, or a picture of it is too large")
    if not wanted:
        raise Refusal(422, f"{name} holds no picture (png, jpg, jpeg, webp, bmp, gif)")
    for info in wanted:
        with archive.open(info) as member:
            content = member.read(PICTURE + 1)  # whatever the archive says of its size
        if len(content) > PICTURE:
            raise Refusal(413, f"{name}: {visible(info.filename)[-80:]} unpacks to too much")
        yield info.filename, content


def is_picture(name: str) -> bool:
    path = PurePosixPath(name)
    hidden = any(part.startswith((".", "__MACOSX")) for part in path.parts)
    return path.suffix.lower() in SUFFIXES and not hidden
