"""The page: self-contained, safe, small enough, and what the command says when it cannot be written."""

import html.parser
import json
import re
from pathlib import Path

import pytest
from tiny_runs import Watch, tiny_experiment
from written_runs import write_run

from daydream.cli.main import main
from daydream.report.features import NONE, feature_charts, has_generators
from daydream.report.gather import read_runs
from daydream.report.page import as_script, render

pytest.importorskip("plotly")

DATA = "--data shapes --classes 4 --train-per-class 8 --test-per-class 4 --image-size 16 --base 2 --steps 1 --memory 8"
RECIPE = "--backbone resnet10 --base-epochs 1 --epochs 1 --batch-size 8 --device cpu"
TINY = [*DATA.split(), *RECIPE.split()]
MEGABYTE = 2**20


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    out, err = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, out, err


class Outside(html.parser.HTMLParser):
    """Gathers what a page would fetch, and its scripts of data."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.reading, self.data = False, ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [
            value or "" for name, value in attrs if name in ("src", "href", "srcset") and value != "data:,"
        ]
        self.reading = ("id", "drawn") in attrs

    def handle_data(self, data: str) -> None:
        if self.reading:
            self.data += data

    def handle_endtag(self, tag: str) -> None:
        self.reading = False


def test_a_page_fetches_nothing_and_holds_its_charts(tmp_path: Path) -> None:
    runs = read_runs([write_run(tmp_path / "a"), write_run(tmp_path / "b", run={"data": "shapes"}, fingerprint="b")])
    text = render(runs, {})
    page = Outside()
    page.feed(text)
    assert page.fetched == []
    drawn = json.loads(page.data)
    assert [len(section["runs"]) for section in drawn] == [1, 1]
    assert drawn[0]["charts"][0]["data"][0]["y"][0] == 80.0
    assert "63.98" in text
    assert "daydream run --data cifar100" in drawn[0]["runs"][0]["command"]
    style = re.search(r"<style>(.*?)</style>", text, flags=re.DOTALL)
    assert style
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_names_cannot_leave_their_place(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    folder = write_run(tmp_path / "a", run={"order": evil, "seed": 3}, method={"note": evil})
    text = render(read_runs([folder]), {str(folder): evil})
    assert "<script>alert" not in text
    assert json.loads(as_script({"name": evil})) == {"name": evil}


def test_an_unfinished_run_is_shown_as_such(tmp_path: Path) -> None:
    runs = read_runs(
        [write_run(tmp_path / "a", ((80.0,),), finished=False), write_run(tmp_path / "b", (), finished=False)]
    )
    text = render(runs, {})
    assert "unfinished: 1 task done" in text
    assert "unfinished: 0 tasks done" in text


def test_a_network_that_grows_shows_the_mean_of_its_parameters_too(tmp_path: Path) -> None:
    runs = read_runs([write_run(tmp_path / "a", parameters=(100, 1_000_000, 2_000_000)), write_run(tmp_path / "b")])
    page = render(runs, {})
    assert "2,000,000, mean 1,000,033" in page
    assert page.count(", mean 1") == 1


def test_thirty_runs_of_full_size_stay_under_ten_megabytes(tmp_path: Path) -> None:
    """11 tasks, two stages of 160 epochs each, 100 classes, confusions without a pattern to compress."""
    counts = [[(7 * i + 13 * j) % 5 for j in range(100)] for i in range(100)]
    rows = tuple(tuple(50.123 + t for _ in range(t + 1)) for t in range(11))
    first = write_run(tmp_path / "0", rows, epochs=160, confusion=counts, stages=("train", "imagine"))
    runs = read_runs([first]) * 30
    assert len(render(runs, {}).encode()) < 10 * MEGABYTE


def test_the_features_of_a_run_with_generators(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_experiment("imagine").start(tmp_path / "run", Watch())
    [figures] = feature_charts(read_runs([tmp_path / "run"])).values()
    assert isinstance(figures, list), figures
    assert len(figures) == 2
    assert [trace["name"] for trace in figures[0]["data"]] == ["real data", "exemplars", "counterparts"]
    assert len(figures[0]["data"][0]["x"]) == 12
    code, out, err = call(capsys, "report", str(tmp_path / "run"))
    assert (code, out) == (0, f"{tmp_path / 'run' / 'report.html'}\n"), err
    assert "Features of class" in (tmp_path / "run" / "report.html").read_text()


def test_why_a_run_has_no_features(tmp_path: Path) -> None:
    imagining = {"imagination": {"counterparts": 2}, "run": {"method": "imagine", "root": "/nowhere"}}
    paths = [write_run(tmp_path / "a"), write_run(tmp_path / "b", **imagining)]
    none, missing = feature_charts(read_runs(paths)).values()
    assert none == NONE
    assert isinstance(missing, str)
    assert missing.startswith("not drawn: ")


def test_a_run_writes_its_own_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = call(capsys, "run", *TINY, "--out", str(tmp_path / "run"))
    assert code == 0, err
    page = tmp_path / "run" / "report.html"
    assert f"report: {page}" in out
    assert "Task by task" in page.read_text(encoding="utf-8")


def test_a_report_that_fails_does_not_fail_the_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall(*_: object) -> str:
        raise RuntimeError("out of ink")

    monkeypatch.setattr("daydream.report.page.render", fall)
    code, out, err = call(capsys, "run", *TINY, "--out", str(tmp_path / "run"))
    assert code == 0, err
    assert "note: no report.html: RuntimeError: out of ink\n" in err
    assert "report:" not in out
    assert (tmp_path / "run" / "result.json").exists()
    assert not (tmp_path / "run" / "report.html").exists()


def test_without_the_packages(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daydream.report.page.installed", lambda: False)
    code, _, err = call(capsys, "run", *TINY, "--out", str(tmp_path / "run"))
    assert code == 0
    [line] = [line for line in err.splitlines() if "report" in line]
    assert "pip install 'daydream[report]'" in line
    code, out, err = call(capsys, "report", str(tmp_path / "run"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "pip install 'daydream[report]'" in err
    assert call(capsys, "report", str(tmp_path / "run"), "--format", "csv")[0] == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "nowhere is not a run"),
        (["run", "."], ". is not a run"),
        (["run", "-o", "run"], "--out run is a folder; name a file in it"),
        (["run", "-o", "no/where.html"], "there is no folder no; make it"),
        (["run", "--format", "pdf"], "pdf"),
        ([], "RUN"),
    ],
)
def test_mistakes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    code, out, err = call(capsys, "report", *words)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert says in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("form", ["html", "md"])
def test_a_folder_that_may_not_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    write_run(tmp_path / "run")
    monkeypatch.setattr("daydream.atomic.create_part", refuse)
    code, out, err = call(capsys, "report", str(tmp_path / "run"), "--format", form, "-o", str(tmp_path / "a.txt"))
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert f"--out {tmp_path / 'a.txt'} cannot be written: Permission denied" in err


def test_a_table_is_printed_or_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    code, printed, _ = call(capsys, "report", str(tmp_path / "run"), "--format", "latex")
    assert code == 0
    code, out, _ = call(capsys, "report", str(tmp_path / "run"), "--format", "latex", "-o", str(tmp_path / "t.tex"))
    assert (code, out) == (0, f"{tmp_path / 't.tex'}\n")
    assert (tmp_path / "t.tex").read_text() == printed


@pytest.mark.parametrize(
    ("method", "imagination", "expected"),
    [
        ("imagine", {"counterparts": 2}, True),
        ("dream", {"counterparts": 2}, True),
        ("dream", {"counterparts": 0}, False),
        ("ucir", {"counterparts": 2, "imagine": True}, True),
        ("ucir", {"counterparts": 2, "imagine": False}, False),
        ("mixup", {"counterparts": 2}, False),
        ("mixup", {"counterparts": 2, "imagine": True}, False),
        ("/nowhere/own.py:Own", {"counterparts": 2, "imagine": True}, True),
        ("/nowhere/own.py:Own", {"counterparts": 2}, False),
    ],
)
def test_which_runs_have_generators(
    tmp_path: Path, method: str, imagination: dict[str, object], expected: bool
) -> None:
    [run] = read_runs([write_run(tmp_path / "a", run={"method": method}, imagination=imagination)])
    assert has_generators(run) is expected
