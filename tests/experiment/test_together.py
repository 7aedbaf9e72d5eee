"""Runs trained together give the numbers each gives alone, whatever happens to the others."""

import json
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import TINY, call
from tiny_runs import Watch, tiny_experiment, without_times

from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.experiment.config import Config
from daydream.experiment.experiment import Experiment
from daydream.experiment.together import Ended, Member, first_orders, make_members, train_members
from daydream.protocol.stream import Task
from daydream.reproduce.protocols import FULL, SMOKE
from daydream.stages.stage import Stage
from daydream.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

ORDERS = ("natural", "seed:1", "seed:2")
SHORT = {"base_epochs": 1, "epochs": 1}


def config(method: str = "replay", **settings: Any) -> Config:
    return tiny_experiment(method, **settings).config


def together(members: list[Member], watch: Any = None) -> dict[str, Ended]:
    return train_members(members, True, lambda member: watch or Watch())


def results(folder: Path) -> list[Mapping[str, Any]]:
    """Return what the runs of a folder wrote, epochs and results, without times."""
    found = [RunFolder(path) for path in sorted(folder.iterdir())]
    return [without_times([run.metrics(), run.result]) for run in found]


def weights(folder: Path) -> dict[str, str]:
    """Name each component of a run's last checkpoint by its digest."""
    found: dict[str, str] = json.loads((folder / "checkpoint" / "latest.json").read_text())["files"]
    return found


@pytest.fixture(scope="module")
def separate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three orders of `replay`, each run alone by its own experiment."""
    folder = tmp_path_factory.mktemp("separate")
    for place, order in enumerate(ORDERS, 1):
        tiny_experiment(run={"order": order}).start(folder / f"order-{place}", Watch())
    return folder


def test_together_is_alone_to_the_bit(separate: Path, tmp_path: Path) -> None:
    members = make_members(config(), ORDERS, (), tmp_path / "runs")
    assert members[0].experiment.data is members[2].experiment.data
    outcomes = together(members)
    assert [outcome.error for outcome in outcomes.values()] == ["", "", ""]
    assert results(tmp_path / "runs") == results(separate)
    for member in members:
        assert weights(member.folder) == weights(separate / member.name)


def test_steps_are_taken_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from daydream.engine.loop import Loop

    taken: list[int] = []
    step = Loop.step
    monkeypatch.setattr(Loop, "step", lambda loop: (taken.append(loop.feed.run_seed), step(loop)))
    together(make_members(config(run={"tasks": 1}, **SHORT), (), (4, 7), tmp_path / "runs"))
    assert len(taken) >= 6
    assert taken == [4, 7] * (len(taken) // 2)


def test_imagine_together(tmp_path: Path) -> None:
    members = make_members(config("imagine", **SHORT), ("natural",), (1, 2), tmp_path / "runs")
    imaginations = [member.experiment.carried.imagination for member in members]
    assert imaginations[0] is not None
    assert imaginations[1] is not None
    assert imaginations[0].pile is imaginations[1].pile
    together(members)
    for seed in (1, 2):
        run = {"order": "natural", "seed": seed}
        tiny_experiment("imagine", run, **SHORT).start(tmp_path / "alone" / f"order-1-seed-{seed}", Watch())
    assert results(tmp_path / "runs") == results(tmp_path / "alone")


def test_interrupted_all_stop_with_checkpoints_and_go_on(separate: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    with pytest.raises(Interrupted):
        together(make_members(config(), ORDERS, (), folder), Watch(stop_at=14))
    stands = [json.loads((folder / f"order-{i}" / "checkpoint" / "latest.json").read_text()) for i in (1, 2, 3)]
    assert [info["partial"]["step"] for info in stands] == [stands[0]["partial"]["step"]] * 3
    assert stands[0]["partial"]["step"] > 0
    assert all("optimizer" in info["files"] for info in stands)
    assert not list(folder.glob("*/.lock"))
    tiny_experiment(run={"order": "seed:1"}).resume(RunFolder(folder / "order-2"), Watch())
    assert (folder / "order-2" / "result.json").exists()
    together(make_members(config(), ORDERS, (), folder))
    assert results(folder) == results(separate)


def test_one_that_is_ahead_is_caught_up_with(separate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from daydream.experiment import together as module

    folder, groups = tmp_path / "runs", []
    with pytest.raises(Interrupted):
        tiny_experiment(run={"order": "seed:1"}).start(folder / "order-2", Watch(stop_at=14))
    choose = module.side_by_side
    monkeypatch.setattr(module, "side_by_side", lambda waiting: (groups.append(choose(waiting)), groups[-1])[1])
    together(make_members(config(), ORDERS, (), folder))
    assert groups[0] == ["order-1", "order-3"]
    assert ["order-2"] in groups
    assert groups[-1] == ["order-1", "order-2", "order-3"]
    assert results(folder) == results(separate)


class Longer(Experiment):
    """An experiment whose stages have an epoch more."""

    def stages(self, task: Task) -> list[Stage]:
        return [replace(stage, epochs=stage.epochs + bool(stage.epochs)) for stage in super().stages(task)]


def test_runs_that_disagree_take_turns(separate: Path, tmp_path: Path) -> None:
    members = make_members(config(), ORDERS[:2], (), tmp_path / "runs")
    members[1] = replace(members[1], experiment=Longer(members[1].experiment.config))
    together(members)
    assert results(tmp_path / "runs")[0] == results(separate)[0]
    Longer(members[1].experiment.config).start(tmp_path / "longer" / "order-2", Watch())
    assert results(tmp_path / "runs")[1] == results(tmp_path / "longer")[0]


def test_one_that_fails_leaves_the_others(separate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = make_members(config(), ORDERS[:2], (), tmp_path / "runs")
    first = members[0].experiment.method
    spoiled = first.stages

    def stages(task: Task) -> list[Stage]:
        given = spoiled(task)
        broken = lambda state, batch: {"ce": given[0].losses(state, batch)["ce"] * torch.nan}  # noqa: E731
        return [replace(given[0], losses=broken), *given[1:]] if task.index else given

    monkeypatch.setattr(first, "stages", stages)
    outcomes = together(members)
    assert "loss 'ce' is not finite in epoch 1 of stage" in outcomes["order-1"].error
    assert outcomes["order-2"].result is not None
    assert results(tmp_path / "runs")[1] == results(separate)[1]


def test_other_settings_are_refused_before_anything_runs(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    tiny_experiment(run={"order": "seed:1", "tasks": 1}, **SHORT).start(folder / "order-2", Watch())
    with pytest.raises(UserError, match=r"order-2: the settings changed .*method\.base_epochs"):
        make_members(config(run={"tasks": 1}), ORDERS, (), folder)
    assert not (folder / "order-1").exists()


def test_orders_are_those_of_reproduce() -> None:
    assert first_orders("cifar100", 3) == FULL.orders
    assert first_orders("shapes", 3) == SMOKE.orders
    assert first_orders("imagenet-subset", 2) == ("lucir", "seed:1")
    assert first_orders("cifar100", 2, part=True) == ("natural", "seed:1")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--together"], "name them with --orders N or --seeds N,N,..."),
        (["--orders", "0"], "--orders 0 must be at least 1"),
        (["--orders", "4", "--data", "cifar100"], "--orders 4 is too many: the paper has 3 class orders of cifar100"),
        (["--orders", "2", "--order", "seed:4"], "--order seed:4 and --orders 2: give one of the two"),
        (["--seeds", "1,2", "--seed", "3"], "--seed 3 and --seeds 1,2: give one of the two"),
        (["--seeds", "1,,2"], "--seeds 1,,2 must be different whole numbers"),
        (["--seeds", "1,2,01"], "must be different whole numbers separated by commas"),
        (["--orders", "2", "--memory", "0"], "--memory 0: method 'replay' keeps exemplars"),
    ],
)
def test_mistakes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {word.split("=")[0] for word in words}
    data = [] if "--data" in given else TINY[:4]
    extra = [word for word in [*data, *TINY[4:]] if word.split("=")[0] not in given]
    code, out, err = call(capsys, "run", *words, *extra, "--out", "x")
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1, err
    assert list(tmp_path.iterdir()) == []


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["run", *TINY, "--tasks=1", "--seeds", "1,2", "--out", str(tmp_path / "runs")]
    code, out, _ = call(capsys, *words, "--together", "--dry-run")
    assert code == 0
    assert "seed-2: replay on shapes" in out
    assert not (tmp_path / "runs").exists()
    code, out, err = call(capsys, *words, "--together")
    assert code == 0, err
    assert "seed-2 task 1: 2 classes, CNN" in out
    assert out.count("epoch 1/1") == 1
    assert "mean of 2" in out
    assert "±" in out
    before = [(tmp_path / "runs" / f"seed-{seed}" / "result.json").stat().st_mtime_ns for seed in (1, 2)]
    code, out, err = call(capsys, *words, "--json", "--quiet")
    assert (code, err) == (0, "")
    found = json.loads(out)
    accuracies = [run["result"]["average_nme"] for run in found["runs"]]
    assert found["means"]["average_nme"]["mean"] == pytest.approx(sum(accuracies) / 2)
    assert [(tmp_path / "runs" / f"seed-{seed}" / "result.json").stat().st_mtime_ns for seed in (1, 2)] == before


def test_a_run_is_no_folder_of_runs(capsys: pytest.CaptureFixture[str], separate: Path) -> None:
    code, _, err = call(capsys, "run", *TINY, "--orders", "2", "--out", str(separate / "order-1"))
    assert code == 2
    assert "name the folder that several runs are to lie in" in err


def test_a_failure_is_told_and_exits_with_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "runs" / "seed-1").mkdir(parents=True)
    (tmp_path / "runs" / "seed-1" / "letter.txt").write_text("mine")
    words = ["run", *TINY, "--tasks=1", "--seeds", "1,2", "--together", "--out", str(tmp_path / "runs")]
    code, out, err = call(capsys, *words)
    assert code == 1
    assert "seed-1 failed: --out" in err
    assert "mean of 1" in out
    assert [path.name for path in (tmp_path / "runs" / "seed-1").iterdir()] == ["letter.txt"]


def test_ctrl_c_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from daydream.engine.loop import Loop

    words = ["run", *TINY, "--tasks=1", "--seeds", "1,2", "--together", "--out", str(tmp_path / "runs")]
    step, taken = Loop.step, []

    def stopping(loop: Loop) -> None:
        taken.append(loop)
        if len(taken) == 3:
            signal.raise_signal(signal.SIGINT)
        step(loop)

    monkeypatch.setattr(Loop, "step", stopping)
    code, _, err = call(capsys, *words)
    assert code == 130
    assert f"stopped; the same command with --out {tmp_path / 'runs'} goes on from here" in err
    code, out, err = call(capsys, *words)
    assert code == 0, err
    assert out.count("resuming replay") == 2
    assert "mean of 2" in out
