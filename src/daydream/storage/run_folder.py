"""A run is a folder: config.json, metrics.jsonl, result.json, checkpoint/ and base/. Nothing in it can run code.

Imports no torch: runs are listed in no time. `checkpoint_files.py` writes and reads checkpoint/ and base/.
"""

import contextlib
import json
import logging
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daydream import atomic
from daydream.errors import UserError
from daydream.escapes import from_json
from daydream.settings import mismatch
from daydream.storage.older import upgraded
from daydream.storage.records import ROWS, Latest, Result, StoredConfig

log = logging.getLogger("daydream")

JSON_BYTES, METRICS_BYTES = 2**24, 2**28
"""Most bytes of a run's files: a hundred times what long runs have written."""
LOCK = ".lock"
WRITTEN = ("metrics.jsonl", "checkpoint", "base", "tensorboard")
"""What a run goes on writing to."""
WHOLE = ("config.json", "metrics.jsonl", "result.json", "checkpoint/latest.json", "base/latest.json")
"""What is only ever replaced whole."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path
    writes: bool = True
    """Whether this process writes to it: of several that train one run, only the first does."""

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any]) -> "RunFolder":
        """Make a run's folder; one that exists and is not empty is refused."""
        with cls.creating(path, config) as run:
            return run

    @classmethod
    @contextlib.contextmanager
    def creating(cls, path: Path, config: Mapping[str, Any], writes: bool = True) -> "Iterator[RunFolder]":
        """Make a run's folder and hold it while inside.

        It is locked before it is looked into: of two that begin in it at once, one alone writes what it is.
        """
        run = cls(path, writes)
        if not writes:
            yield run
            return
        refuse_taken(path)
        with run.saying_that_it_cannot_be_made():
            path.mkdir(parents=True, exist_ok=True)
        with run.locked():
            refuse_taken(path)
            with run.saying_that_it_cannot_be_made():
                atomic.write_new_json(path / "config.json", config)
            yield run

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open an existing run's folder."""
        if not (path / "config.json").is_file():
            raise UserError(f"{path} is not a run: it has no config.json (`daydream list` shows the runs of a folder)")
        if not is_run(read_json(path / "config.json", Any)):
            raise UserError(f"{path} is not a run: its config.json is not one that daydream wrote")
        return cls(path)

    @property
    def config(self) -> dict[str, Any]:
        """Return the settings, in today's words."""
        return upgraded(read_json(self.path / "config.json", StoredConfig))

    @property
    def format(self) -> Any:
        """Return the format that its settings were written in."""
        return read_json(self.path / "config.json", StoredConfig)["format"]

    @property
    def result(self) -> dict[str, Any] | None:
        path = self.path / "result.json"
        if not path.exists():
            return None
        result = read_json(path, Result)
        return {**result, "config": upgraded(result["config"])} if isinstance(result.get("config"), dict) else result

    @property
    def tasks_done(self) -> int:
        """Return the tasks that the last checkpoint has behind it."""
        path = self.path / "checkpoint" / "latest.json"
        return int(read_json(path, Latest)["cursor"]["task"]) if path.exists() else 0

    @property
    def identity(self) -> dict[str, Any] | None:
        """Return what the last checkpoint says the run is; None where there is none yet."""
        path = self.path / "checkpoint" / "latest.json"
        found: dict[str, Any] | None = read_json(path, Latest)["identity"] if path.exists() else None
        return found

    @property
    def metrics_size(self) -> int:
        path = self.path / "metrics.jsonl"
        return path.stat().st_size if path.exists() else 0

    def metrics(self) -> list[dict[str, Any]]:
        """Return the rows of metrics.jsonl; a torn last line is left out."""
        path, rows = self.path / "metrics.jsonl", []
        try:
            lines = atomic.read(path, METRICS_BYTES).splitlines(keepends=True) if path.exists() else []
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from error
        for number, line in enumerate(lines, 1):
            if line.endswith(b"\n"):
                try:
                    rows.append(from_json(line))
                except (ValueError, RecursionError) as error:
                    raise UserError(f"{path} is damaged: line {number} is not JSON") from error
                if wrong := wrong_row(rows[-1]):
                    raise UserError(f"{path} is damaged: line {number} is no row of a run: {wrong}")
        for place, row in enumerate(row for row in rows if row["kind"] == "task"):
            for kind in ("cnn", "nme"):
                if row["task"] != place or (row[kind] and len(row[kind]["per_task"]) != place + 1):
                    raise UserError(f"{path} is damaged: its tasks do not follow each other")
        return rows

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row to metrics.jsonl."""
        if not self.writes:
            return
        path = self.path / "metrics.jsonl"
        with self.saying_what_failed(path):
            atomic.append(path, json.dumps(row) + "\n")

    def forget_metrics_after(self, size: int, tasks: Sequence[Mapping[str, Any]] = ()) -> None:
        """Drop what was written after a checkpoint: a resumed run writes it again.

        If the machine lost the end of the file, what is whole of it stays, and the tasks that the checkpoint knows are
        written again.
        """
        path = self.path / "metrics.jsonl"
        if not self.writes or self.metrics_size == size:
            return
        kept = atomic.read(path, METRICS_BYTES)[:size] if path.exists() else b""
        kept = kept[: kept.rfind(b"\n") + 1]
        with self.saying_what_failed(path), atomic.replacing(path) as part:
            part.write_bytes(kept)
        if len(kept) < size:
            log.warning("%s had lost its end: what it says of epochs is not whole", path)
            there = {row["task"] for row in self.metrics() if row["kind"] == "task"}
            for row in tasks:
                if row["task"] not in there:
                    self.append({"kind": "task", **row})

    def write_result(self, result: Mapping[str, Any]) -> None:
        with self.saying_what_failed(self.path / "result.json"):
            atomic.write_json(self.path / "result.json", result)

    @contextlib.contextmanager
    def saying_that_it_cannot_be_made(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"--out {self.path} cannot be written: {error.strerror}") from error

    @contextlib.contextmanager
    def saying_what_failed(self, path: Path) -> Iterator[None]:
        """Turn a file that cannot be written into a line that says how to go on."""
        try:
            yield
        except OSError as error:
            refuse_gone(self.path)
            raise UserError(
                f"{path} cannot be written: {error.strerror}; the last checkpoint is intact: make room for it and "
                f"`{resume_command(self.path)}`"
            ) from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process from training in the same folder; refuse one that would be written to elsewhere."""
        if not self.writes:
            yield
            return
        for name in WRITTEN:
            refuse_link(self.path / name)
        complaint = f"{self.path} is being trained by another process; wait for it or stop it first"
        with atomic.locked(self.path / LOCK, complaint):
            for name in WHOLE:
                atomic.sweep(self.path / name)
            yield


def refuse_taken(path: Path) -> None:
    """Raise the user's mistake if a run cannot begin in a folder, since something lies in it."""
    if (path / "config.json").exists():
        raise UserError(
            f"--out {path} already holds a run: continue it with `{resume_command(path)}`, or choose another"
        )
    ours = atomic.parts_of("config.json")  # of a run that was killed before it was one
    if path.exists() and (
        not path.is_dir() or any(found.name != LOCK and not ours.fullmatch(found.name) for found in path.iterdir())
    ):
        raise UserError(f"--out {path} exists and is not empty: choose another folder")


def refuse_gone(path: Path) -> None:
    """Raise the user's mistake if a run's folder was taken away while it ran."""
    if not path.is_dir():
        raise UserError(f"{path} is gone: somebody moved or deleted the run's folder while it was being trained")


def refuse_link(path: Path) -> None:
    """Raise the user's mistake if a run or a lesson would write through a link: it may point to another's files."""
    if path.is_symlink():
        raise UserError(f"{path} is a link, and nothing is written through one: put what it points to in its place")


def resume_command(path: Path) -> str:
    """Return the command that goes on with a run, as a shell takes it."""
    return shlex.join(["daydream", "resume", str(path)])


def read_json(path: Path, record: Any = Any) -> dict[str, Any]:
    """Read a JSON file of a run as a record; one that is not JSON, or is not like the record, is named."""
    try:
        value = from_json(atomic.read(path, JSON_BYTES))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as JSON: {error}") from error
    if wrong := mismatch(value, record, ""):
        raise UserError(f"{path} is damaged: {wrong}")
    found: dict[str, Any] = value
    return found


def wrong_row(row: Any) -> str:
    """Say what is wrong with a row of metrics.jsonl."""
    if not isinstance(row, dict) or not isinstance(row.get("kind"), str):
        return "it does not say 'kind'"
    wrong = mismatch(row, ROWS.get(row["kind"], Any), "")
    if not wrong and row["kind"] == "confusion":
        size, counts = len(row["names"]), [row[kind] for kind in ("cnn", "nme") if kind in row]
        square = all(len(table) == size and all(len(line) == size for line in table) for table in counts)
        wrong = "" if square else "its counts are not square"
    return wrong


def is_run(config: Any) -> bool:
    """Say whether a config.json is a run's: other programs have files of that name too."""
    return isinstance(config, dict) and isinstance(config.get("run"), dict)


def find_runs(folder: Path) -> list[RunFolder]:
    """Return the runs in a folder and its sub-folders, oldest first."""
    found = [Path(root) for root, _, files in os.walk(folder) if "config.json" in files]
    found = [path for path in found if _is_readable_run(path)]
    return [RunFolder(path) for path in sorted(found, key=lambda p: (p / "config.json").stat().st_mtime)]


def _is_readable_run(path: Path) -> bool:
    """Say whether a folder is a run's; a file that cannot be read is named, and its neighbours are still found."""
    try:
        return is_run(read_json(path / "config.json", Any))
    except UserError as error:
        log.warning("%s is left out: %s", path, error)
        return False
