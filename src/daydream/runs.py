"""A run is a folder: config.json, metrics.jsonl, result.json, checkpoint/ and base/. Nothing in it can run code.

A checkpoint is one safetensors file per component, named by its content, and `latest.json`, which names them and is
replaced last: whatever moment a run dies at, `latest.json` speaks of files that are whole.
"""

import contextlib
import hashlib
import json
import os
from collections import deque
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from daydream import atomic
from daydream.errors import UserError

Components = Mapping[str, Mapping[str, Tensor]]
UNWRITTEN = 2  # checkpoints that may wait to be written: a large one, and the one that soon follows it


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


def save_checkpoint(
    folder: Path, info: Mapping[str, Any], components: Components, unchanged: Collection[str] = ()
) -> None:
    """Write a checkpoint beside the previous one, then let `latest.json` name it, then drop what nothing names.

    Components in `unchanged` are those of the previous checkpoint: they are named again, not written again.
    """
    try:
        folder.mkdir(exist_ok=True)
        files = {
            name: _write_component(folder, name, tensors)
            for name, tensors in components.items()
            if name not in unchanged
        }
        if unchanged:
            before = read_json(folder / "latest.json")["files"]
            files |= {name: before[name] for name in unchanged}
        atomic.write_json(folder / "latest.json", {**info, "files": files})
        for path in folder.iterdir():
            if path.name != "latest.json" and path.name not in files.values():
                path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"the checkpoint could not be written to {folder}: {error.strerror or error}; the previous one is intact: "
            f"free some space and `daydream resume {folder.parent}`"
        ) from error


class CheckpointWriter:
    """Writes a run's checkpoints in a thread, one after the other, while the run goes on.

    What a checkpoint holds is copied to the host before `save` returns: the thread never speaks to a GPU, on which a
    step may be being captured. If a checkpoint cannot be written, no later one is, since it may name files of it as
    unchanged; the next `save` or `wait` says why.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.unwritten: deque[Future[None]] = deque()
        self.latest: Future[None] | None = None

    def save(self, info: Mapping[str, Any], components: Components, unchanged: Collection[str] = ()) -> None:
        """Let a checkpoint be written, as `save_checkpoint` does; wait only if too many wait already."""
        self.wait(UNWRITTEN - 1)
        copies = {
            name: {
                key: value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
                for key, value in tensors.items()
            }
            for name, tensors in components.items()
            if name not in unchanged
        }
        before = self.latest

        def write() -> None:
            if before is not None:
                before.result()  # done by now, but it may have failed
            save_checkpoint(self.folder, info, copies, unchanged)

        self.latest = self.pool.submit(write)
        self.unwritten.append(self.latest)

    def wait(self, most: int = 0) -> None:
        """Return once at most so many checkpoints are still to be written; raise what went wrong with one."""
        while len(self.unwritten) > most:
            self.unwritten.popleft().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write what is left. A mistake that has ended the run is told, not that this failed too."""
        told = kind is not None and issubclass(kind, UserError)
        with contextlib.suppress(UserError) if told else contextlib.nullcontext():
            self.close()

    def close(self) -> None:
        """Write what is left."""
        with self.pool:
            self.wait()


def _write_component(folder: Path, name: str, tensors: Mapping[str, Tensor]) -> str:
    content = save({key: value.detach().contiguous().cpu() for key, value in tensors.items()})
    digest = hashlib.blake2b(content, digest_size=10).hexdigest()
    path = folder / f"{name}-{digest}.safetensors"
    if not path.exists():
        with atomic.replacing(path) as part:
            part.write_bytes(content)
    return path.name


def load_checkpoint(folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]] | None:
    """Return a checkpoint's info and components, or None where there is none yet."""
    if not (folder / "latest.json").exists():
        return None
    info = read_json(folder / "latest.json")
    return info, {name: _read_component(folder / file) for name, file in info["files"].items()}


def _read_component(path: Path) -> dict[str, Tensor]:
    try:
        content = path.read_bytes()
        if not path.stem.endswith(hashlib.blake2b(content, digest_size=10).hexdigest()):
            raise UserError(
                f"{path} is damaged: its content does not match its name; the run cannot be continued from it"
            )
        return load(content)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a run; one that is not JSON is named."""
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON: {error}") from error
    return value


def find_runs(folder: Path) -> list[RunFolder]:
    """Return the runs in a folder and its sub-folders, oldest first."""
    found = [Path(root) for root, _, files in os.walk(folder) if "config.json" in files]
    return [RunFolder(path) for path in sorted(found, key=lambda p: (p / "config.json").stat().st_mtime)]
