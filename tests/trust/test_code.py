"""No reading command runs code that a run folder names; `resume` says what it imports, before it does."""

import shutil
from pathlib import Path

import pytest
from command_line import TINY, call
from hostile import edited, method_file, ran
from written_runs import write_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run by a method in a file, and the method's name."""
    from daydream.cli.main import main

    folder = tmp_path_factory.mktemp("own")
    name = method_file(folder / "code")
    with pytest.raises(SystemExit) as stop:
        main(["run", "--method", name, *TINY, "--tasks=1", "--quiet", "--out", str(folder / "run")])
    assert stop.value.code == 0
    assert ran(name)
    return folder / "run", name


@pytest.mark.parametrize("form", ["html", "md", "latex", "csv"])
def test_a_report_imports_no_file_a_run_names(capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str) -> None:
    name = method_file(tmp_path / "ev")
    imagination = {"imagine": True, "counterparts": 2}
    run = write_run(tmp_path / "run", run={"method": name, "data": "shapes"}, imagination=imagination)
    code, _, err = call(capsys, "report", str(run), "--format", form, "--out", str(tmp_path / "page"))
    assert not ran(name)
    assert code == 0, err
    if form == "html":
        assert "a report imports no file that a run names" in (tmp_path / "page").read_text()


@pytest.mark.parametrize("command", ["list", "show", "look", "export"])
def test_no_other_reading_command_does(
    capsys: pytest.CaptureFixture[str], trained: tuple[Path, str], command: str
) -> None:
    run, name = trained
    code, _, err = call(capsys, command, str(run))
    assert not ran(name)
    assert code == (2 if command in ("look", "export") else 0)
    if code:
        assert f"--method {name}" in err
        assert err.count("\n") == 1


def test_a_file_the_user_names_is_imported(
    capsys: pytest.CaptureFixture[str], trained: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, name = trained
    monkeypatch.chdir(Path(name).parent)
    code, out, err = call(capsys, "export", str(run), "--method", "own.py:Mine", "--out", str(tmp_path / "net"))
    assert code == 0, err
    assert ran(name)
    assert "parameters" in out
    code, _, err = call(capsys, "export", str(run), "--method", "other.py:Mine", "--out", str(tmp_path / "net"))
    assert (code, ran(name)) == (2, False)


def test_resume_says_which_file_it_imports_before_it_does(
    capsys: pytest.CaptureFixture[str], trained: tuple[Path, str]
) -> None:
    run, name = trained
    code, _, err = call(capsys, "resume", str(run), "--quiet")
    assert code == 0, err
    assert ran(name)
    said, did = err.index(f"importing {name.removesuffix(':Mine')}"), err.index("code ran")
    assert said < did
    assert "config.json names it as the run's method" in err


@pytest.mark.parametrize("what", ["setting", "file", "relative", "unsigned"])
def test_resume_refuses_what_changed_before_it_imports(
    capsys: pytest.CaptureFixture[str],
    trained: tuple[Path, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
) -> None:
    run, name = trained
    shutil.copytree(run, tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    if what == "setting":
        edited(config, lambda c: c["run"].update(seed=7))
    elif what == "file":  # another file than the run began with, though the config names it
        name = method_file(tmp_path / "ev")
        Path(name.removesuffix(":Mine")).write_text(Path(name.removesuffix(":Mine")).read_text() + "\n")
        (tmp_path / "run" / "checkpoint" / "latest.json").unlink()
        edited(config, lambda c: c["run"].update(method=name))
    elif what == "relative":
        name = method_file(tmp_path / "ev")
        monkeypatch.chdir(tmp_path)
        edited(config, lambda c: c["run"].update(method="ev/own.py:Mine"))
    else:
        edited(config, lambda c: c.pop("method_source"))
    code, _, err = call(capsys, "resume", str(tmp_path / "run"))
    assert not ran(name)
    assert code == 2
    assert err.count("\n") == 1
