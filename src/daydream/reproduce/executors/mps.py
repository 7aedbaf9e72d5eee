"""NVIDIA MPS for the time of a grid: without it, processes on one GPU take turns instead of sharing it."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PROGRAM = "nvidia-cuda-mps-control"
PLACES = os.pathsep.join(("/usr/local/nvidia/bin", "/usr/bin"))  # where drivers put it, on PATH or not
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
PATIENCE = 60.0  # seconds for the program to answer


@contextmanager
def shared_gpu(device: str, say: Callable[[str], None]) -> Iterator[dict[str, str]]:
    """Yield the variables by which processes share a GPU; none where MPS is there already, or cannot be had."""
    if not device.startswith("cuda") or PIPES in os.environ:
        yield {}
        return
    program = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=PLACES)
    with tempfile.TemporaryDirectory(prefix="daydream-mps-", ignore_cleanup_errors=True) as folder:
        variables = {PIPES: f"{folder}/pipe", LOGS: f"{folder}/log"}
        for path in variables.values():
            Path(path).mkdir()
        # A server that knew CUDA_VISIBLE_DEVICES would number the GPUs anew, and its clients choose among them again.
        own = {**{name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}, **variables}
        started = program is not None and succeeds([program, "-d"], own)
        try:
            usable = started and works(device, variables)
            if not usable:
                say("no MPS: runs on one GPU take turns")
            yield variables if usable else {}
        finally:
            if program is not None and started:
                succeeds([program], own, "quit\n")


def works(device: str, variables: Mapping[str, str]) -> bool:
    """Say whether a process reaches the GPU: a control program may start where its server cannot."""
    code = f"import torch; torch.zeros(1, device={device!r})"
    return succeeds([sys.executable, "-c", code], {**os.environ, **variables})


def succeeds(command: list[str], environment: Mapping[str, str], words: str = "") -> bool:
    """Run a program with words on its standard input; say whether it did its work."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            input=words.encode(),
            stdout=subprocess.DEVNULL,  # no pipe: the server keeps it open
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C at the terminal must not end the server before the runs
            timeout=PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
