"""Ours beside the paper's: means, deviations, differences, and where none may be given."""

import io
import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tiny_grids import CHOICES, TINY

from daydream.reproduce import grids, protocols
from daydream.reproduce.jobs import Outcome
from daydream.reproduce.plan import Plan, make_plan
from daydream.reproduce.results import clock, document, markdown_table, summarize, text_table

LIKE_THE_PAPER = replace(TINY, comparable=True, tasks={})


def result(nme: float, cnn: float, reports: str = "nme") -> dict[str, Any]:
    known = {"average_nme": nme, "average_cnn": cnn, "last_nme": nme, "last_cnn": cnn}
    return {**known, "reports": reports, "seconds": 5.0, "parameters": 460_000, "config": {"device": "cpu"}}


def plan_of(out: Path, grid: str, scale: protocols.Scale, orders: int, **choices: Any) -> Plan:
    every = grids.build(grid, replace(CHOICES, scale=scale, **choices))
    return make_plan(grid, every, every, scale.orders[:orders], out)


def finish(plan: Plan, name: str, *results: dict[str, Any]) -> None:
    for job, found in zip(plan.jobs[name], results, strict=False):
        Path(job.folder).mkdir(parents=True, exist_ok=True)
        (Path(job.folder) / "result.json").write_text(json.dumps(found))


def shown(found: dict[str, Any]) -> str:
    screen = io.StringIO()
    Console(file=screen, width=200).print(text_table(found))
    return screen.getvalue()


def test_mean_and_deviation_over_orders() -> None:
    found = summarize([result(66.0, 1.0), result(67.0, 2.0), result(65.0, 9.0)])
    assert found is not None
    assert (found.accuracy, found.mean, found.orders) == ("nme", 66.0, 3)
    assert found.deviation == statistics.stdev([66.0, 67.0, 65.0]) == 1.0
    one = summarize([result(66.0, 62.0, "cnn")])
    assert one is not None
    assert (one.accuracy, one.mean, one.deviation) == ("cnn", 62.0, None)
    assert summarize([]) is None


def test_a_grid_beside_the_paper(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "table1", LIKE_THE_PAPER, orders=2)
    finish(plan, "imagine-10-2000", result(66.0, 60.0), result(67.0, 61.0))
    finish(plan, "podnet-5-2000", result(60.0, 64.0, "cnn"))
    broken = plan.jobs["ucir-5-2000"][0]
    found = document(plan, LIKE_THE_PAPER, {broken.folder: Outcome(broken, None, "it\ndiverged", "trace")})
    json.dumps(found)
    cells = {cell["name"]: cell for cell in found["cells"]}
    ours = cells["imagine-10-2000"]
    assert (ours["mean"], ours["orders"], ours["state"]) == (66.5, 2, "done")
    assert ours["difference"] == pytest.approx(66.5 - 66.47)
    assert ours["runs"][1]["order"] == "seed:1"
    assert not any(Path(run["folder"]).is_absolute() for run in ours["runs"])
    assert (cells["podnet-5-2000"]["accuracy"], cells["podnet-5-2000"]["state"]) == ("cnn", "1 of 2 orders")
    assert (cells["tpcil-5-2000"]["state"] == "not implemented") == (cells["tpcil-5-2000"]["runs"] == [])
    text = shown(found)
    for part in ("66.50 ± 0.71", "+0.03", "56.29†", "failed: ucir-5-2000, order natural: it diverged", "20 exemplars"):
        assert part in text
    assert cells["podnet-5-2000"]["difference"] is None  # ours keeps so many in all, the paper's so many of a class
    assert "Icarl, BiC" in text
    assert "means over three class orders" in text
    page = markdown_table(found)
    assert "| imagine-10-2000 | Ours | 10 | 24 | NME | 66.50 ± 0.71 | 66.47 | +0.03 | done |" in page  # its own memory


def test_no_difference_where_runs_do_not_compare(tmp_path: Path) -> None:
    for scale, choices, says in (
        (TINY, {}, "a miniature"),
        (LIKE_THE_PAPER, {"tasks": 1}, "its runs see all tasks"),
    ):
        plan = plan_of(tmp_path / says, "counterparts", scale, orders=1, **choices)
        finish(plan, "n2", result(66.0, 60.0))
        found = document(plan, scale, {})
        cell = next(cell for cell in found["cells"] if cell["name"] == "n2")
        assert (cell["mean"], cell["paper"], cell["difference"]) == (66.0, 66.47, None)
        assert says in found["protocol"]
        text = shown(found)
        assert "the paper: Above 4 the accuracy drops significantly." in text
        assert "steps" not in markdown_table(found).splitlines()[2]


def test_a_stand_in_is_called_one_and_has_no_difference(tmp_path: Path) -> None:
    every = grids.build("standin", protocols.Choices(root="/data"))
    full, small = make_plan("standin", every, every, ["icarl"], tmp_path), plan_of(tmp_path, "standin", TINY, orders=1)
    for plan, scale in ((full, protocols.FULL), (small, TINY)):
        finish(plan, "imagine", result(55.0, 50.0))
        found = document(plan, scale, {})
        assert [cell["difference"] for cell in found["cells"]] == [None] * 4
        for text in (" ".join(shown(found).split()), markdown_table(found)):
            assert "a stand-in for ImageNet-Subset and not it: the paper has no number" in text
            assert "55.00" in text
    line = document(full, protocols.FULL, {})["protocol"]
    assert line.startswith("tiny-imagenet, classes 0:100 labelled and the others the pile, 50 base classes and 5 steps")


def test_parts_show_both_accuracies_beside_their_method(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "parts", LIKE_THE_PAPER, orders=3)
    finish(plan, "replay", result(64.0, 62.0), result(60.0, 58.0))
    finish(plan, "replay+blend", result(66.0, 61.5), result(63.0, 58.5), result(90.0, 90.0))
    found = document(plan, LIKE_THE_PAPER, {})
    blended = next(cell for cell in found["cells"] if cell["name"] == "replay+blend")["averages"]["nme"]
    assert (blended["mean"], blended["deviation"]) == (73.0, round(statistics.stdev([66.0, 63.0, 90.0]), 4))
    assert (blended["difference_mean"], blended["difference_error"], blended["pairs"]) == (
        2.5,
        round(statistics.stdev([2.0, 3.0]) / math.sqrt(2), 4),
        2,
    )
    page = markdown_table(found)
    assert "| cell | row | NME | difference | CNN | difference | state |" in page
    assert "| replay | replay | 62.00 ± 2.83 | – | 60.00 ± 2.83 | – | 2 of 3 orders |" in page
    assert (
        "| replay+blend | replay + blend | 73.00 ± 14.80 | +2.50 ± 0.50 | 70.00 ± 17.39 | +0.00 ± 0.50 | done |" in page
    )
    assert "| dream | dream | – | – | – | – | not run |" in page
    assert "order by order where both were run" in " ".join(shown(found).split())


def test_clock() -> None:
    assert [clock(s) for s in (5.4, 89, 600, 20_000)] == ["5 s", "89 s", "10 min", "5.6 h"]


def test_controls_give_verdicts_on_pairs_of_rows(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "controls", TINY, orders=3)
    finish(plan, "generators", result(64.0, 62.0), result(60.0, 58.0), result(62.0, 61.0))
    finish(plan, "equal-weights", result(60.0, 62.5), result(56.1, 57.0), result(58.0, 62.0))
    found = document(plan, TINY, {})
    assert found["verdicts"] == [
        "generators against equal weights, no generators: the first is better by 3.97 ± 0.03 NME over 3 pairs",
        "generators against equal weights, no generators: not decided: -0.17 ± 0.60 CNN over 3 pairs; "
        "about 150 more pairs would be needed",
    ]
    for text in (" ".join(shown(found).split()), markdown_table(found)):
        assert "the first is better by 3.97" in text
        assert "memory 5 of each class" in text
        assert "a difference is to the row 'pile taught'" in text


def test_the_memory_curve_shows_how_many_are_kept(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "memory", TINY, orders=1)
    finish(plan, "replay-2", result(50.0, 40.0))
    finish(plan, "taught-2", result(55.0, 47.0))
    page = markdown_table(document(plan, TINY, {}))
    assert "| taught-2 | replay, pile taught | 2 | 55.00 | +5.00 | 47.00 | +7.00 | done |" in page
