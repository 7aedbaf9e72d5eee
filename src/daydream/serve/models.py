"""The models that are served: one file, or those of a folder."""

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Any

from daydream.serve.jobs import Workers
from daydream.serve.pictures import BESIDE
from daydream.serve.refusal import Refusal
from daydream.serve.served import SUFFIX, Served

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _-]{0,62}")
RESTED = 20.0
"""Seconds between two looks at idle processes."""


def is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


class Models:
    """All that are served: one file, or those of a folder."""

    def __init__(self, place: Path, keep: bool = True) -> None:
        self.place, self.keep = place, keep
        self.folder = place.is_dir()
        self.found: dict[str, Served] = {}
        self.workers = Workers()

    def all(self) -> list[Served]:
        """Return them by name; files of the folder may come and go."""
        paths = [self.place]
        if self.folder:
            begun = (path.with_suffix("") for path in self.place.glob(f"*{SUFFIX}{BESIDE}") if is_folder(path))
            paths = sorted({*begun, *(path for path in self.place.glob(f"*{SUFFIX}") if path.is_file())})
        for path in paths:
            if path.name not in self.found:
                self.found[path.name] = Served(path, {}, self.keep, self.workers)
        return [self.found[name] for name in sorted(self.found)]

    def get(self, name: str) -> Served:
        for served in self.all():
            if served.name == name:
                return served
        raise Refusal(404, f"there is no model '{name[:64]}' here")

    def add(self, name: str, made: dict[str, Any]) -> Served:
        """Name a new model; its file comes with its first lesson."""
        if not self.folder:
            raise Refusal(409, "one model is served: start the server on a folder to have several")
        if not NAME.fullmatch(name):
            raise Refusal(
                422, "a model's name takes letters, digits, spaces, - and _, and begins with one of the former"
            )
        path = self.place / f"{name}{SUFFIX}"
        if path.name in self.found or path.exists():
            raise Refusal(409, f"there is a model '{name}' already")
        self.found[path.name] = served = Served(path, made, self.keep, self.workers)
        served.new.begin("new", made=made)
        return served

    def drop(self, served: Served) -> None:
        """Take back a new model that cannot be made."""
        served.new.end()
        with contextlib.suppress(OSError):
            served.pictures.folder.rmdir()
        self.found.pop(served.path.name, None)

    async def rest(self) -> None:
        """Let processes go that have had nothing to do, for as long as the server runs."""
        while True:
            await asyncio.sleep(RESTED)
            await self.workers.rest()

    async def close(self) -> None:
        await asyncio.gather(*(served.close() for served in self.found.values()))
        await self.workers.close()
