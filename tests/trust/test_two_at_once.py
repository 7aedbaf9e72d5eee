"""Of two runs that begin in one folder at once, one trains, and the folder says which."""

import json
import time
from pathlib import Path

import pytest
from tree import begun, ended

pytestmark = pytest.mark.slow

TINY = (
    "--classes=4", "--train-per-class=12", "--test-per-class=4", "--image-size=16", "--backbone=resnet10", "--base=2",
    "--steps=1", "--memory=8", "--base-epochs=1", "--epochs=1", "--batch-size=8", "--quiet",
)  # fmt: skip
SLOW = """
import sys, time, torch
from pathlib import Path
made = Path.mkdir
def mkdir(self, *given, **named):  # a slow disk: whoever has seen an empty folder is not done with it yet
    made(self, *given, **named)
    time.sleep(0.6)
Path.mkdir = mkdir
print("ready", flush=True)
sys.stdin.readline()
"""


def test_the_folder_says_which_of_two_trained(tmp_path: Path) -> None:
    both = {seed: begun("run", *TINY, f"--seed={seed}", "--out", tmp_path / "run", before=SLOW) for seed in (1, 2)}
    for process in both.values():
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
    for process in both.values():
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        time.sleep(0.2)
    found = {seed: ended(process) for seed, process in both.items()}
    trained = [seed for seed, (code, _, _) in found.items() if code == 0]
    assert len(trained) == 1, found
    assert json.loads((tmp_path / "run" / "config.json").read_text())["run"]["seed"] == trained[0]
    (other,) = {1, 2} - set(trained)
    code, _, err = found[other]
    assert code == 2
    assert "being trained by another process" in err or "already holds a run" in err
    assert err.count("\n") == 1
