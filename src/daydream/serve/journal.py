"""What is under way, on the disk beside the model, so that a server that was killed can say what was interrupted."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daydream import atomic

MOST = 2**20


@dataclass(frozen=True)
class Journal:
    """The file of one model."""

    path: Path

    def begin(self, what: str, **words: Any) -> None:
        """Note that something begins."""
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
    how = "it had been written, and the model is whole." if changed else "the model is as it was before it."
    return f"{what} was interrupted when the server ended: {how} All pictures that had been taken are there."
