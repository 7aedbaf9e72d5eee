"""The pictures beside a model: MODEL.pictures/, its owner's alone.

    classes/NAME/ID.jpg    of a class, taught or waiting for the next lesson: the model knows which it has learnt
    pile/ID.jpg            unlabelled
    journal.json           what is under way, so that a server that was killed can say what it was

An ID is the digest of a picture's stored pixels, the same by which the model knows it. A picture is acknowledged once
it is on the disk under its name.
"""

import contextlib
import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image

from daydream import atomic
from daydream.data.decode import digest_of, opened_bytes, square
from daydream.escapes import visible
from daydream.serve import turns
from daydream.serve.refusal import Refusal, class_name

NAME = re.compile(r"(?P<id>[0-9a-f]{16})\.(jpg|png|webp|bmp|gif)")
PART = re.compile(rf"\.{NAME.pattern}\.[0-9a-f]{{8}}\.part")
"""What `atomic` calls a picture that is being written."""
NOTE = re.compile(r"\.(journal|new|right|upload-[0-9a-f]{16})\.json\.[0-9a-f]{8}\.part")
"""And what it calls a note of what is under way."""
SUFFIXES = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "BMP": "bmp", "GIF": "gif"}
LESSON = re.compile(r"lesson-[0-9a-f]{16}")
"""The folder of a lesson under way."""
BESIDE = ".pictures"
PICTURE = 2**26
"""Bytes of one picture."""


@dataclass(frozen=True)
class Kept:
    """A picture that is kept; of no class where it is unlabelled."""

    id: str
    label: str | None
    path: Path


@dataclass(frozen=True)
class Read:
    """A picture that was read, not yet on the disk."""

    id: str
    suffix: str
    content: bytes


def read(content: bytes, side: int) -> Read:
    """Decode a picture to learn that it is one and which; a file that is none raises nearly anything."""
    with opened_bytes(BytesIO(content), side) as image, turns.decoding(image):
        suffix = SUFFIXES[str(image.format)]
        return Read(id_of(digest_of(square(image, side))), suffix, content)


def id_of(digest: int) -> str:
    return f"{digest % 2**64:016x}"


def digest_of_id(text: str) -> int:
    """Return the digest that an ID writes."""
    number = int(text, 16)
    return number - 2**64 if number >= 2**63 else number


class Pictures:
    """The pictures of one model."""

    def __init__(self, model: Path) -> None:
        self.folder = model.with_name(model.name + BESIDE)
        self.pile, self.classes = self.folder / "pile", self.folder / "classes"
        self.lock = threading.RLock()
        self._seen: tuple[object, ...] | None = None
        self._kept: dict[str, Kept] = {}

    def open(self) -> None:
        """Take away what a killed server left half done, by its exact name: parts of files, folders of a lesson."""
        folders = self._folders().values()
        for entry in entries_of(self.folder):
            if LESSON.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif NOTE.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)
        for folder in folders:
            for entry in entries_of(folder):
                if PART.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    os.unlink(entry.path)

    def check(self) -> None:
        """Refuse a link in the place of one of our folders: what lies behind it is another's."""
        for folder in (self.folder, self.classes, self.pile):
            refuse_link(folder)

    def all(self) -> Mapping[str, Kept]:
        """Return the pictures by ID."""
        with self.lock:
            folders = self._folders()
            seen = tuple((name, folder.stat().st_mtime_ns) for name, folder in folders.items())
            if seen != self._seen:
                found = {}
                for label, folder in folders.items():
                    for entry in sorted(entries_of(folder), key=lambda entry: entry.name):
                        if (match := NAME.fullmatch(entry.name)) and entry.is_file(follow_symlinks=False):
                            found[match["id"]] = Kept(match["id"], label, folder / entry.name)
                self._seen, self._kept = seen, found
            return self._kept

    def _folders(self) -> dict[str | None, Path]:
        """Return the folders of pictures by class, that of the pile first; links are none."""
        self.check()
        found: dict[str | None, Path] = {None: self.pile} if self.pile.is_dir() else {}
        names = sorted(entry.name for entry in entries_of(self.classes) if entry.is_dir(follow_symlinks=False))
        return found | {name: self.classes / name for name in names if not name.startswith(".")}

    def _place(self, label: str | None) -> Path:
        """Return the folder of a class; a name out of a stranger's model file leads nowhere else."""
        if label is not None and class_name(label) != label:
            raise Refusal(422, f"'{visible(label)[:80]}' cannot be the name of a folder: rename the class")
        self.check()
        folder = self.pile if label is None else self.classes / label
        refuse_link(folder)
        for made in (self.folder, folder.parent, folder):
            made.mkdir(mode=0o700, exist_ok=True)
        return folder

    def add(self, label: str | None, pictures: Iterable[Read]) -> None:
        """Keep pictures; when it returns they are on the disk under their names. Labelled ones leave the pile."""
        with self.lock:
            known, folder, parts = self.all(), self._place(label), []
            try:
                for picture in pictures:
                    path = folder / f"{picture.id}.{picture.suffix}"
                    part = atomic.create_part(path, atomic.PRIVATE)
                    parts.append(part)
                    part.write_bytes(picture.content)
                    atomic.settle(part)
                    os.replace(part, path)
                    if (old := known.get(picture.id)) is not None and old.path != path:
                        old.path.unlink(missing_ok=True)
                for made in (folder, folder.parent, self.folder, self.folder.parent):
                    atomic.settle_folder(made)
            finally:
                for part in parts:
                    part.unlink(missing_ok=True)
                self._seen = None

    def move(self, ids: Iterable[str], label: str) -> None:
        """Put pictures into a class; where none of them is kept, no folder is made."""
        with self.lock:
            known = self.all()
            going = [known[one] for one in dict.fromkeys(ids) if one in known and known[one].label != label]
            if not going:
                return
            folder = self._place(label)
            for kept in going:
                os.replace(kept.path, folder / kept.path.name)
                self._without(kept.path.parent)
            atomic.settle_folder(folder)
            self._seen = None

    def rename(self, name: str, to: str) -> None:
        self.move([kept.id for kept in self.all().values() if kept.label == name], to)

    def remove(self, ids: Iterable[str]) -> None:
        """Delete pictures."""
        with self.lock:
            known, folders = self.all(), set()
            for one in ids:
                if (kept := known.get(one)) is not None:
                    kept.path.unlink(missing_ok=True)
                    folders.add(kept.path.parent)
            for folder in folders:
                atomic.settle_folder(folder)
                self._without(folder)
            self._seen = None

    def _without(self, folder: Path) -> None:
        """Take away a class's folder when it is empty."""
        with contextlib.suppress(OSError):
            if folder != self.pile:
                folder.rmdir()

    @contextlib.contextmanager
    def lesson(self, ids: Iterable[str]) -> Iterator[Path]:
        """Yield a folder of one's own with these pictures by class; what comes meanwhile is not in it."""
        self.check()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = self.folder / f"lesson-{secrets.token_hex(8)}"
        staged.mkdir(mode=0o700)
        try:
            known = self.all()
            for one in ids:
                kept = known[one]
                folder = staged / (kept.label or "pile")
                folder.mkdir(exist_ok=True)
                try:
                    os.link(kept.path, folder / kept.path.name)
                except OSError:  # a disk without second names for a file
                    shutil.copyfile(kept.path, folder / kept.path.name)
            yield staged
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    @property
    def unlabelled(self) -> list[str]:
        return [kept.id for kept in self.all().values() if kept.label is None]

    def get(self, one: str) -> Kept:
        kept = self.all().get(one)
        if kept is None:
            raise Refusal(404, f"there is no picture '{one[:40]}' here")
        return kept

    def thumbnail(self, one: str, side: int) -> bytes:
        """Return a picture as a small JPEG: never the bytes that were uploaded."""
        content = atomic.read(self.get(one).path, PICTURE)
        with opened_bytes(BytesIO(content), side) as image, turns.decoding(image):
            small = Image.fromarray(square(image, side).transpose(1, 2, 0))
        out = BytesIO()
        small.save(out, "JPEG", quality=82)
        return out.getvalue()


def entries_of(folder: Path) -> list[os.DirEntry[str]]:
    """Return what lies in a folder; nothing where there is none."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def refuse_link(folder: Path) -> None:
    if folder.is_symlink():
        raise Refusal(409, f"{visible(folder.name)} is a link, and pictures are never kept through one: take it away")
