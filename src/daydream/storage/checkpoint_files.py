"""A checkpoint on disk: one safetensors file per component, named by its content, and `latest.json`, which names them.

`latest.json` is replaced last: whatever moment a run dies at, it speaks of files that are whole.
"""

import contextlib
import hashlib
import json
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from daydream import atomic
from daydream.errors import UserError
from daydream.storage.records import Files
from daydream.storage.run_folder import read_json, refuse_gone, refuse_link, resume_command
from daydream.storage.tensor_file import write_tensors

Components = Mapping[str, Mapping[str, Tensor]]
DIGEST = 10  # bytes
COMPONENT = re.compile(r"[^./\\\x00-\x1f-][^/\\\x00-\x1f]*")
"""What a component may be called: nothing that leads to another folder."""
FILE = re.compile(rf"({COMPONENT.pattern})-[0-9a-f]{{{2 * DIGEST}}}\.safetensors")
OWN = re.compile(rf"{FILE.pattern}|\.({COMPONENT.pattern}\.safetensors|latest\.json)\.[0-9a-z_]{{8}}\.part")
"""Names of our own making: nothing else in the folder is ever deleted."""
UNWRITTEN = 2  # checkpoints that may wait to be written: a large one, and the one that soon follows it


def save_checkpoint(
    folder: Path, info: Mapping[str, Any], components: Components, unchanged: Collection[str] = (), go_on: str = ""
) -> None:
    """Write a checkpoint beside the previous one, then let `latest.json` name it, then drop what nothing names.

    Components in `unchanged` are those of the previous checkpoint: they are named again, not written again. `go_on`
    says how to go on where the disk is full, if not by resuming a run.
    """
    refuse_link(folder)
    try:
        folder.mkdir(exist_ok=True)
        files = {
            name: _write_component(folder, name, tensors)
            for name, tensors in components.items()
            if name not in unchanged
        }
        if unchanged:
            before = read_json(folder / "latest.json", Files)["files"]
            files |= {name: before[name] for name in unchanged}
        atomic.write_json(folder / "latest.json", sealed({**info, "files": files}))
        for path in folder.iterdir():
            if OWN.fullmatch(path.name) and path.name not in files.values() and not path.is_dir():
                path.unlink(missing_ok=True)
    except OSError as error:
        refuse_gone(folder.parent)
        raise UserError(
            f"the checkpoint could not be written to {folder}: {error.strerror or error}; the previous one is intact: "
            f"free some space and {go_on or f'`{resume_command(folder.parent)}`'}"
        ) from error


class CheckpointWriter:
    """Writes a run's checkpoints in a thread, one after the other, while the run goes on.

    What a checkpoint holds is copied to the host before `save` returns: the thread never speaks to a GPU, on which a
    step may be being captured. If a checkpoint cannot be written, no later one is, since it may name files of it as
    unchanged; the next `save` or `wait` says why.
    """

    def __init__(self, folder: Path, go_on: str = "") -> None:
        self.folder, self.go_on = folder, go_on
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
            save_checkpoint(self.folder, info, copies, unchanged, self.go_on)

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


def drop_checkpoint(folder: Path) -> None:
    """Remove a checkpoint that has served, `latest.json` first; what is not of our making stays, and its folder."""
    if folder.is_symlink() or not folder.is_dir():
        return
    (folder / "latest.json").unlink(missing_ok=True)
    for path in folder.iterdir():
        if OWN.fullmatch(path.name) and not path.is_dir():
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _write_component(folder: Path, name: str, tensors: Mapping[str, Tensor]) -> str:
    """Write a component and return its file's name; the tensors go to the disk from where they lie, without a copy."""
    if not COMPONENT.fullmatch(name):
        raise UserError(f"a network of a state is called {name!r}, which no file can be called")
    with atomic.part_of(folder / f"{name}.safetensors", atomic.PRIVATE) as part:  # exemplars are pictures
        write_tensors(part, tensors)
        path = folder / f"{name}-{_digest(part)}.safetensors"
        if path.is_symlink() or not path.is_file():
            atomic.land(part, path)
    return path.name


def sealed(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return what latest.json says, with a digest over it."""
    whole = {key: value for key, value in info.items() if key != "digest"}
    text = json.dumps(whole, sort_keys=True).encode()
    return {**whole, "digest": hashlib.blake2b(text, digest_size=DIGEST).hexdigest()}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST)).hexdigest()


def load_checkpoint(folder: Path, record: Any = Files) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]] | None:
    """Return a checkpoint's info, which must be like a record, and components; None where there is none yet."""
    if not (folder / "latest.json").exists():
        return None
    info = read_json(folder / "latest.json", record)
    if info.get("digest", "") not in ("", sealed(info)["digest"]):  # there was none at first
        raise UserError(f"{folder / 'latest.json'} is damaged: its content does not match its digest")
    for name, file in info["files"].items():
        if not COMPONENT.fullmatch(name) or not FILE.fullmatch(file):
            raise UserError(f"{folder / 'latest.json'} is damaged: it names {file!r}, which is no file of a checkpoint")
    return info, {name: _read_component(folder / file) for name, file in info["files"].items()}


@contextlib.contextmanager
def naming_damage(folder: Path) -> Iterator[None]:
    """Name a checkpoint whose parts do not fit each other, or the method, while something is built of them."""
    try:
        yield
    except (UserError, LookupError, TypeError, ValueError, AttributeError, AssertionError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{folder} is damaged, or not of this method ({type(error).__name__}: {reason})") from error


def _read_component(path: Path) -> dict[str, Tensor]:
    try:
        if not path.is_file():
            raise OSError("it is not there, or no file")
        if not path.stem.endswith(_digest(path)):
            raise UserError(f"{path} is damaged: its content does not match its name; nothing can go on from it")
        # Copies, since the file is only mapped: it will go when nothing names it any more.
        return {key: value.clone() for key, value in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
