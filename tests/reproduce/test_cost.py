"""What a grid will cost: the arithmetic, and a real trial."""

from pathlib import Path

import pytest
from tiny_grids import tiny_plan

from daydream.errors import UserError
from daydream.reproduce import cost
from daydream.reproduce.cost import Pace, Trial, estimate
from daydream.reproduce.jobs import Job
from daydream.reproduce.plan import Planned, Stretch


def test_the_seconds_of_a_job() -> None:
    stretches = (
        Stretch(0, "train", 1000, shared=True),
        Stretch(0, "select", 0, shared=False),
        Stretch(1, "train", 100, shared=False),
        Stretch(2, "train", 100, shared=False),
    )
    planned = Planned(Job("one", "runs/one", {}), stretches, base=None)
    trial = Trial(
        start=3.0,
        paces={
            "base train": Pace(step=0.5, once=20.0, each=1.0),
            "base select": Pace(each=4.0),
            "increment train": Pace(step=0.25, once=10.0, each=2.0),
        },
    )
    increments = 2 * (100 * 0.25 + 2) + 10
    assert trial.seconds(planned, given_base=False) == 3 + (500 + 20 + 1) + 4 + increments
    assert trial.seconds(planned, given_base=True) == 3 + 4 + increments


def test_a_real_trial_times_every_stage_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tiny_plan(tmp_path, "ablation", "baseline", "sc-sdc-cyc")
    said: list[str] = []
    found = estimate(plan, said.append)
    assert len(said) == 2
    assert set(found.seconds) == {job.folder for job in plan.chosen}
    trial = found.trials[next(key for key in found.trials if key.startswith("imagine"))]
    assert set(trial.paces) == {
        f"{kind} {stage}" for kind in ("base", "increment") for stage in ("train", "select", "imagine")
    }
    assert all(pace.step > 0 for key, pace in trial.paces.items() if not key.endswith("select"))
    assert list(tmp_path.iterdir()) == []

    found.keep(tmp_path)
    monkeypatch.setattr(cost, "try_out", lambda *_: pytest.fail("timed again"))
    again = estimate(tiny_plan(tmp_path, "ablation", "baseline", "sc-sdc-cyc"), said.append)
    assert again.seconds == found.seconds


def test_a_trial_cannot_diverge(tmp_path: Path) -> None:
    values = tiny_plan(tmp_path, "ablation", "sc-sdc-cyc").chosen[0].values
    values = {**values, "imagination": {**values["imagination"], "generator_lr": 1e30}}
    assert cost.try_out(values).paces["base imagine"].step > 0


def test_what_makes_a_step_slower_is_timed_by_itself(tmp_path: Path) -> None:
    kinds = {job.name.partition(",")[0]: cost.kind_of(job.values) for job in tiny_plan(tmp_path, "parts").chosen}
    assert kinds["replay"] == kinds["replay+blend"] != kinds["replay+rotations"]
    assert kinds["ucir"] != kinds["ucir+parts"]
    assert kinds["dream"] == kinds["dream-blend"] != kinds["dream-rotations"]
    assert kinds["imagine"] != kinds["replay"] != kinds["replay+pile-teach"]


def test_a_kind_that_cannot_be_timed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(values: object, switch: object) -> Trial:
        raise UserError("the training diverged")

    monkeypatch.setattr(cost, "try_out", refuse)
    found = estimate(tiny_plan(tmp_path, "ablation", "baseline"), lambda line: None)
    assert list(found.failed.values()) == ["the training diverged"]
    assert found.seconds == {}
    assert found.total == 0
