"""Runs in processes of their own: those that share a base task, that fail, that are killed, that are stopped."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from side_by_side_script import job
from tiny_grids import TINY, StopAt, tiny_plan
from tiny_runs import without_times

from daydream.engine import Interrupted
from daydream.reproduce import runner
from daydream.reproduce.executors import processes as side_by_side
from daydream.reproduce.executors.processes import SideBySide
from daydream.reproduce.jobs import InProcess, Job, Outcome
from daydream.reproduce.plan import Plan
from daydream.storage.checkpoint_files import load_checkpoint
from daydream.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

Events = list[tuple[str, str]]
ENDLESS = 100_000  # epochs, of a few milliseconds each
SUPPORT = Path(__file__).parents[2] / "support"
ALONE = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(SUPPORT),
}


def two(out: Path) -> Plan:
    """A plan of two runs that share a base task, the first so long after it that the second begins beside it."""
    first = tiny_plan(out, "ablation", "baseline", scale=replace(TINY, method={**TINY.method, "epochs": 50}))
    return replace(first, chosen=[*first.chosen, *tiny_plan(out, "ablation", "sc").chosen])


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Events, dict[str, Outcome]]:
    """Two runs at once that share a base task; the first is killed as soon as the second begins."""
    out = tmp_path_factory.mktemp("grid")
    events, outcomes = Events(), dict[str, Outcome]()

    def tell(job: Job, what: str) -> None:
        events.append((job.name.partition(",")[0], what))
        if events[-1] == ("sc", "begins"):
            [trainer] = [child for child in multiprocessing.active_children() if child.name.startswith("baseline")]
            trainer.kill()

    def ends(outcome: Outcome, _: object) -> None:
        name = outcome.job.name.partition(",")[0]
        events.append((name, "ends"))
        outcomes[name] = outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # as here: rounding depends on it
        runner.carry_out(two(out), SideBySide(2, {}, lambda: False, tell), ends)
    return out, events, outcomes


def test_a_run_begins_as_soon_as_its_base_task_is_trained(eventful: tuple[Path, Events, dict[str, Outcome]]) -> None:
    out, events, _ = eventful
    assert events[:2] == [("baseline", "begins"), ("sc", "begins")]
    sc, baseline = sorted(out.glob("runs/*"), key=lambda path: path.name.startswith("replay"))
    assert RunFolder(sc).config["run"]["base_from"] == str(baseline.resolve())


def test_a_killed_run_goes_on_and_all_end_as_one_after_the_other(
    eventful: tuple[Path, Events, dict[str, Outcome]], tmp_path: Path
) -> None:
    _, events, outcomes = eventful
    again = ("baseline", "its process died by SIGKILL; it goes on from its checkpoint")
    assert events.index(again) < events.index(("baseline", "ends"))
    assert events.count(("baseline", "begins")) == 2
    assert events.count(("sc", "begins")) == 1
    expected = list[Outcome]()
    runner.carry_out(two(tmp_path), InProcess(lambda: StopAt()), lambda outcome, _: expected.append(outcome))
    for theirs, ours in zip(expected, (outcomes["baseline"], outcomes["sc"]), strict=True):
        assert theirs.result is not None
        assert ours.result is not None
        assert without_times(ours.result["tasks"]) == without_times(theirs.result["tasks"])


def test_what_fails_and_what_keeps_dying_is_reported_and_the_rest_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_by_side, "RETRIES", 0)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(2), raising=False)
    (tmp_path / "dies.py").write_text(
        "import os, signal, torch\n"
        f"with open({str(tmp_path / 'threads')!r}, 'a') as file:\n"
        "    print(os.environ['OMP_NUM_THREADS'], torch.get_num_threads(), os.environ['HELLO'], file=file)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    good, bad, dies = (job(tmp_path / name, 1) for name in ("good", "bad", "dies"))
    bad = replace(bad, values={**bad.values, "run": {**bad.values["run"], "memory": 0}})
    dies = replace(dies, values={**dies.values, "run": {"method": f"{tmp_path / 'dies.py'}:Dies"}, "method": {}})
    executor = SideBySide(2, {"HELLO": "there"}, lambda: False, lambda job, what: None)
    outcomes = {outcome.job.name: outcome for outcome in executor.run([bad, dies, good], lambda job: True)}
    assert "--memory 0" in outcomes["bad"].error
    assert outcomes["dies"].error == "its process died 1 times, last by SIGKILL"
    assert outcomes["good"].result is not None
    assert (tmp_path / "threads").read_text() == "1 1 there\n"
    assert "HELLO" not in os.environ


def test_a_number_of_threads_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert side_by_side.threads(2) == {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert side_by_side.threads(8)["OMP_NUM_THREADS"] == "1"


@pytest.fixture
def script() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that lead a group of their own, as a command at a terminal does."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()


def start(epochs: int, *folders: Path) -> subprocess.Popen[str]:
    script = SUPPORT / "side_by_side_script.py"
    return subprocess.Popen(
        [sys.executable, str(script), str(epochs), *map(str, folders)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ALONE,
        start_new_session=True,
    )


def wait_for(*paths: Path, there: bool = True) -> None:
    for _ in range(2400):
        if all(path.exists() == there for path in paths):
            return
        time.sleep(0.05)
    raise AssertionError(f"{paths} never {'came' if there else 'went'}")


def test_ctrl_c_reaches_each_run_once_and_nothing_is_lost(tmp_path: Path, script: list[subprocess.Popen[str]]) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    script.append(start(ENDLESS, *folders))
    wait_for(*(folder / "metrics.jsonl" for folder in folders))
    os.killpg(script[0].pid, signal.SIGINT)
    _, err = script[0].communicate(timeout=120)
    assert script[0].returncode == 130, err
    assert err.count("stopping: writing a checkpoint") == 1
    assert "Traceback" not in err
    for folder in folders:
        found = load_checkpoint(folder / "checkpoint")
        assert found is not None
        with pytest.raises(Interrupted):
            list(InProcess(lambda: StopAt(20)).run([job(folder, ENDLESS)], lambda job: True))
        epochs = [row["epoch"] for row in RunFolder(folder).metrics()]
        assert epochs == list(range(len(epochs)))
        assert len(epochs) > found[0]["cursor"]["epochs"] > 0


def test_ctrl_c_while_a_run_is_only_starting(tmp_path: Path, script: list[subprocess.Popen[str]]) -> None:
    script.append(start(ENDLESS, tmp_path / "a"))
    assert script[0].stdout is not None
    assert script[0].stdout.readline() == "a begins\n"
    os.killpg(script[0].pid, signal.SIGINT)
    _, err = script[0].communicate(timeout=120)
    assert script[0].returncode == 130, err
    assert err.count("\n") == 2, err  # the terminal's own line, and that it stops
    assert "stopping" in err


def test_a_run_whose_parent_has_vanished_stops_after_a_checkpoint(
    tmp_path: Path, script: list[subprocess.Popen[str]]
) -> None:
    folder = tmp_path / "a"
    script.append(start(ENDLESS, folder))
    wait_for(folder / "metrics.jsonl")
    script[0].kill()
    wait_for(folder / "checkpoint" / "latest.json")
    wait_for(folder / ".lock", there=False)
    assert script[0].stderr is not None
    assert script[0].stderr.read() == ""
