"""Nothing that stays on this machine listens to another: neither processes that share a run, nor a Ray of our own."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="finds who listens in /proc"),
]

SUPPORT = Path(__file__).parents[1] / "support"
HERE = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(SUPPORT), *filter(None, sys.path)])}
TEAM = """
import json, os, sys
from listening import listening
from daydream.engine.distributed import joined, team
with joined(trains=True):
    team().meet()
    if team().leads:
        json.dump(listening(os.getppid()), open(sys.argv[1], "w"))
    team().meet()
"""
RAY = """
import json, os
from listening import listening
from daydream.reproduce.executors.ray import connect, stay_here
stay_here()
connect()
import ray
assert ray.get(ray.remote(lambda: 1).remote()) == 1
print(json.dumps(listening(os.getpid())))
"""


def test_processes_that_meet_by_a_file_listen_on_the_loopback_alone(tmp_path: Path) -> None:
    """As SECURITY.md says they can."""
    (tmp_path / "team.py").write_text(TEAM)
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={tmp_path / 'meeting'}", "--rdzv-conf=store_type=file"]
    words = [*meeting, "--local-addr=127.0.0.1", "--nproc-per-node=2", str(tmp_path / "team.py"), str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words],
        env={**os.environ, **HERE, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads((tmp_path / "out").read_text())) == {"127.0.0.1"}


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'daydream[ray]'")
def test_a_ray_of_our_own_listens_on_the_loopback_alone() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", RAY], env=env | HERE, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) > 2
    assert set(found) == {"127.0.0.1"}
