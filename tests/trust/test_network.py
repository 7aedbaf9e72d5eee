"""Nothing that stays on this machine listens to another, or reports to one."""

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
    assert "listens on every address" not in done.stderr


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


QUIET = """
import os
from daydream.export.runtime import onnxruntime
from daydream.reproduce.executors.ray import stay_here
onnxruntime()
stay_here()
print(os.environ["RAY_USAGE_STATS_ENABLED"])
"""


def test_onnxruntime_and_ray_report_to_nobody(tmp_path: Path) -> None:
    """Otherwise onnxruntime would note an identity of the machine, and what it did, in the home folder, to send it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "ORT_", "XDG_"))}
    env |= HERE | {"HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", QUIET], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_onnxruntime_is_imported_quietly_everywhere() -> None:
    source = Path(__file__).parents[2] / "src" / "daydream"
    loud = [path for path in source.rglob("*.py") if "\nimport onnxruntime" in path.read_text(encoding="utf-8")]
    assert loud == []
