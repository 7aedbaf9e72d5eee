"""Jobs of a grid: shared base tasks, what is done, what was stopped, what fails."""

import pickle
from pathlib import Path

import pytest
from tiny_grids import TINY, StopAt, tiny_plan
from tiny_runs import Watch, without_times

from daydream import atomic
from daydream.engine import Interrupted
from daydream.experiment.config import make_config
from daydream.experiment.experiment import Experiment
from daydream.reproduce import grids, jobs, protocols, runner
from daydream.reproduce.jobs import InProcess, Outcome, make_job, with_order
from daydream.reproduce.runner import Turns
from daydream.storage.run_folder import RunFolder


def test_jobs_that_share_a_base_task_wait_for_the_first(tmp_path: Path) -> None:
    first, then = tiny_plan(tmp_path, orders=2).waves
    assert [entry.job.values["run"]["method"] for entry in first] == ["replay", "replay"]
    assert first[0].base != first[1].base
    assert [entry.job.values["run"]["method"] for entry in then] == ["imagine"] * 6
    assert list(tmp_path.iterdir()) == []


def test_a_jobs_folder_does_not_depend_on_parts_that_are_off(tmp_path: Path) -> None:
    cells = {cell.name: cell.values for cell in grids.build("parts", protocols.Choices()) if cell.values}

    def folder(name: str, **parts: object) -> str:
        values = cells[name]
        return make_job(name, {**with_order(values, "icarl"), "parts": {**values["parts"], **parts}}, tmp_path).folder

    assert folder("replay") == folder("replay", blend=1.0, erase=0.0)
    assert folder("replay+rotations") != folder("replay+rotations", blend=0.5)
    assert len({folder(name) for name in cells}) == len(cells)


def test_jobs_of_another_recipe_do_not_wait(tmp_path: Path) -> None:
    first, then = tiny_plan(tmp_path, "table1", "ucir-5-2000", "imagine-5-*", "joint-*").waves
    assert [entry.job.values["run"]["method"] for entry in first] == ["joint", "ucir", "imagine"]
    assert [(e.job.values["run"]["method"], e.job.values["run"]["memory"]) for e in then] == [("imagine", 12)]


def test_parts_train_a_base_task_for_each_kind_of_rotations(tmp_path: Path) -> None:
    """What is taken from `dream` starts from the turned base task, what is added to `replay` from the plain one."""
    first, then = tiny_plan(tmp_path, "parts", "replay*", "dream*").waves
    assert [entry.job.name.partition(",")[0] for entry in first] == ["replay", "replay+rotations"]
    assert len(then) == 6


def test_a_job_is_ready_once_its_base_task_is_trained_though_its_trainer_goes_on(tmp_path: Path) -> None:
    plan = tiny_plan(tmp_path, "ablation", orders=2)
    turns = Turns(plan)
    trainer, of_another_order = (entry.job for entry in plan.waves[0])
    assert [job.name for job in turns.jobs if turns.ready(job)] == [trainer.name, of_another_order.name]
    folder, base = Path(trainer.folder), plan.waves[0][0].base
    assert base is not None
    (folder / "base").mkdir(parents=True)
    atomic.write_json(folder / "config.json", {"run": {"seed": base.seed}})
    atomic.write_json(folder / "base" / "latest.json", {"conditions": base.conditions, "settings": {"lr": 7}})
    assert sum(map(turns.ready, turns.jobs)) == 2  # the folder holds another base task
    atomic.write_json(folder / "base" / "latest.json", {"conditions": base.conditions, "settings": base.settings})
    waited = [job for job in turns.jobs[2:] if turns.ready(job)]
    assert [job.values["run"]["order"] for job in waited] == [trainer.values["run"]["order"]] * 3
    (folder / "base" / "latest.json").unlink()
    assert all(map(turns.ready, waited))  # it was seen, and is not looked for again


def test_should_a_trainer_fail_the_next_trains_and_the_others_wait_for_it(tmp_path: Path) -> None:
    turns = Turns(tiny_plan(tmp_path, "ablation"))
    trainer, second, *others = turns.jobs
    assert not turns.ready(second)
    turns.ended(trainer)
    assert turns.ready(second)
    assert not any(map(turns.ready, others))


def test_equal_settings_are_one_run_whichever_grid_asks(tmp_path: Path) -> None:
    [table] = tiny_plan(tmp_path, "table1", "imagine-10-2000").chosen
    full = tiny_plan(tmp_path, "counterparts", "n2").chosen[0]
    [two] = tiny_plan(tmp_path, "depth", "d2").chosen
    [four] = tiny_plan(tmp_path, "depth", "d4").chosen
    assert table.folder == full.folder == two.folder != four.folder
    assert pickle.loads(pickle.dumps(table)) == table


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid of two cells, stopped in its second run and gone on with."""
    out = tmp_path_factory.mktemp("grid")
    plan = tiny_plan(out, "counterparts", "n0", "n2")
    progress = StopAt(17)  # both runs have steps enough for this to fall into the second
    with pytest.raises(Interrupted):
        runner.carry_out(plan, InProcess(lambda: progress), lambda outcome, tally: None)
    assert [job.result is not None for job in plan.chosen] == [True, False]
    assert (Path(plan.chosen[1].folder) / "checkpoint").is_dir()
    again = tiny_plan(out, "counterparts", "n0", "n2")
    told: list[Outcome] = []
    tally = runner.carry_out(again, InProcess(lambda: StopAt()), lambda outcome, _: told.append(outcome))
    assert [outcome.job.folder for outcome in told] == [plan.chosen[1].folder]
    assert (tally.jobs, tally.done, tally.failures) == (1, 1, {})
    runner.write_results(again, TINY, tally)
    return out


def test_a_run_with_a_shared_base_task_ends_as_one_with_its_own(finished: Path, tmp_path: Path) -> None:
    baseline, shared = tiny_plan(finished, "counterparts", "n0", "n2").chosen
    assert RunFolder(Path(shared.folder)).config["run"]["base_from"] == str(Path(baseline.folder).resolve())
    own = Experiment(make_config(**shared.values)).start(tmp_path / "own", Watch())
    assert shared.result is not None
    assert without_times(shared.result["tasks"]) == without_times(own["tasks"])


def test_what_is_done_is_not_run_again(finished: Path) -> None:
    plan = tiny_plan(finished, "counterparts", "n0", "n2")
    assert plan.pending == []
    assert plan.waves == [[], []]
    depth = tiny_plan(finished, "depth")
    assert [entry.job.values["imagination"]["generator_depth"] for entry in depth.pending] == [1, 4]
    assert depth.waves[0] == []  # the base task is there already


def test_what_fails_is_noted_and_the_rest_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = jobs.run_job

    def broken(job: jobs.Job, progress: object) -> dict[str, object]:
        if job.values["run"]["method"] == "replay":
            raise RuntimeError("out of memory")
        return real(job, progress)  # type: ignore[arg-type]

    monkeypatch.setattr(jobs, "run_job", broken)
    plan = tiny_plan(tmp_path, "ablation", "baseline", "sc")
    told: list[Outcome] = []
    tally = runner.carry_out(plan, InProcess(lambda: StopAt()), lambda outcome, _: told.append(outcome))
    assert [outcome.error for outcome in told] == ["RuntimeError: out of memory", ""]
    assert "broken" in told[0].trace
    assert list(tally.failures) == [plan.chosen[0].folder]
    assert told[1].result is not None
    assert RunFolder(Path(plan.chosen[1].folder)).config["run"]["base_from"] == ""  # it trained its own
    found = runner.write_results(plan, TINY, tally)
    states = {cell["name"]: cell["state"] for cell in found["cells"]}
    assert states == {"baseline": "failed", "sc": "done", "sc-sdc": "not run", "sc-sdc-cyc": "not run"}
