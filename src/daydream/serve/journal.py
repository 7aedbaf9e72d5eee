"""What is under way, on the disk beside the model, so that a server that was killed can say what was interrupted."""

import contextlib
import json
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daydream import atomic
from daydream.serve.pictures import entries_of, refuse_link

MOST = 2**26
"""Bytes of one: IDs of some millions of pictures."""


@dataclass(frozen=True)
class Journal:
    """The file of one model."""

    path: Path

    def begin(self, what: str, **words: Any) -> None:
        """Note that something begins."""
        refuse_link(self.path.parent)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with atomic.replacing(self.path, atomic.PRIVATE) as part:
            part.write_text(json.dumps({"what": what, **words}), encoding="utf-8")

    def end(self) -> None:
        self.path.unlink(missing_ok=True)

    def left(self) -> dict[str, Any] | None:
        """Return what was under way when the server last ended, if anything was."""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(atomic.read(self.path, MOST))
            if isinstance(found, dict) and isinstance(found.get("what"), str):
                return found
        return None


UPLOAD = re.compile(r"upload-[0-9a-f]{16}\.json")
"""The journal of an upload, of which there may be several at once."""


def upload_in(folder: Path) -> Journal:
    return Journal(folder / f"upload-{secrets.token_hex(8)}.json")


def uploads_left(folder: Path) -> list[Journal]:
    """Return the uploads that were under way when the server last ended."""
    found = (entry for entry in entries_of(folder) if UPLOAD.fullmatch(entry.name))
    return [Journal(folder / entry.name) for entry in found if entry.is_file(follow_symlinks=False)]


def interrupted(left: dict[str, Any], changed: bool) -> str:
    """Say what was interrupted, and how the model is now."""
    names = ", ".join(map(str, left.get("names", [])[:5])) if isinstance(left.get("names"), list) else ""
    what = {
        "learn": "A lesson",
        "undo": "An undo",
        "forget": f"Forgetting {names}",
        "forget_digests": "Forgetting pictures",
        "rename": "A renaming",
        "merge": "A merging of classes",
        "move": "A moving of pictures",
    }.get(left["what"], "A change")
    if left["what"] == "upload":
        return (
            "Sending pictures was interrupted when the server ended: all that had been acknowledged are there. "
            "Send the others again; those that came are passed over."
        )
    how = "it had been written, and the model is whole." if changed else "the model is as it was before it."
    return f"{what} was interrupted when the server ended: {how} All pictures that had been taken are there."
