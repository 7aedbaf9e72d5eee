"""Charts as figures that Plotly accepts, with the numbers of the runs."""

import random
from pathlib import Path

import pytest
from written_runs import write_run

from daydream.report.charts import COLOURS, comparison, style_of
from daydream.report.gather import Run, read_runs
from daydream.report.run_charts import POINTS, charts_of, confusion, distinct, features, losses, matrix

MATRIX = ((80.0,), (60.0, 90.0), (66.0, 70.0, 85.0))


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    counts = [[int(i == j) + int(j == 3) for j in range(30)] for i in range(30)]
    return read_runs(
        [
            write_run(tmp_path / "a", MATRIX, confusion=counts, stages=("train", "imagine")),
            write_run(tmp_path / "b", nme=False),
            write_run(tmp_path / "c", MATRIX[:1], finished=False),
            write_run(tmp_path / "d", (), finished=False),
        ]
    )


def test_plotly_accepts_every_figure(runs: list[Run]) -> None:
    """Its Python package knows every property its script knows, and refuses others."""
    graph = pytest.importorskip("plotly.graph_objects")
    points = {kind: [[0.0, 1.0], [2.0, 3.0]] for kind in ("real data", "exemplars", "counterparts")}
    figures = [*comparison(runs), *(figure for run in runs for figure in charts_of(run)), features("ring", points)]
    assert len(figures) > 20
    for figure in figures:
        graph.Figure(data=figure["data"], layout=figure["layout"])


def test_a_run_has_one_colour_in_every_comparison(runs: list[Run]) -> None:
    for figure in comparison(runs):
        for trace in figure["data"]:
            assert trace["line"]["color"] == trace["marker"]["color"] == COLOURS[trace["meta"]]
            assert trace["name"] == runs[trace["meta"]].name


def test_thirty_runs_are_told_apart() -> None:
    assert len({style_of(i) for i in range(30)}) == 30


def test_the_familiar_curve(runs: list[Run]) -> None:
    nme, cnn = comparison(runs)[:2]
    assert [trace["name"] for trace in nme["data"]] == ["a", "c"]
    assert [trace["name"] for trace in cnn["data"]] == ["a", "b", "c"]
    assert nme["data"][0]["x"] == [10, 20, 30]
    assert nme["data"][0]["y"] == pytest.approx([80, 75, (66 + 70 + 85) / 3], abs=1e-4)
    assert nme["layout"]["yaxis"]["range"] == cnn["layout"]["yaxis"]["range"]


def test_accuracy_against_parameters_where_a_network_grows(runs: list[Run], tmp_path: Path) -> None:
    title = "CNN accuracy and parameters"
    still = read_runs([write_run(tmp_path / "still", MATRIX, parameters=(5, 5, 5))])
    assert all(title not in [figure["title"] for figure in comparison(some)] for some in (runs, still))
    grown = read_runs([write_run(tmp_path / "grown", MATRIX, parameters=(500_000, 1_000_000, 1_500_000))])
    [found] = [figure for figure in comparison([*grown, *runs]) if figure["title"] == title]
    [trace] = found["data"]
    assert trace["x"] == [0.5, 1.0, 1.5]
    assert trace["y"] == pytest.approx([80, 75, (66 + 70 + 85) / 3], abs=1e-4)


def test_matrix(runs: list[Run]) -> None:
    [trace] = matrix(runs[0], "nme")["data"]
    assert trace["z"] == [[80.0, None, None], [60.0, 90.0, None], [66.0, 70.0, 85.0]]


def test_confusion_in_per_cent_of_a_class(runs: list[Run]) -> None:
    [trace] = confusion(runs[0], "cnn")["data"]
    assert trace["z"][0][:4] == [50.0, 0, 0, 50.0]
    assert trace["z"][3][3] == 100.0
    assert all(sum(row) == pytest.approx(100) for row in trace["z"])


def test_confusion_of_many_classes_is_summed_by_task(tmp_path: Path) -> None:
    size = 210
    draw = random.Random(0)
    counts = [[draw.randrange(4) for _ in range(size)] for _ in range(size)]
    rows = tuple(tuple(50.0 for _ in range(t + 1)) for t in range(21))
    [run] = read_runs([write_run(tmp_path / "a", rows, confusion=counts)])
    [trace] = confusion(run, "cnn")["data"]
    sums = [[0] * 21 for _ in range(21)]
    for i in range(size):
        for j in range(size):
            sums[i // 10][j // 10] += counts[i][j]
    for t, row in enumerate(sums):
        assert trace["z"][t] == pytest.approx([100 * count / sum(row) for count in row], abs=0.051)


def test_long_curves_are_thinned(tmp_path: Path) -> None:
    [run] = read_runs([write_run(tmp_path / "a", epochs=400)])
    figure = losses(run, "train")
    assert [trace["name"] for trace in figure["data"]] == ["ce", "distill"]
    for trace in figure["data"]:
        assert 0.5 * POINTS < len(trace["y"]) <= POINTS
        assert trace["x0"] + trace["dx"] * (len(trace["y"]) - 1) <= 1200
    assert figure["layout"]["xaxis"]["tickvals"] == [1, 401, 801]


def test_equal_class_names_stay_apart() -> None:
    assert distinct(["crane", "ring", "crane"]) == ["crane", "ring", "crane (2)"]
