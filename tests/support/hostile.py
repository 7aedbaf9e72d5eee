"""What a stranger might put into a run folder."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiny_runs import StopIn, tiny_experiment

from daydream.engine import Interrupted

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
    """Change a JSON file by hand."""
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def stopped(folder: Path) -> Path:
    """Train a tiny run by the command's own means, and stop it in its second task."""
    with contextlib.suppress(Interrupted):
        tiny_experiment().start(folder, StopIn(1, "train"))
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file under a folder, by its path, with what it holds."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
