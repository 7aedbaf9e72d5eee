"""Several processes: how a step is shared, and what two that torchrun starts give."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from stages_driven import after_task, begun, drive
from team_script import stepped
from tiny_runs import Watch, tiny_experiment
from torch import Tensor

from daydream.engine.distributed import Team, joined, stay_here
from daydream.engine.feed import Feed
from daydream.engine.hardware import Hardware
from daydream.errors import UserError
from daydream.experiment.config import make_config
from daydream.experiment.experiment import Experiment
from daydream.stages.stage import Stage, State
from daydream.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[1] / "support"
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(SUPPORT), *filter(None, sys.path)])}


@dataclass(frozen=True)
class Recording(Team):
    """A process of a team that is not there: it keeps what it would have sent."""

    sent: list[Tensor] = field(default_factory=list)

    def add_up(self, tensors: Any) -> None:
        self.sent.extend(tensor.clone() for tensor in tensors)


# --- shares, without processes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7, 8, 128])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_parts_are_a_partition(count: int, size: int) -> None:
    parts = [list(range(count))[Team(rank, size).part(count)] for rank in range(size)]
    assert [i for part in parts for i in part] == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_what_divides() -> None:
    two = Team(0, 2)
    assert two.divides([7])
    assert two.divides([8, 6])
    assert not two.divides([8, 5])
    assert not two.divides([1])
    assert not two.divides([])
    assert not Team().divides([8])


def increment(method: str, **settings: Any) -> tuple[Experiment, State, Stage]:
    """An increment whose batches hold 8 new images and 8 exemplars."""
    experiment = tiny_experiment(method, run={"memory": 24}, batch_size=16, base_epochs=1, **settings)
    state = after_task(experiment, experiment.fresh_state(), 0)
    stage = experiment.stages(experiment.stream.task(1))[0]
    return experiment, begun(state, stage), stage


def assert_shares_add_up(experiment: Experiment, state: State, stage: Stage, size: int) -> None:
    """The sum over processes of gradients and losses is what one process has on the whole batch."""
    stage = replace(stage, train_mode=frozenset(), clamp=None)  # the shared batch norm needs real processes
    whole = stepped(experiment, state, stage, Team())
    expected = [t.grad for t in whole.optimizer.parameters() if t.grad is not None] + list(whole.sums.values())
    shares = [Recording(rank, size) for rank in range(size)]
    for share in shares:
        assert stepped(experiment, state, stage, share).feed.split
    found = [torch.stack(parts).sum(0) for parts in zip(*(share.sent for share in shares), strict=True)]
    scale = max(float(values.abs().max()) for values in expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5 * scale)


@pytest.mark.parametrize("method", ["replay", "imagine", "mixup", "icarl", "bic", "ucir", "podnet", "dream"])
def test_shares_of_an_increments_step_add_up(method: str) -> None:
    experiment, state, stage = increment(method)
    for size in (2, 4):
        assert_shares_add_up(experiment, state, stage, size)


@pytest.mark.parametrize(("method", "place"), [("dmc", 1), ("gd", 1), ("gd", 2), ("gd", 3)])
def test_shares_of_a_step_with_several_teachers_add_up(method: str, place: int) -> None:
    experiment = tiny_experiment(method, run={"memory": 24}, batch_size=16, base_epochs=1)
    state, stages = after_task(experiment, experiment.fresh_state(), 0), experiment.stages(experiment.stream.task(1))
    for stage in stages[:place]:
        state = begun(state, stage) if stage.epochs else state
        drive(experiment, state, 1, stage)
    assert_shares_add_up(experiment, begun(state, stages[place]), stages[place], 2)


def test_uneven_shares_of_one_stream_add_up() -> None:
    experiment = tiny_experiment("finetune", batch_size=7)
    stage = experiment.stages(experiment.stream.task(0))[0]
    assert_shares_add_up(experiment, begun(experiment.fresh_state(), stage), stage, 3)


def test_stages_that_cannot_be_shared_are_done_whole(caplog: pytest.LogCaptureFixture) -> None:
    experiment, state, _ = increment("imagine")
    experiment.method.settings = replace(experiment.method.settings, batch_size=9)
    odd = experiment.stages(experiment.stream.task(1))[0]
    caplog.set_level("INFO", "daydream")
    feed = Feed(odd, state, (1, 0), 1, Team(1, 2))
    feed.load(0)
    assert not feed.split
    assert "do not divide by 2" in caplog.text
    generators = experiment.stages(experiment.stream.task(0))[-1]
    assert generators.name == "imagine"
    assert not generators.split


def test_each_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    chosen = Hardware.choose("auto", "auto", None, None, Team(1, 2, 1))
    assert (str(chosen.device), chosen.compile, chosen.capture) == ("cuda:1", False, False)
    with pytest.raises(UserError, match="2 GPU"):
        Hardware.choose("cuda", "auto", None, None, Team(2, 4, 2))
    with pytest.raises(UserError, match="one GPU for 2 processes"):
        Hardware.choose("cuda:1", "auto", None, None, Team(1, 2, 1))


@pytest.mark.skipif(not Path("/sys/class/net/lo").exists(), reason="the loopback has another name here")
@pytest.mark.parametrize(("own", "size", "expected"), [("", "2", "lo"), ("eth7", "2", "eth7"), ("", "4", "")])
def test_processes_of_one_machine_speak_over_its_loopback(
    monkeypatch: pytest.MonkeyPatch, own: str, size: str, expected: str
) -> None:
    """Unless it was said otherwise; where there are more machines, they need more than that."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", own)
    if not own:
        monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth8")
    stay_here()
    assert os.environ.get("GLOO_SOCKET_IFNAME", "") == expected
    assert os.environ["NCCL_SOCKET_IFNAME"] == "eth8"
    os.environ.pop("GLOO_SOCKET_IFNAME", None)


# --- two processes ---------------------------------------------------------------------------------------------------


def torchrun(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV)


def test_two_processes_agree(tmp_path: Path) -> None:
    process = torchrun(str(SUPPORT / "team_script.py"), str(tmp_path))
    _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))

    expected = {"images": 0, "weight": [pytest.approx(0.1)] * 2}
    expected["tensors"] = {"index": [0, 1, 2], "mask": True, "none": []}
    assert first["agreement"] == second["agreement"] == expected
    assert first["asked"] == second["asked"] == [False, True]

    for name, tolerance in (("still", 1e-4), ("normed", 1e-3), ("uneven", 1e-3)):
        step = first[name]
        assert step["gradients"] < tolerance, name
        assert step["statistics"] < 1e-5, name
        for together, alone in step["losses"].values():
            assert together == pytest.approx(alone, rel=1e-4, abs=1e-6)
        assert step["state"] == second[name]["state"], "both hold the same state after a step"

    assert first["runs"]["resumed"] == first["runs"]["whole"]
    assert second["runs"] == {"whole": {}, "resumed": {}}, "only the first process writes and reports"


def test_two_processes_learn_as_well_as_one(tmp_path: Path) -> None:
    """Stopped by a signal in between, resumed, and judged by accuracy."""
    data = {"classes": 4, "train_per_class": 60, "test_per_class": 40, "image_size": 16}
    run = {"backbone": "resnet10", "base": 2, "steps": 1, "memory": 40}
    recipe = {"base_epochs": 8, "epochs": 3, "batch_size": 16, "new_share": 0.5}
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in (data | run | recipe).items()]
    process = torchrun("-m", "daydream", "run", *flags, "--out", str(tmp_path / "two"), "--quiet")
    while not (tmp_path / "two" / "metrics.jsonl").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert err.count(f"daydream resume {tmp_path / 'two'}") == 1
    assert RunFolder(tmp_path / "two").result is None
    process = torchrun("-m", "daydream", "resume", str(tmp_path / "two"), "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    two = json.loads(out)
    one = Experiment(make_config(run, data, recipe)).start(tmp_path / "one", Watch())
    assert two["average_nme"] == pytest.approx(one["average_nme"], abs=10)
    assert two["average_nme"] > 48, "chance is 37.5"
    assert "2 processes" in two["config"]["device"]


DYING = """
import os, signal
from dataclasses import replace
from daydream.methods.finetune import Finetune

class Dying(Finetune):
    def stages(self, task):
        def die(state):
            if os.environ.get("RANK") == "1":
                os.kill(os.getpid(), signal.SIGKILL)
        return [replace(stage, finish=die) for stage in super().stages(task)]
"""


def test_a_process_that_dies_ends_the_run_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    method, folder = f"--method={tmp_path / 'dying.py'}:Dying", tmp_path / "run"
    words = ["--classes=2", "--train-per-class=8", "--test-per-class=2", "--image-size=16", "--backbone=resnet10"]
    sizes = ["--base=1", "--steps=1", "--base-epochs=1", "--epochs=1", "--batch-size=4"]
    process = torchrun("-m", "daydream", "run", method, *words, *sizes, "--out", str(folder), "--quiet")
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert [line for line in err.splitlines() if line.startswith("daydream: ")] == [
        "daydream: another process of this run ended, so this one does too; go on from the last checkpoint with "
        "`daydream resume`"
    ]


def test_a_mistake_is_said_once(tmp_path: Path) -> None:
    process = torchrun("-m", "daydream", "run", "--memory=0", "--out", str(tmp_path / "run"))
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert len([line for line in err.splitlines() if line.startswith("daydream: --memory 0")]) == 1
    assert len([line for line in err.splitlines() if "listens on every address of this machine" in line]) == 1
    assert not (tmp_path / "run").exists()


def test_other_commands_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in alone.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="only `daydream run`"), joined(trains=False):
        pass
    torch.distributed.destroy_process_group()
