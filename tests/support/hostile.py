"""What a stranger might put into a run folder."""

import contextlib
import io
import json
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from tiny_runs import StopIn, tiny_experiment

from daydream.engine import Interrupted
from daydream.storage.checkpoint_files import sealed

OWN = """
import sys
from pathlib import Path
from daydream.methods.replay import Replay
sys.stderr.write("code ran\\n")
Path(__file__).with_name("ran").touch()
class Mine(Replay): ...
"""


def method_file(folder: Path) -> str:
    """Write a method whose import leaves a file `ran` beside it; return its name for --method."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.py").write_text(OWN)
    return f"{folder / 'own.py'}:Mine"


def ran(name: str) -> bool:
    """Say whether the code of a method file ran since last asked."""
    mark = Path(name.rpartition(":")[0]).with_name("ran")
    found = mark.exists()
    mark.unlink(missing_ok=True)
    return found


def edited(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a JSON file by hand; a digest in it is made right again, as a stranger can."""
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(sealed(value) if "digest" in value else value))


def stopped(folder: Path) -> Path:
    """Train a tiny run by the command's own means, and stop it in its second task."""
    with contextlib.suppress(Interrupted):
        tiny_experiment().start(folder, StopIn(1, "train"))
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file under a folder, by its path, with what it holds."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


ALONE = "from daydream.cli.main import main\nmain()"


def alone(*words: str, seconds: float = 60) -> tuple[int, str]:
    """Run a command in a process of its own; return its code and what it said of mistakes."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *words], capture_output=True, text=True, check=False, timeout=seconds
    )
    return done.returncode, done.stderr


class TookTooLong(BaseException):
    """A command was waiting for something, or had no end."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Break off what takes longer."""

    def stop(*_: object) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def zipped(content: Mapping[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    """Return members as a model file has them."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, raw in content.items():
            archive.writestr(name, raw)
    return file.getvalue()


def members(model: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(model) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def changed(model: Path, path: Path, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], None]) -> Path:
    """Write a model with other words and tensors, all checksums right."""
    content = members(model)
    about, tensors = json.loads(content["model.json"]), load(content["tensors.safetensors"])
    change(about, tensors)
    path.write_bytes(
        zipped({**content, "model.json": json.dumps(about).encode(), "tensors.safetensors": save(tensors)})
    )
    return path
