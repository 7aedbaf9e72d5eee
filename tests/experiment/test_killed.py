"""A run killed with SIGKILL at random moments, again and again, ends as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_runs import without_times

pytestmark = pytest.mark.slow

TINY = [
    "--classes=6", "--train-per-class=12", "--test-per-class=6", "--image-size=16", "--backbone=resnet10", "--base=2",
    "--steps=2", "--memory=12", "--base-epochs=4", "--epochs=4", "--batch-size=8", "--checkpoint-every=1",
]  # fmt: skip
ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}


def daydream(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "daydream", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ALONE
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return out


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("killed") / "whole"
    finish(daydream("run", *TINY, "--out", str(folder), "--quiet"))
    result: dict[str, object] = json.loads((folder / "result.json").read_text())
    return result


def test_killed_at_random_moments(expected: dict[str, object], tmp_path: Path) -> None:
    folder, chance = tmp_path / "run", random.Random()
    process = daydream("run", *TINY, "--out", str(folder), "--quiet")
    kills = 0
    while kills < 4:
        wait_for(folder / "config.json", process)
        time.sleep(chance.uniform(0.0, 1.5))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        process = daydream("resume", str(folder), "--quiet")
    finish(process)
    assert kills >= 1
    assert without_times(json.loads((folder / "result.json").read_text())) == without_times(expected)


def test_ctrl_c_writes_a_checkpoint_and_says_how_to_resume(expected: dict[str, object], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = daydream("run", *TINY, "--out", str(folder))
    wait_for(folder / "metrics.jsonl", process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"daydream resume {folder}" in err
    assert "Traceback" not in err
    assert (folder / "checkpoint" / "latest.json").exists()
    finish(daydream("resume", str(folder), "--quiet"))
    assert without_times(json.loads((folder / "result.json").read_text())) == without_times(expected)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    for _ in range(1200):
        if path.exists() or process.poll() is not None:
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} never came")
