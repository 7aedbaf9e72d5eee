"""Results made on another machine as a grid's runs: what must agree, and what may differ."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from daydream.errors import UserError
from daydream.experiment.config import make_config
from daydream.reproduce import grids, protocols
from daydream.reproduce.imported_results import find_results
from daydream.reproduce.plan import Plan, make_plan
from daydream.reproduce.results import document

THERE = protocols.Choices(root="/there", unlabeled="imagenet32:/pile", device="cuda:1")
HERE = protocols.Choices()


def write(path: Path, choices: protocols.Choices, grid: str, name: str, mean: float = 66.0, **run: Any) -> None:
    """Write the result of a cell's run as a run under these choices leaves it, with other settings where given."""
    [cell] = [cell for cell in grids.build(grid, choices) if cell.name == name]
    assert cell.values is not None
    config = make_config(**{**cell.values, "run": {**cell.values["run"], "order": "icarl", **run}}).to_json()
    numbers = {f"{kind}_{how}": mean for kind in ("average", "last") for how in ("nme", "cnn")}
    tasks = [{"task": 0, "cnn": {"top1": mean}}]
    result = {"reports": "nme", **numbers, "seconds": 5.0, "parameters": 9, "tasks": tasks}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**result, "config": {**config, "device": "NVIDIA H200"}}))


def lengthen(path: Path, tops: list[float]) -> None:
    """Give a written result a task for each of these accuracies."""
    result = json.loads(path.read_text())
    rows = [
        {"task": i, "cnn": {"top1": top}, "nme": {"top1": top + 1}, "seconds": 10.0 + i} for i, top in enumerate(tops)
    ]
    path.write_text(json.dumps({**result, "tasks": rows, "forgetting_nme": 9.0}))


def plan_from(place: Path, grid: str, choices: protocols.Choices = HERE, *more: Path) -> Plan:
    every = grids.build(grid, choices)
    found = [find_results(one) for one in (place, *more)]
    return make_plan(grid, every, every, ["icarl"], place.parent / "out", found)


def done(plan: Plan) -> list[str]:
    return [name for name, [job] in plan.jobs.items() if job.result is not None]


def test_where_a_run_was_made_does_not_matter(tmp_path: Path) -> None:
    there = tmp_path / "there"
    write(there / "a" / "result.json", THERE, "counterparts", "n4", base_from="/runs/replay", precision="bf16")
    write(there / "kept.json", THERE, "counterparts", "n0", 64.0)
    write(there / "another-seed.json", THERE, "counterparts", "n1", seed=2)
    write(there / "fewer-tasks.json", THERE, "counterparts", "n8", tasks=3)
    bad = there / "bad.json"
    write(bad, THERE, "counterparts", "n1")
    bad.write_text(json.dumps({**json.loads(bad.read_text()), "tasks": 3}))
    (there / "list.json").write_text("[1]")
    (there / "table.json").write_text('{"grid": "table1", "cells": []}')
    plan = plan_from(there, "counterparts")
    assert done(plan) == ["n0", "n4"]
    assert {Path(job.folder).name[:6] for job in plan.chosen if job.result is None} == {"imagin"}
    cells = {cell["name"]: cell for cell in document(plan, protocols.FULL, {})["cells"]}
    assert (cells["n0"]["mean"], cells["n0"]["state"]) == (64.0, "done")
    assert cells["n0"]["runs"][0]["result"] == str(there / "kept.json")
    assert done(plan_from(there / "kept.json", "counterparts")) == ["n0"]


@pytest.mark.parametrize(
    ("name", "section", "setting", "value", "counts"),
    [
        ("ucir", "imagination", "cycle", 0.125, True),
        ("ucir", "pile", "mining", "uniform", True),
        ("ucir", "parts", "rotations", "all", False),
        ("ucir", "method", "margin", 0.125, False),
        ("imagine", "pile", "pile_distill", 0.125, False),
        ("imagine", "pile", "pile_distill", 0.5, True),  # what it is where nothing is said
        ("dream", "parts", "erase", 0.125, False),
        ("dream-generators", "imagination", "cycle", 0.125, True),
    ],
)
def test_only_settings_of_what_a_run_carries_matter(
    tmp_path: Path, name: str, section: str, setting: str, value: object, counts: bool
) -> None:
    there = tmp_path / "there" / "x.json"
    write(there, THERE, "parts", name)
    result = json.loads(there.read_text())
    result["config"][section][setting] = value
    there.write_text(json.dumps(result))
    assert done(plan_from(there.parent, "parts")) == ([name] if counts else [])


def test_another_pile_does(tmp_path: Path) -> None:
    write(tmp_path / "there" / "x.json", THERE, "depth", "d2")
    elsewhere = protocols.Choices(unlabeled="imagenet32:/another/folder")
    other = protocols.Choices(unlabeled="folder:/pile")
    assert done(plan_from(tmp_path / "there", "depth", elsewhere)) == ["d2"]
    assert done(plan_from(tmp_path / "there", "depth", other)) == []
    borrowed = protocols.Choices(root="/there", unlabeled="imagenet32:/pile")
    write(tmp_path / "tiny" / "x.json", borrowed, "standin", "imagine")
    write(tmp_path / "tiny" / "y.json", borrowed, "standin", "replay")
    assert done(plan_from(tmp_path / "tiny", "standin")) == ["replay"]  # the other one did not see its own pile


def test_two_results_of_one_run(tmp_path: Path) -> None:
    there = tmp_path / "there"
    write(there / "a.json", THERE, "depth", "d1")
    write(there / "copy.json", THERE, "depth", "d1")
    assert done(plan_from(there, "depth")) == ["d1"]
    write(there / "copy.json", THERE, "depth", "d1", 67.0)
    with pytest.raises(UserError, match=r"two results of d1, order icarl: .*a\.json and .*copy\.json; leave one"):
        plan_from(there, "depth")


def test_two_results_in_two_folders_name_the_folders_to_choose_from(tmp_path: Path) -> None:
    here, there = tmp_path / "all" / "one", tmp_path / "all" / "other"
    write(here / "a.json", THERE, "depth", "d1")
    write(there / "a.json", THERE, "depth", "d1", 67.0)
    with pytest.raises(UserError, match="two results of d1") as error:
        plan_from(tmp_path / "all", "depth")
    assert str(error.value).endswith(f"name the folder to go by, --from {here} or --from {there}")
    assert "\n" not in str(error.value)
    assert done(plan_from(there, "depth")) == ["d1"]


def test_of_several_places_the_first_that_has_a_run_counts(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write(one / "a.json", THERE, "depth", "d1", 60.0)
    write(other / "a.json", THERE, "depth", "d1", 67.0)
    write(other / "b.json", THERE, "depth", "d2", 68.0)
    both, turned = plan_from(one, "depth", HERE, other), plan_from(other, "depth", HERE, one)
    assert done(both) == done(turned) == ["d1", "d2"]
    assert [plan.jobs["d1"][0].made for plan in (both, turned)] == [str(one / "a.json"), str(other / "a.json")]


def test_a_result_that_cannot_be_read_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    there = tmp_path / "there"
    write(there / "good.json", THERE, "depth", "d1")
    write(there / "strange.json", THERE, "depth", "d4")
    strange = json.loads((there / "strange.json").read_text())
    strange["config"]["method"]["warp"] = 9
    (there / "strange.json").write_text(json.dumps(strange))
    with caplog.at_level(logging.WARNING, "daydream"):
        assert done(plan_from(there, "depth")) == ["d1"]
    assert "strange.json is left out: unknown setting" in caplog.text
    (there / "torn.json").write_text("{")
    with caplog.at_level(logging.WARNING, "daydream"):
        assert done(plan_from(there, "depth")) == ["d1"]  # a file of another program's need not be JSON
    assert "torn.json cannot be read as JSON" in caplog.text


def test_a_run_of_all_tasks_is_one_of_its_first_ones(tmp_path: Path) -> None:
    whole, short = tmp_path / "there" / "whole.json", tmp_path / "there" / "short.json"
    write(whole, THERE, "counterparts", "n8", tasks=None)
    lengthen(whole, [80.0, 70.0, 60.0, 50.0, 40.0, 30.0])
    [job] = plan_from(whole, "counterparts").jobs["n8"]
    assert job.result is not None
    assert (job.result["average_cnn"], job.result["average_nme"]) == (65.0, 66.0)
    assert (job.result["last_cnn"], job.result["last_nme"], job.result["seconds"]) == (50.0, 51.0, 13.0)
    assert len(job.result["tasks"]) == 4
    assert "forgetting_nme" not in job.result
    write(short, THERE, "counterparts", "n8", 71.0)  # what was asked for comes before what holds it
    [job] = plan_from(short.parent, "counterparts").jobs["n8"]
    assert job.result is not None
    assert job.result["average_nme"] == 71.0


def test_a_run_of_some_tasks_is_not_one_of_all(tmp_path: Path) -> None:
    write(tmp_path / "there" / "four.json", THERE, "ablation", "baseline", tasks=4)
    assert done(plan_from(tmp_path / "there", "ablation")) == []


def test_a_longer_run_of_some_tasks_is_one_of_its_first_ones_and_two_that_agree_on_them_may_be(tmp_path: Path) -> None:
    there, tops = tmp_path / "there", [80.0, 70.0, 60.0, 50.0]
    for name, more, tasks in (("six", [40.0, 30.0], 6), ("whole", [45.0, 35.0, 25.0], None)):
        write(there / f"{name}.json", THERE, "counterparts", "n8", tasks=tasks)
        lengthen(there / f"{name}.json", [*tops, *more])
    assert done(plan_from(there / "six.json", "counterparts")) == ["n8"]
    [job] = plan_from(there, "counterparts").jobs["n8"]
    assert job.result is not None
    assert job.result["average_cnn"] == 65.0
    lengthen(there / "six.json", [81.0, 70.0, 60.0, 50.0, 40.0, 30.0])
    with pytest.raises(UserError, match="two results"):
        plan_from(there, "counterparts")


def test_of_tasks_without_an_accuracy_there_is_no_mean(tmp_path: Path) -> None:
    path = tmp_path / "there" / "whole.json"
    write(path, THERE, "counterparts", "n8", tasks=None)
    lengthen(path, [80.0, 70.0, 60.0, 50.0, 40.0])
    result = json.loads(path.read_text())
    result["tasks"][0]["nme"] = None
    path.write_text(json.dumps(result))
    [job] = plan_from(path, "counterparts").jobs["n8"]
    assert job.result is not None
    assert (job.result["average_nme"], job.result["last_nme"]) == (None, None)
    assert job.result["average_cnn"] == 65.0
