"""The command `reproduce`: what it prints and writes, and one clear line for every mistake."""

import json
import sys
from pathlib import Path

import pytest
from rich.console import Console
from tiny_grids import TINY

from daydream.cli.main import main
from daydream.cli.reproduce import Format, Shown, Teller
from daydream.engine import Interrupted
from daydream.reproduce import cost, jobs, protocols
from daydream.reproduce.cost import Cost, Trial
from daydream.reproduce.runner import Tally

pytestmark = pytest.mark.slow

TWO = ["--scale", "smoke", "--cells", "baseline,sc"]


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *words])
    out, err = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, out, err


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(protocols.SCALES, "smoke", TINY)
    monkeypatch.setattr(cost, "try_out", lambda *_: Trial(start=2.0))  # a real one: test_cost.py


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["table2"], "unknown grid 'table2'; did you mean 'table1'?"),
        (["ablation", "--scale", "smoke", "--cells", "basline"], "unknown cell 'basline'; did you mean 'baseline'?"),
        (["ablation", "--scale", "smoke", "--methods", "icarl"], "unknown method of this grid 'icarl'"),
        (["ablation", "--scale", "smal"], "'smal'"),
        (
            ["ablation", "--scale", "smoke", "--orders", "4"],
            "--orders 4 must be at least 1 and at most 3: the scale smoke has 3",
        ),
        (["ablation", "--scale", "smoke", "--jobs", "0"], "--jobs 0 must be at least 1"),
        (["ablation", "--scale", "smoke", "--jobs", "2", "--engine", "ray"], "with --engine ray use --gpu-share"),
        (["ablation", "--scale", "smoke", "--tasks", "-1"], "--tasks -1 must be at least 1"),
        (["ablation", "--scale", "smoke", "--device", "abacus"], "--device abacus is not a device"),
        (["ablation", "--scale", "smoke", "--unlabeled", "folder:nowhere"], "nowhere"),
        (["ablation", "--scale", "smoke", "--class", "ring"], "--class chooses what `features` draws"),
        (["features", "--scale", "smoke", "--class", "rign"], "unknown class 'rign'; did you mean 'ring'?"),
        (
            ["piles", "--scale", "smoke", "--pile-classes", "many"],
            "--pile-classes many must be numbers separated by commas",
        ),
        (["standin", "--unlabeled", "imagenet32:x"], "the pile of `standin` is what --root leaves unlabelled"),
        (["standin", "--methods", "imagine"], "data set 'tiny-imagenet' needs --root DIR"),
        (["features", "--from", "."], "`features` is drawn from a run's folder"),
        (["ablation", "--scale", "smoke", "--from", "nowhere"], "--from nowhere does not exist"),
        (["ablation", "--scale", "smoke", "--from", "."], "--from . holds no result of a finished run"),
        (["ablation"], "no unlabelled images of its own: say where they are with --unlabeled"),
        (["ablation", "--methods", "replay"], "data set 'cifar100' needs --root DIR"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, *words)
    assert code == 2
    assert says in err
    assert err.count("\n") == 1, err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_shows_runs_and_cost_and_writes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = call(capsys, "ablation", *TWO, "--out", str(tmp_path / "grid"), "--dry-run")
    assert code == 0, err
    assert "ablation: 2 runs, 0 done, 2 to do" in out
    assert out.count("its own") == 1
    assert out.count("shared") == 1
    assert "about 4 s in all" in out
    assert not (tmp_path / "grid").exists()


def test_two_cells_are_run_compared_and_not_run_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    here = ["--out", str(tmp_path / "grid")]
    code, out, err = call(capsys, "ablation", *TWO, *here)
    assert code == 0, err
    assert "2 of 2: sc, order natural: average NME" in out
    assert "a miniature: its numbers do not compare" in out
    stored = json.loads((tmp_path / "grid" / "ablation" / "results.json").read_text())
    assert [cell["state"] for cell in stored["cells"]] == ["done", "done", "not run", "not run"]
    code, out, err = call(capsys, "ablation", *TWO, *here, "--json")
    assert code == 0, err
    assert json.loads(out) == stored
    assert "2 done, 0 to do" in err
    code, out, _ = call(capsys, "ablation", *TWO, *here, "--format", "md")
    assert code == 0
    assert out.startswith("**ablation, scale smoke")
    assert "| baseline | Baseline | NME |" in out


def test_two_runs_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = call(capsys, "ablation", *TWO, "--out", str(tmp_path / "grid"), "--jobs", "9", "--device", "cpu")
    assert code == 0, err
    assert "about 4 s in all one after the other" in out
    lines = [line for line in out.splitlines() if ", order natural: " in line]
    assert [line for line in lines if line.endswith("begins")] == [
        "baseline, order natural: begins",
        "sc, order natural: begins",
    ]
    assert sum(" of 2: " in line and "average NME" in line for line in lines) == 2
    stored = json.loads((tmp_path / "grid" / "ablation" / "results.json").read_text())
    assert [cell["state"] for cell in stored["cells"]] == ["done", "done", "not run", "not run"]


def test_of_runs_at_once_those_under_way_count_as_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    three = [jobs.Job(name, name, {}) for name in "abc"]
    teller = Teller(Cost(dict.fromkeys("abc", 10.0), {}, {}), Shown(Console(), Format.text, False, True))
    teller.goes_on(three[0], "begins")
    teller.goes_on(three[1], "begins")
    now += 12.0
    teller.ends(jobs.Outcome(three[0], {"reports": "cnn", "average_cnn": 1.0, "seconds": 12.0}), Tally(3, 1))
    assert teller.rest() == pytest.approx(12.0)


def test_runs_made_elsewhere_count_as_done(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made, moved, fresh = tmp_path / "made", tmp_path / "moved", tmp_path / "fresh"
    code, _, err = call(capsys, "ablation", *TWO, "--root", "/there", "--device", "cpu", "--out", str(made))
    assert code == 0, err
    made.rename(moved)
    same = ["--root", "/there", "--device", "cpu", "--out", str(moved)]
    code, out, err = call(capsys, "ablation", *TWO, *same)
    assert (code, "2 done, 0 to do" in out) == (0, True), err
    before = sorted(tmp_path.rglob("*"))
    here = ["--root", "/here", "--out", str(fresh), "--from", str(moved)]
    code, out, err = call(capsys, "ablation", *TWO, *here, "--no-run", "--format", "md")
    assert code == 0, err
    assert out.count("| done |") == 2
    assert "sc-sdc" not in out  # the table of --cells alone
    assert sorted(tmp_path.rglob("*")) == before
    code, out, err = call(capsys, "ablation", "--scale", "smoke", "--cells", "sc*", *here, "--dry-run")
    assert (code, "3 runs, 1 done, 2 to do" in out) == (0, True), out + err


def test_features_draws_the_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code, out, err = call(
        capsys, "features", "--scale", "smoke", "--out", str(tmp_path), "--json", "--quiet", "--class", "ring"
    )
    assert code == 0, err
    assert list(json.loads(out)["features"]["classes"]) == ["ring"]
    assert (tmp_path / "features" / "features.png").stat().st_size > 1000


def test_parts_draw_what_is_finished(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    two = ["parts", "--scale", "smoke", "--cells", "replay,replay+blend"]
    code, out, err = call(capsys, *two, "--out", str(tmp_path / "here"), "--json", "--quiet")
    assert code == 0, err
    picture = tmp_path / "here" / "parts" / "parts.png"
    found = json.loads(out)
    assert found["picture"] == str(picture)
    assert [cell["state"] for cell in found["cells"]] == ["done", "done", *["not run"] * 11]
    there = ["--out", str(tmp_path / "there"), "--from", str(tmp_path / "here"), "--no-run", "--format", "md"]
    code, out, err = call(capsys, *two, *there)
    assert code == 0, err
    assert out.count("| done |") == 2
    assert err == f"picture: {tmp_path / 'there' / 'parts' / 'parts.png'}\n"
    assert (tmp_path / "there" / "parts" / "parts.png").read_bytes()[:4] == b"\x89PNG"
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["parts"]


def test_parts_that_could_not_be_drawn_are_not_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, err = call(capsys, "parts", "--scale", "smoke", "--out", str(tmp_path / "grid"))
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert "pip install 'daydream[plots]'" in err
    assert not (tmp_path / "grid").exists()


def test_a_failing_cell_is_reported_and_the_exit_code_is_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(job: jobs.Job, progress: object) -> dict[str, object]:
        raise RuntimeError("out of\nmemory")

    monkeypatch.setattr(jobs, "run_job", broken)
    code, out, err = call(capsys, "ablation", *TWO, "--out", str(tmp_path))
    assert code == 1
    assert "1 of 2: baseline, order natural failed: RuntimeError: out of memory\n" in err
    assert out.count("failed: ") == 2
    assert "Traceback" not in out + err


def test_a_grid_that_takes_long_asks_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    monkeypatch.setitem(protocols.SCALES, "smoke", replace(TINY, quick=False))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    code, _, err = call(capsys, "ablation", *TWO, "--out", str(tmp_path / "grid"))
    assert code == 2
    assert err == "daydream: there is no terminal to ask at: start with --yes, or look first with --dry-run\n"
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    assert call(capsys, "ablation", *TWO, "--out", str(tmp_path / "grid"))[0] == 0
    assert not (tmp_path / "grid").exists()


def test_a_stop_ends_the_command_and_the_next_one_goes_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = jobs.attempt

    def stopped(job: jobs.Job, progress: object) -> jobs.Outcome:
        if job.values["run"]["method"] == "imagine":
            raise Interrupted
        return real(job, progress)  # type: ignore[arg-type]

    monkeypatch.setattr(jobs, "attempt", stopped)
    code, _, err = call(capsys, "ablation", *TWO, "--out", str(tmp_path))
    assert code == 130
    assert err == "stopped; the same command goes on from here\n"
    assert not (tmp_path / "ablation").exists()
    monkeypatch.setattr(jobs, "attempt", real)
    code, out, _ = call(capsys, "ablation", *TWO, "--out", str(tmp_path))
    assert code == 0
    assert "2 runs, 1 done, 1 to do" in out
