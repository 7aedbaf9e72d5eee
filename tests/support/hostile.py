"""What a stranger might put into a run folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
