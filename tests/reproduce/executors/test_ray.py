"""Runs as tasks of a local Ray with two workers; one of them is killed."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import TINY_DATA, TINY_RECIPE, TINY_RUN, without_times

from daydream.engine import Interrupted
from daydream.reproduce.executors.ray import OnRay
from daydream.reproduce.jobs import Job, Outcome

pytestmark = pytest.mark.slow

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'daydream[ray]'")


@pytest.fixture(scope="module", autouse=True)
def two_workers() -> Iterator[None]:
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    yield
    ray.shutdown()


def job(folder: Path, epochs: int, **run: Any) -> Job:
    recipe = {**TINY_RECIPE, "base_epochs": epochs}
    return Job(folder.name, str(folder), {"run": {**TINY_RUN, **run}, "data": TINY_DATA, "method": recipe})


def wait_for_checkpoint(folder: Path) -> int:
    """Wait until a run has checkpointed inside its first stage; return the epoch."""
    for _ in range(2400):
        latest = folder / "checkpoint" / "latest.json"  # alone: what it names may just be replaced by the next one
        if latest.exists():
            return int(json.loads(latest.read_text())["cursor"]["epochs"])
        time.sleep(0.05)
    raise AssertionError(f"{folder} has no checkpoint")


def worker_of(folder: Path) -> int:
    """Return the process that holds a run's lock."""
    lock = str((folder / ".lock").resolve())
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(descriptor) == lock:
                return int(descriptor.parts[2])
        except OSError:  # a process that ended while we looked, or is not ours
            continue
    raise AssertionError(f"nobody holds {lock}")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds the worker to kill in /proc")
def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    jobs = [job(tmp_path / "killed" / "a", 20), job(tmp_path / "spared" / "b", 20)]
    jobs.append(job(tmp_path / "bad", 1, memory=0))
    found: list[Outcome] = []
    thread = threading.Thread(target=lambda: found.extend(OnRay(0.25, lambda: False).run(jobs, lambda job: True)))
    thread.start()
    wait_for_checkpoint(tmp_path / "killed" / "a")
    os.kill(worker_of(tmp_path / "killed" / "a"), signal.SIGKILL)
    thread.join(timeout=240)
    assert not thread.is_alive()
    outcomes = {outcome.job.name: outcome for outcome in found}
    assert len(found) == 3
    assert "--memory 0" in outcomes["bad"].error
    assert outcomes["b"].result is not None
    assert without_times(outcomes["a"].result) == without_times(outcomes["b"].result)


def test_a_job_is_held_back_until_it_is_ready(tmp_path: Path) -> None:
    first, then = job(tmp_path / "first", 1), job(tmp_path / "then", 1)
    trained = tmp_path / "first" / "base" / "latest.json"
    asked: list[bool] = []

    def ready(job: Job) -> bool:
        asked.append(job.name == "first" or trained.exists())
        return asked[-1]

    outcomes = list(OnRay(0.25, lambda: False).run([then, first], ready))
    assert asked[:2] == [False, True]
    assert [outcome.job.name for outcome in outcomes] == ["first", "then"]
    assert all(outcome.result for outcome in outcomes)


def test_a_stop_cancels_what_runs_and_leaves_a_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    long = job(folder, 2000, checkpoint_every=2000)
    with pytest.raises(Interrupted):
        list(OnRay(0.25, lambda: (folder / "metrics.jsonl").exists()).run([long], lambda job: True))
    assert wait_for_checkpoint(folder) < 2000
