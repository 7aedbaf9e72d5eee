"""Of two runs that begin in one folder at once, one trains, and the folder says which."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import TINY

pytestmark = pytest.mark.slow

SLOW = """
import sys, time
from pathlib import Path
made = Path.mkdir
def mkdir(self, *given, **named):  # a slow disk: whoever has seen an empty folder is not done with it yet
    made(self, *given, **named)
    time.sleep(0.6)
Path.mkdir = mkdir
import daydream.experiment.experiment
from daydream.cli.main import main
print("ready", flush=True)
sys.stdin.readline()
main(sys.argv[1:])
"""


def begin(folder: Path, seed: int) -> "subprocess.Popen[str]":
    words = ["run", *TINY, "--quiet", "--seed", str(seed), "--out", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_the_folder_says_which_of_two_trained(tmp_path: Path) -> None:
    both = {seed: begin(tmp_path / "run", seed) for seed in (1, 2)}
    for process in both.values():
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        time.sleep(0.2)
    said = {seed: process.communicate(timeout=120)[1] for seed, process in both.items()}
    trained = [seed for seed, process in both.items() if process.returncode == 0]
    assert len(trained) == 1, said
    assert json.loads((tmp_path / "run" / "config.json").read_text())["run"]["seed"] == trained[0]
    (other,) = {1, 2} - set(trained)
    assert both[other].returncode == 2
    assert "being trained by another process" in said[other] or "already holds a run" in said[other]
    assert said[other].count("\n") == 1
