"""The picture of the grid `parts`: what its lines are made of, and that every cell has one."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from tiny_grids import tiny_plan

from daydream.errors import UserError
from daydream.reproduce import memory_picture, own_grids
from daydream.reproduce.picture import curve, draw, label
from daydream.reproduce.plan import Plan


def write(plan: Plan, name: str, *accuracies: list[tuple[float | None, float]]) -> None:
    """Finish a cell's runs, an order each, with accuracies on old and new classes after each task."""
    for job, rows in zip(plan.jobs[name], accuracies, strict=False):
        tasks: list[dict[str, Any]] = [
            {"classes": 2 + number, "nme": {"old": old, "new": new}} for number, (old, new) in enumerate(rows)
        ]
        Path(job.folder).mkdir(parents=True, exist_ok=True)
        (Path(job.folder) / "result.json").write_text(json.dumps({"tasks": tasks}))


def test_a_line_is_the_mean_over_class_orders_and_says_where_some_are_missing(tmp_path: Path) -> None:
    plan = tiny_plan(tmp_path, "parts", orders=2)
    both, one = plan.cells[0], plan.cells[1]
    write(plan, both.name, [(None, 80.0), (70.0, 90.0)], [(None, 60.0), (50.0, 80.0)])
    write(plan, one.name, [(None, 80.0), (70.0, 90.0)])
    assert curve(plan.jobs[both.name], "old") == [(3, 60.0)]
    assert curve(plan.jobs[both.name], "new") == [(2, 70.0), (3, 85.0)]
    assert [label(cell, plan) for cell in (both, one)] == ["replay", "replay + blend (1 of 2 orders)"]


def test_every_cell_is_drawn_in_the_panels_of_its_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    drawn: list[Any] = []
    monkeypatch.setattr(figures.Figure, "savefig", lambda figure, part, format: drawn.append(figure))
    plan = tiny_plan(tmp_path, "parts")
    assert not draw(plan, tmp_path / "parts.png")
    for cell in plan.cells:
        write(plan, cell.name, [(None, 80.0), (70.0, 90.0)])
    assert draw(plan, tmp_path / "parts.png")
    lines = [[line.get_label() for line in axes.lines] for axes in drawn[0].axes]
    assert lines[0::2] == lines[1::2]
    assert [len(names) for names in lines[0::2]] == [5, 1, 3, 2, 2]
    assert list(chain.from_iterable(lines[0::2])) == [cell.row for cell in plan.cells]
    looks = [[(line.get_color(), line.get_marker()) for line in axes.lines] for axes in drawn[0].axes]
    assert all(len(set(panel)) == len(panel) for panel in looks)


def test_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plan = tiny_plan(tmp_path, "parts")
    write(plan, "dream", [(None, 80.0), (70.0, 90.0)])
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--out: .*parts\.png cannot be written"):
        draw(plan, tmp_path / "file" / "parts.png")


def test_the_memory_curve_has_a_line_for_each_method_and_a_point_for_each_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    drawn: list[Any] = []
    monkeypatch.setattr(figures.Figure, "savefig", lambda figure, part, format: drawn.append(figure))
    plan = tiny_plan(tmp_path, "memory", orders=2)
    assert not memory_picture.draw(plan, tmp_path / "memory.png")
    for cell in plan.cells:
        for place, job in enumerate(plan.jobs[cell.name]):
            assert cell.memory is not None
            accuracies = {"average_nme": 10.0 * place + cell.memory, "average_cnn": 5.0}
            Path(job.folder).mkdir(parents=True, exist_ok=True)
            (Path(job.folder) / "result.json").write_text(json.dumps(accuracies))
    nme = memory_picture.lines(plan, "nme")
    assert set(nme) == set(memory_picture.STYLES)
    assert nme["taught"][1] == [(kept, 5.0 + kept, pytest.approx(50**0.5)) for kept in own_grids.MEMORIES]
    assert memory_picture.draw(plan, tmp_path / "memory.png")
    names = drawn[0].axes[1].get_legend_handles_labels()[1]
    assert names == ["replay", "replay, pile taught", "imagine", "dream", "ucir"]
