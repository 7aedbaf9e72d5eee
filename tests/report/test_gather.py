"""Runs read into plain data, and gathered into lines of means."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from written_runs import write_run

from daydream.errors import UserError
from daydream.report.formats import paper_text
from daydream.report.gather import Spent, read_runs, sections, short_names
from daydream.report.summary import lines_of

MATRIX = ((80.0,), (60.0, 90.0), (66.0, 70.0, 85.0))


def test_a_run_is_read(tmp_path: Path) -> None:
    [run] = read_runs([write_run(tmp_path / "a", MATRIX, epochs=3, stages=("train", "imagine"))])
    assert run.name == "a"
    assert run.matrix("nme") == [list(row) for row in MATRIX]
    assert run.forgetting("cnn") == [None, 20.0, ((80.0 - 66.0) + (90.0 - 70.0)) / 2]
    assert run.stages == ["train", "imagine"]
    assert run.spent() == {(task, stage): Spent(6.0, 3000) for task in range(3) for stage in ("train", "imagine")}
    assert run.seconds_of_tasks() == [10.0, 10.0, 10.0]
    assert run.protocol == "50 classes + 10 steps, memory 2000 total, resnet32, order icarl"


def test_a_run_without_exemplars(tmp_path: Path) -> None:
    [run] = read_runs([write_run(tmp_path / "a", nme=False)])
    assert run.measured("nme") == run.matrix("nme") == run.forgetting("nme") == []
    assert len(run.measured("cnn")) == 3
    assert "no memory" in run.protocol


def test_an_unfinished_run_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", MATRIX[:1], finished=False)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "epo')
    [run] = read_runs([folder])
    assert run.status == "unfinished: 1 task done"
    assert lines_of([run]) == []


def test_a_run_given_twice_is_read_once(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    assert len(read_runs([tmp_path / "a", tmp_path / "a" / ".." / "a"])) == 1


def test_what_is_no_run_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere is not a run"):
        read_runs([tmp_path / "nowhere"])
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Other"]}))
    with pytest.raises(UserError, match=r"is not a run: its config\.json"):
        read_runs([tmp_path])
    with pytest.raises(UserError, match="has format 3; this daydream reads format 2"):
        read_runs([write_run(tmp_path / "later", format=3)])
    damaged = write_run(tmp_path / "damaged")
    (damaged / "metrics.jsonl").write_text("{not json}\n")
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged"):
        read_runs([damaged])


def test_short_names_tell_runs_apart() -> None:
    paths = [Path("/r/a/seed1"), Path("/r/b/seed1"), Path("/r/b/seed2")]
    assert short_names(paths) == ["a/seed1", "b/seed1", "seed2"]


def test_runs_on_other_images_get_their_own_section(tmp_path: Path) -> None:
    paths = [
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b", run={"data": "shapes"}, fingerprint="1111111111"),
        write_run(tmp_path / "c", run={"data": "shapes"}, fingerprint="2222222222"),
        write_run(tmp_path / "d"),
    ]
    found = [(section.title, [run.name for run in section.runs]) for section in sections(read_runs(paths))]
    assert found == [("cifar100", ["a", "d"]), ("shapes, images 11111111", ["b"]), ("shapes, images 22222222", ["c"])]


def test_a_stand_in_is_called_one(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", run={"data": "tiny-imagenet"}, data={"labelled": "0:100"})
    [section] = sections(read_runs([run]))
    assert section.title == "tiny-imagenet 0:100 (a stand-in for ImageNet-Subset)"


def test_means_over_seeds_and_orders(tmp_path: Path) -> None:
    lasts = [85.0, 79.0, 70.0]
    paths = [
        write_run(
            tmp_path / f"{i}",
            (*MATRIX[:2], (66.0, 70.0, last)),
            run={"seed": i, "order": f"seed:{i}", "base_from": f"/runs/{i}", "device": "cpu"},
        )
        for i, last in enumerate(lasts)
    ]
    [line] = lines_of(read_runs(paths))
    tops = [(66 + 70 + last) / 3 for last in lasts]
    found = line.value("last_nme")
    assert found is not None
    assert found.mean == pytest.approx(sum(tops) / 3)
    assert found.deviation == pytest.approx(statistics.stdev(tops))
    assert line.averaged_over == "seed 0, 1, 2; order seed:0, seed:1, seed:2"


@pytest.mark.parametrize(
    "other",
    [{"run": {"memory": 1000}}, {"run": {"validation": 0.1}}, {"method": {"lr": 0.2}}, {"fingerprint": "other"}],
)
def test_runs_that_differ_in_more_are_not_averaged(tmp_path: Path, other: dict[str, object]) -> None:
    runs = read_runs([write_run(tmp_path / "a"), write_run(tmp_path / "b", **other)])
    assert [len(line.runs) for line in lines_of(runs)] == [1, 1]


PODNET = {"method": "podnet", "memory": 20, "budget": "per_class"}


def test_no_difference_to_a_number_whose_memory_rule_is_not_stated(tmp_path: Path) -> None:
    [line] = lines_of(read_runs([write_run(tmp_path / "a", run={"method": "icarl"})]))
    assert line.paper is not None
    assert line.difference is None
    assert paper_text(line) == "52.42† (kind not said, memory rule not said)"


@pytest.mark.parametrize(
    ("run", "method", "accuracy", "kind"),
    [
        ({}, {}, 63.98, "nme"),
        ({"order": "paper-3"}, {}, 63.98, "nme"),
        ({"method": "imagine"}, {}, 66.47, "nme"),
        ({"method": "imagine", "memory": 1000}, {}, 64.41, "nme"),
        ({"method": "podnet", "memory": 20, "budget": "per_class"}, {"configuration": "nme"}, 64.03, "nme"),
        ({"method": "joint", "memory": 77}, {}, 72.8, "cnn"),
    ],
)
def test_the_paper_beside_a_run(
    tmp_path: Path, run: dict[str, object], method: dict[str, object], accuracy: float, kind: str
) -> None:
    [line] = lines_of(read_runs([write_run(tmp_path / "a", MATRIX, run=run, method=method)]))
    assert line.paper is not None
    assert (line.paper.accuracy, line.reports) == (accuracy, kind)
    tops = [80.0, 75.0, (66 + 70 + 85) / 3]
    assert line.difference == pytest.approx(sum(tops) / 3 - accuracy)


@pytest.mark.parametrize(
    "run",
    [
        {"validation": 0.1},
        {"tasks": 4},
        {"base": 10},
        {"data": "shapes"},
        {"memory": 500},
        {"method": "finetune"},
        {"backbone": "resnet10"},
        {"cut": "stage2"},
        {"order": "seed:7"},
        {"method": "imagine", "memory": 20, "budget": "per_class"},
        {"method": "ucir"},  # whose number is one of 20 per class
    ],
)
def test_other_protocols_are_not_held_against_the_paper(tmp_path: Path, run: dict[str, object]) -> None:
    [line] = lines_of(read_runs([write_run(tmp_path / "a", run=run)]))
    assert line.paper is None


@pytest.mark.parametrize(
    "components",
    [
        {"imagination": {"imagine": True}},
        {"parts": {"blend": "0.6"}},
        {"parts": {"erase": 0.3}},
        {"method": {"epochs": 20}},
        {"method": {"new_share": 0.4}},
        {"data": {"labelled": "0:60"}},
        {"run": {"method": "imagine"}, "imagination": {"imagined_weight": 0.25}},
        {"run": {"method": "imagine"}, "pile": {"unlabeled": "cifar10:/data"}},
        {"run": {"method": "imagine"}, "pile": {"unlabeled": "imagenet32:/data", "pile_classes": 10}},
        {"run": PODNET, "method": {"configuration": "cnn"}},
        {"run": PODNET, "method": {"configuration": "nme", "spatial": 1.0}},
    ],
)
def test_a_run_with_other_settings_is_not_the_papers(tmp_path: Path, components: dict[str, Any]) -> None:
    [line] = lines_of(read_runs([write_run(tmp_path / "a", **components)]))
    assert line.paper is None


@pytest.mark.parametrize(
    "components",
    [
        {"method": {"epochs": 160}, "parts": {"blend": "1", "rotation_settle": 0.0}},
        {"imagination": {"generator_depth": 4}},  # which a baseline does not use
        {"run": {"method": "imagine"}, "imagination": {"imagine": True}, "pile": {"pile_distill": 0.0}},
        {"run": {"method": "imagine"}, "pile": {"unlabeled": "imagenet32:/data", "pile_classes": None}},
        {"run": PODNET, "method": {"configuration": "nme"}},
    ],
)
def test_the_papers_settings_may_be_spelt_out(tmp_path: Path, components: dict[str, Any]) -> None:
    [line] = lines_of(read_runs([write_run(tmp_path / "a", **components)]))
    assert line.paper is not None
