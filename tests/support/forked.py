"""Commands to be killed, in processes that begin at once: all they import is there before they are forked."""

import contextlib
import importlib
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import torch

from daydream.cli.main import main


class Command:
    """A command that runs in a process of its own, like one that a shell began."""

    def __init__(self, *words: str, modules: Path | None = None) -> None:
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - it goes with the command
        self.code: int | None = None
        sys.stdout.flush()
        self.process = os.fork()
        if not self.process:
            self._be(words, modules)

    def _be(self, words: tuple[str, ...], modules: Path | None) -> NoReturn:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(self.said.fileno(), 2)
            torch.set_num_threads(1)
            main(words)
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            if modules is not None:
                modules.write_text("\n".join(sys.modules))
            os._exit(code)

    def ended(self) -> bool:
        if self.code is None:
            process, status = os.waitpid(self.process, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if process else None
        return self.code is not None

    def wait(self, seconds: float) -> str:
        """Let it end; return what it said where it failed."""
        last = time.monotonic() + seconds
        while not self.ended():
            if time.monotonic() > last:
                self.kill()
                return "it got stuck"
            time.sleep(0.005)
        self.said.seek(0)
        return self.said.read().decode(errors="replace") if self.code else ""

    def kill(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        _, status = os.waitpid(self.process, 0)
        self.code = os.waitstatus_to_exitcode(status)

    def still(self, look: Callable[[], bool]) -> bool:
        """Look at what it does while it is held still; it goes on unless something was seen."""
        os.kill(self.process, signal.SIGSTOP)
        _, status = os.waitpid(self.process, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self.code = os.waitstatus_to_exitcode(status)
            return False
        seen = look()
        if not seen:
            os.kill(self.process, signal.SIGCONT)
        return seen


def killed(train: Callable[[], object]) -> None:
    """Do in a process of its own, with one thread, what ends by its being killed with SIGKILL."""
    sys.stdout.flush()
    process = os.fork()
    if not process:
        try:
            torch.set_num_threads(1)
            train()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code == -signal.SIGKILL, f"it ended with {code} before it was killed"


def writing(folder: Path) -> bool:
    """Say whether some file is being written: a part of it lies there."""
    return any(name.endswith(".part") for _, _, names in os.walk(folder) for name in names)


def import_all(modules: Path) -> None:
    """Import here what a command had imported, so that those to come need not."""
    for name in modules.read_text().splitlines():
        with contextlib.suppress(Exception):  # some are made, not imported
            importlib.import_module(name)
