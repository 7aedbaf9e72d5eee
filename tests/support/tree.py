"""The command line of a source tree, in processes of its own: this one's, or the one that DAYDREAM_TREE names.

Nothing here imports daydream, so a test that uses it alone can be held against any earlier commit.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(os.environ.get("DAYDREAM_TREE", Path(__file__).parents[2]))
COMMAND = "import runpy, sys\nrunpy.run_module('daydream', run_name='__main__')\n"
Process = subprocess.Popen[str]


def begun(*words: object, before: str = "") -> Process:
    """Begin a command, after some Python of our own in its process."""
    place = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", before + COMMAND, *map(str, words)],
        env={**os.environ, **place},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: Process, seconds: float = 60) -> tuple[int, str, str]:
    """Let a command end; return its code, or that of a hang, what it printed and what it said of mistakes."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return -signal.SIGALRM, "", "it hangs"
    return process.returncode, out, err


def command(*words: object, seconds: float = 60) -> tuple[int, str, str]:
    return ended(begun(*words), seconds)


def stopped_when(process: Process, true: Callable[[], bool], number: int = signal.SIGTERM) -> tuple[int, str, str]:
    """Send a signal to a command once something holds."""
    last = time.monotonic() + 60
    while not true() and process.poll() is None and time.monotonic() < last:
        time.sleep(0.01)
    process.send_signal(number)
    return ended(process)


def in_a_line(code: int, err: str) -> bool:
    """Say whether a mistake was told in one line."""
    return code == 2 and len([line for line in err.splitlines() if line.startswith("daydream: ")]) == 1
