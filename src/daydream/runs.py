"""A run is a folder: config.json, metrics.jsonl, result.json, checkpoint/ and base/. Nothing in it can run code.

Imports no torch: runs are listed in no time. `checkpoint_files.py` writes and reads checkpoint/ and base/.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daydream import atomic
from daydream.errors import UserError


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path
    writes: bool = True
    """Whether this process writes to it: of several that train one run, only the first does."""

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any]) -> "RunFolder":
        """Make a run's folder; one that exists and is not empty is refused."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            if (path / "config.json").exists():
                raise UserError(
                    f"--out {path} already holds a run: continue it with `daydream resume {path}`, or choose another"
                )
            raise UserError(f"--out {path} exists and is not empty: choose another folder")
        try:
            path.mkdir(parents=True, exist_ok=True)
            atomic.write_json(path / "config.json", config)
        except OSError as error:
            raise UserError(f"--out {path} cannot be written: {error.strerror}") from error
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open an existing run's folder."""
        if not (path / "config.json").is_file():
            raise UserError(f"{path} is not a run: it has no config.json (`daydream list` shows the runs of a folder)")
        if not is_run(read_json(path / "config.json")):
            raise UserError(f"{path} is not a run: its config.json is not one that daydream wrote")
        return cls(path)

    @property
    def config(self) -> dict[str, Any]:
        return read_json(self.path / "config.json")

    @property
    def result(self) -> dict[str, Any] | None:
        path = self.path / "result.json"
        return read_json(path) if path.exists() else None

    @property
    def metrics_size(self) -> int:
        path = self.path / "metrics.jsonl"
        return path.stat().st_size if path.exists() else 0

    def metrics(self) -> list[dict[str, Any]]:
        """Return the rows of metrics.jsonl; a torn last line is left out."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row to metrics.jsonl."""
        if not self.writes:
            return
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def forget_metrics_after(self, size: int) -> None:
        """Drop what was written after a checkpoint: a resumed run writes it again."""
        path = self.path / "metrics.jsonl"
        if self.writes and self.metrics_size > size:
            head = path.read_bytes()[:size]
            with atomic.replacing(path) as part:
                part.write_bytes(head)

    def write_result(self, result: Mapping[str, Any]) -> None:
        atomic.write_json(self.path / "result.json", result)

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keep a second process from training in the same folder."""
        if not self.writes:
            return contextlib.nullcontext()
        complaint = f"{self.path} is being trained by another process; wait for it or stop it first"
        return atomic.locked(self.path / ".lock", complaint)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a run; one that is not JSON is named."""
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON: {error}") from error
    return value


def is_run(config: Any) -> bool:
    """Say whether a config.json is a run's: other programs have files of that name too."""
    return isinstance(config, dict) and isinstance(config.get("run"), dict)


def find_runs(folder: Path) -> list[RunFolder]:
    """Return the runs in a folder and its sub-folders, oldest first."""
    found = [Path(root) for root, _, files in os.walk(folder) if "config.json" in files]
    found = [path for path in found if is_run(read_json(path / "config.json"))]
    return [RunFolder(path) for path in sorted(found, key=lambda p: (p / "config.json").stat().st_mtime)]
