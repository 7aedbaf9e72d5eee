"""Nothing is written through a link, no lock is cut short, and only files of our own making are deleted."""

import json
import os
import shutil
from pathlib import Path

import pytest
from command_line import TINY, call
from hostile import edited, stopped, tree


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopped(tmp_path_factory.mktemp("half") / "run")


@pytest.fixture
def run(half: Path, tmp_path: Path) -> Path:
    shutil.copytree(half, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of someone's own files, outside of any run."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.tex").write_text("years of work\n")
    return tmp_path / "theirs"


def test_a_checkpoint_that_is_a_link_deletes_nothing(
    capsys: pytest.CaptureFixture[str], run: Path, theirs: Path
) -> None:
    for path in (run / "checkpoint").iterdir():
        shutil.copy(path, theirs)
    shutil.rmtree(run / "checkpoint")
    (run / "checkpoint").symlink_to(theirs)
    before = tree(theirs)
    code, _, err = call(capsys, "resume", str(run), "--quiet")
    assert tree(theirs) == before
    assert code == 2
    assert "checkpoint is a link" in err


@pytest.mark.parametrize("name", ["base", "tensorboard"])
def test_other_folders_of_a_run_that_are_links_get_nothing(
    capsys: pytest.CaptureFixture[str], run: Path, theirs: Path, name: str
) -> None:
    if name == "tensorboard":
        pytest.importorskip("tensorboard")
    shutil.rmtree(run / name, ignore_errors=True)
    (run / name).symlink_to(theirs)
    edited(run / "config.json", lambda c: c["run"].update(tensorboard=name == "tensorboard"))
    edited(run / "checkpoint" / "latest.json", lambda c: c["identity"]["run"].update(tensorboard=name == "tensorboard"))
    code, _, err = call(capsys, "resume", str(run), "--quiet")
    assert [path.name for path in theirs.iterdir()] == ["thesis.tex"]
    assert code == 2
    assert f"{name} is a link" in err


def test_a_file_of_ones_own_in_the_checkpoint_stays(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    own = run / "checkpoint" / "notes.txt"
    own.write_text("on this run")
    (run / "checkpoint" / "mine.safetensors").write_text("weights of mine")
    code, _, err = call(capsys, "resume", str(run), "--quiet")
    assert own.exists()
    assert (run / "checkpoint" / "mine.safetensors").exists()
    assert code == 0, err
    named = json.loads((run / "checkpoint" / "latest.json").read_text())["files"].values()
    assert {p.name for p in (run / "checkpoint").iterdir()} == {*named, "latest.json", "notes.txt", "mine.safetensors"}


def test_a_lock_is_never_cut_short(capsys: pytest.CaptureFixture[str], run: Path, theirs: Path) -> None:
    (run / ".lock").symlink_to(theirs / "thesis.tex")
    code, _, err = call(capsys, "resume", str(run), "--quiet")
    assert (theirs / "thesis.tex").read_text() == "years of work\n"
    assert code == 2
    assert ".lock is a link" in err
    (run / ".lock").unlink()
    (run / ".lock").write_text("a key")
    code, _, err = call(capsys, "resume", str(run), "--quiet")
    assert (run / ".lock").read_text() == "a key"
    assert code == 2


def test_a_models_lock_is_not_either(capsys: pytest.CaptureFixture[str], tmp_path: Path, theirs: Path) -> None:
    (tmp_path / ".m.daydream.lock").symlink_to(theirs / "thesis.tex")
    code, _, err = call(capsys, "learn", str(tmp_path / "m.daydream"), str(tmp_path / "photos"))
    assert (theirs / "thesis.tex").read_text() == "years of work\n"
    assert code == 2
    assert ".m.daydream.lock is a link" in err


@pytest.mark.parametrize("hard", [False, True])
def test_metrics_are_not_appended_to_another_file(
    capsys: pytest.CaptureFixture[str], run: Path, theirs: Path, hard: bool
) -> None:
    metrics = run / "metrics.jsonl"
    before = metrics.read_bytes()
    (theirs / "log").write_bytes(before)
    metrics.unlink()
    if hard:
        os.link(theirs / "log", metrics)
    else:
        metrics.symlink_to(theirs / "log")
    code, _, err = call(capsys, "resume", str(run), "--quiet")
    assert (theirs / "log").read_bytes() == before
    assert code == (0 if hard else 2), err
    assert hard or "metrics.jsonl is a link" in err


def test_a_new_run_is_not_written_through_a_link_either(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, theirs: Path
) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / ".lock").symlink_to(theirs / "thesis.tex")
    code, _, _ = call(capsys, "run", *TINY, "--quiet", "--out", str(tmp_path / "new"))
    assert code == 2
    assert (theirs / "thesis.tex").read_text() == "years of work\n"


@pytest.mark.parametrize("place", ["file", "component", "network"])
def test_a_checkpoint_names_no_file_elsewhere(
    capsys: pytest.CaptureFixture[str], run: Path, theirs: Path, place: str
) -> None:
    """Neither to be read nor, as the name of a network, to be written."""
    latest = run / "checkpoint" / "latest.json"

    def change(info: dict[str, dict[str, object]]) -> None:
        file = info["files"]["net.net"]
        if place == "file":
            shutil.copy(run / "checkpoint" / str(file), theirs)
            info["files"]["net.net"] = f"../../theirs/{file}"
        else:
            (run / "checkpoint" / "net.").mkdir()
            name = "/../../../theirs/evil"
            info["files"][f"net.{name}"] = file
            if place == "network":
                nets = info["state"]["nets"]
                assert isinstance(nets, dict)
                nets[name] = nets["net"]

    edited(latest, change)
    before = tree(theirs)
    code, _, err = call(capsys, "resume", str(run), "--quiet")
    assert code == 2
    assert "no file of a checkpoint" in err
    assert tree(theirs) == before
