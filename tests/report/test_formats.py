"""Tables for papers and spreadsheets."""

import csv
import io
import statistics
from pathlib import Path

import pytest
from written_runs import write_run

from daydream.errors import UserError
from daydream.escapes import tex
from daydream.report.formats import as_text
from daydream.report.gather import Run, read_runs

LASTS = (50.0, 56.0)


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Two seeds of one run, a run without exemplars, one that is not finished, one on other images."""
    return read_runs(
        [
            *(write_run(tmp_path / f"r{s}", ((80.0,), (last, 90.0)), run={"seed": s}) for s, last in enumerate(LASTS)),
            write_run(tmp_path / "fine", run={"method": "finetune"}, nme=False),
            write_run(tmp_path / "cut", run={"seed": 5}, finished=False),
            write_run(tmp_path / "own", run={"data": "folder", "budget": "per_class"}, fingerprint="other"),
        ]
    )


def means() -> tuple[float, float]:
    tops = [(80 + (last + 90) / 2) / 2 for last in LASTS]
    return statistics.fmean(tops), statistics.stdev(tops)


def test_csv(runs: list[Run]) -> None:
    rows = list(csv.DictReader(io.StringIO(as_text(runs, "csv"))))
    assert [(row["data"], row["method"], row["n"], row["runs"]) for row in rows] == [
        ("cifar100", "replay", "2", "r0 r1"),
        ("cifar100", "finetune", "1", "fine"),
        ("folder", "replay", "1", "own"),
    ]
    mean, deviation = means()
    assert float(rows[0]["average_nme"]) == pytest.approx(mean)
    assert float(rows[0]["average_nme_deviation"]) == pytest.approx(deviation, abs=1e-4)
    assert (rows[0]["paper"], rows[0]["paper_kind"]) == ("63.98", "nme")
    assert rows[1]["average_nme"] == rows[1]["average_cnn_deviation"] == rows[1]["paper"] == ""


def test_markdown(runs: list[Run]) -> None:
    text = as_text(runs, "md")
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in tables}) == 1
    mean, deviation = means()
    assert f"| {mean:.2f} ± {deviation:.2f} |" in tables[2]
    assert "memory 2000 total" in tables[2]
    assert "| 63.98 (NME) |" in tables[2]
    assert "Left out: cut (unfinished: 3 tasks done)." in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## cifar100", "## folder"]


def test_latex(runs: list[Run]) -> None:
    text = as_text(runs, "latex")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == text.count(r"\toprule") == 2
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len({row.count("&") for row in rows}) == 1
    columns = text.split(r"\begin{tabular}{")[1].split("}")[0]
    assert len(columns) == rows[0].count("&") + 1
    mean, deviation = means()
    assert rf"{mean:.2f} $\pm$ {deviation:.2f}" in rows[1]
    assert r"per\_class" in text
    assert "±" not in text


def test_tex_escapes() -> None:
    assert tex(r"a_b & 50% ~ \x") == r"a\_b \& 50\% \textasciitilde{} \textbackslash{}x"


def test_nothing_finished(tmp_path: Path) -> None:
    runs = read_runs([write_run(tmp_path / "a", finished=False)])
    with pytest.raises(UserError, match="no run is finished"):
        as_text(runs, "md")
