"""The command line of a source tree, in processes of its own: this one's, or the one that DAYDREAM_TREE names.

Nothing here imports daydream, so a test that uses it alone can be held against any earlier commit.
"""

import atexit
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).parents[2]
ROOT = Path(os.environ.get("DAYDREAM_TREE", HERE))
COMMAND = "import runpy, sys\nrunpy.run_module('daydream', run_name='__main__')\n"
EACH = """
import contextlib, io, json, runpy, sys, traceback
found = []
for words in json.loads(sys.argv[1]):
    sys.argv, out, err = ["daydream", *words], io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_module("daydream", run_name="__main__")
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            traceback.print_exc()
            code = 1
    found.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(found))
"""
Process = subprocess.Popen[str]


def begun(*words: object, before: str = "") -> Process:
    """Begin a command, after some Python of our own in its process."""
    return python(before + COMMAND, *words)


def python(program: str, *words: object) -> Process:
    """Begin a program that finds the source tree, in a process forked from this one, where torch is imported."""
    argv = ["-c", *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen([""], preexec_fn=lambda: be(program, argv), stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def be(program: str, argv: list[str]) -> NoReturn:
    """Be a process that a shell might have begun; it never comes to the program that Popen was given."""
    code = 1
    try:
        os.closerange(3, 512)  # Popen waits for one of these to close
        sys.stdin, sys.stdout, sys.stderr = (open(n, "r" if n == 0 else "w", closefd=False) for n in range(3))  # noqa: SIM115
        sys.path.insert(0, str(ROOT / "src"))
        sys.argv, os.environ["OMP_NUM_THREADS"] = argv, "1"
        if ROOT != HERE:
            for name in [name for name in sys.modules if name.partition(".")[0] == "daydream"]:
                del sys.modules[name]
        logging.root.handlers.clear()
        exec(program, {"__name__": "__main__"})
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            atexit._run_exitfuncs()
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


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


def each(*commands: Sequence[object]) -> list[tuple[int, str, str]]:
    """Run commands one after the other in one process, which imports torch once."""
    code, out, err = ended(python(EACH, json.dumps([[str(word) for word in words] for words in commands])))
    assert code == 0, err
    return [(code, out, err) for code, out, err in json.loads(out)]


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
