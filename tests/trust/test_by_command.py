"""What a stranger's files did once, by the command line alone: one test for each thing that broke.

Each can be held against an earlier commit, to see it fail:
`DAYDREAM_TREE=FOLDER python -m pytest tests/trust/test_by_command.py`.
"""

import csv
import gzip
import io
import json
import os
import shutil
import signal
import stat
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from png import png
from safetensors.torch import load, save
from tree import begun, command, each, ended, in_a_line, stopped_when
from written_runs import write_run

pytestmark = pytest.mark.slow

TINY = (
    "--classes=4", "--train-per-class=12", "--test-per-class=4", "--image-size=16", "--backbone=resnet10", "--base=2",
    "--steps=1", "--memory=8", "--base-epochs=400", "--epochs=1", "--batch-size=8", "--quiet",
)  # fmt: skip
LEARN = ("--method=replay", "--image-size=16", "--backbone=resnet10", "--device=cpu", "--quiet")
EVIL = "\x1b[2Jcat"
SYNCED = """
import os, pathlib, stat, sys
real, log = os.fsync, pathlib.Path(sys.argv[-1]).with_name("synced")
def fsync(handle):
    if stat.S_ISDIR(os.fstat(handle).st_mode):
        with log.open("a") as file: file.write(os.readlink(f"/proc/self/fd/{handle}") + "\\n")
    real(handle)
os.fsync = fsync
"""


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run stopped in its first task, under a umask that leaves files to their owner."""
    run = tmp_path_factory.mktemp("half") / "run"
    before = os.umask(0o077)
    process = begun("run", *TINY, "--out", run, before=SYNCED)
    os.umask(before)
    code, _, err = stopped_when(process, (run / "metrics.jsonl").exists)
    assert code == 143, err
    return run


@pytest.fixture
def run(half: Path, tmp_path: Path) -> Path:
    shutil.copytree(half, tmp_path / "runs" / "run")
    return tmp_path / "runs" / "run"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two classes, one of them by a name that is a command to a terminal; pictures are cached beside it."""
    from own_images import write_classes

    folder = tmp_path_factory.mktemp("model")
    cached = pytest.MonkeyPatch()
    cached.setenv("DAYDREAM_CACHE", str(folder / "cache"))
    photos = write_classes(folder / "photos", range(3), 6)
    first, _, third = sorted(photos.iterdir())
    first.rename(photos / EVIL)
    shutil.copytree(third, folder / "more" / third.name)
    shutil.rmtree(third)
    code, _, err = command("learn", folder / "m.daydream", photos, "--epochs=1", *LEARN)
    cached.undo()
    assert code == 0, err
    return folder / "m.daydream"


def edited(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def test_1_a_report_runs_no_code_from_a_run(run: Path, tmp_path: Path) -> None:
    evil = tmp_path / "ev" / "e.py"
    evil.parent.mkdir()
    evil.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    edited(run / "config.json", lambda c: c["run"].update(method=f"{evil}:X"))
    edited(run / "config.json", lambda c: c.update(imagination={**(c["imagination"] or {}), "imagine": True}))
    command("report", run, "--out", tmp_path / "page.html")
    assert not (tmp_path / "ran").exists()


def test_2_a_checkpoint_that_is_a_link_deletes_nothing(run: Path, tmp_path: Path) -> None:
    (run / "checkpoint").rename(tmp_path / "theirs")
    (tmp_path / "theirs" / "thesis.tex").write_text("years of work")
    (run / "checkpoint").symlink_to(tmp_path / "theirs")
    edited(run / "config.json", lambda c: None)
    process = begun("resume", run, "--quiet")
    stopped_when(process, lambda: not (tmp_path / "theirs" / "thesis.tex").exists())
    assert (tmp_path / "theirs" / "thesis.tex").exists()


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl"])
def test_2_a_link_among_a_runs_files_is_not_written_through(run: Path, tmp_path: Path, name: str) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes((run / "metrics.jsonl").read_bytes())
    before = theirs.read_bytes()
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(theirs)
    stopped_when(begun("resume", run, "--quiet"), lambda: theirs.read_bytes() != before)
    assert theirs.read_bytes() == before


def test_3_pictures_are_their_owners_alone(half: Path, model: Path) -> None:
    cache = model.parent / "cache"
    pictures = [*(half / "checkpoint").glob("memory-*"), half / "config.json", model, *cache.glob("*")]
    assert len(pictures) >= 4
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in pictures} == {
        path.name: "0o600" for path in pictures
    }
    assert oct(stat.S_IMODE(cache.stat().st_mode)) == "0o700"


def test_3_the_cache_can_be_cleared(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(model.parent / "cache", tmp_path / "cache")
    monkeypatch.setenv("DAYDREAM_CACHE", str(tmp_path / "cache"))
    code, _, err = command("cache", "--clear")
    assert code == 0, err
    assert list((tmp_path / "cache").iterdir()) == []


def test_4_json_of_a_wrong_shape_is_named_and_hides_no_other_run(run: Path) -> None:
    bad = run.parent / "bad"
    shutil.copytree(run, bad)
    edited(bad / "config.json", lambda c: c["run"].pop("order"))
    (code, out, err), *others = each(
        ("list", run.parent), ("show", bad), ("report", bad, "--format=csv"), ("resume", bad), ("export", bad)
    )
    assert "Traceback" not in err
    assert (code, str(run) in out) == (0, True), err
    assert all(in_a_line(code, err) for code, _, err in others), others


def test_6_a_small_model_file_does_not_take_the_machine(model: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(model) as before, zipfile.ZipFile(tmp_path / "m.daydream", "w") as after:
        for name in before.namelist():
            raw = before.read(name)
            if name == "model.json":
                about = json.loads(raw)
                about["networks"]["net"]["config"]["sizes"] = [1] * 10**6
                raw = json.dumps(about).encode()
            after.writestr(name, raw)
    code, _, err = command("classes", tmp_path / "m.daydream", seconds=15)
    assert in_a_line(code, err), err


def test_6_a_pipe_is_not_waited_for(run: Path) -> None:
    (run.parent / "odd").mkdir()
    os.mkfifo(run.parent / "odd" / "config.json")
    code, out, err = command("list", run.parent, seconds=15)
    assert code == 0, err
    assert str(run) in out


PEAK = """
import atexit, pathlib
def peak():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
before = peak()
atexit.register(lambda: print("\\npeak", peak() - before))
"""


def peak(*words: object) -> tuple[int, str, float]:
    """Run a command; return its code, what it said of mistakes and by how many GB its memory rose at most."""
    code, out, err = ended(begun(*words, before=PEAK))
    return code, err, int(out.rpartition("peak ")[2] or 0) * 1024 / 1e9


def test_6_sixteen_bits_take_no_more_than_they_must(model: Path, tmp_path: Path) -> None:
    picture = png(tmp_path / "large.png", 7000, 7000, 16)
    assert picture.stat().st_size < 500_000
    code, err, memory = peak("predict", model, picture, "--device=cpu")
    assert code == 0, err
    assert memory < 0.9


def tar(path: Path, header: bool) -> Path:
    """Write an archive of a large member, or of one whose first header says that a larger header follows."""
    member = tarfile.TarInfo("x" if header else "cifar-10-batches-py/data_batch_1")
    member.size = 600_000_000 if header else 300_000_000
    member.type = tarfile.XHDTYPE if header else tarfile.REGTYPE
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(member.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(member.size // 1_000_000):
            file.write(bytes(1_000_000))
    return path


@pytest.mark.parametrize("header", [False, True])
def test_6_a_small_archive_that_unpacks_to_a_large_one(tmp_path: Path, header: bool) -> None:
    path = tar(tmp_path / "cifar-10-python.tar.gz", header)
    assert path.stat().st_size < 5_000_000
    words = ("run", "--data=cifar10", "--method=finetune", "--device=cpu", "--out", tmp_path / "run", "--root", path)
    code, err, memory = peak(*words)
    assert memory < 0.1
    assert in_a_line(code, err), err
    assert "unpacks to far more" in err


def test_7_a_class_name_says_nothing_to_the_terminal(model: Path) -> None:
    code, out, err = command("classes", model)
    assert code == 0, err
    assert "\x1b" not in out


def test_7_names_of_runs_are_words_to_a_spreadsheet_latex_and_markdown(tmp_path: Path) -> None:
    formula, page = write_run(tmp_path / "=1+1", run={"data": "=1+1"}), write_run(tmp_path / "b", run={"data": "<b>b"})
    comment = write_run(tmp_path / "x\n\\input{y}", run={"data": "<b>b"}, finished=False)
    table, latex, markdown = each(
        ("report", formula, "--format=csv"),
        ("report", page, comment, "--format=latex"),
        ("report", page, "--format=md"),
    )
    assert [code for code, _, _ in (table, latex, markdown)] == [0, 0, 0]
    told = {
        "csv": [cell for row in csv.reader(io.StringIO(table[1])) for cell in row if cell.startswith("=")],
        "latex": [line for line in latex[1].splitlines() if line.startswith("\\input")],
        "md": [line for line in markdown[1].splitlines() if "<b>" in line],
    }
    assert told == {"csv": [], "latex": [], "md": []}


KILLED = """
import os, signal
def never(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
os.replace = os.link = never
"""


def test_8_a_run_killed_while_it_writes_its_config_leaves_its_folder_free(tmp_path: Path) -> None:
    code, _, _ = ended(begun("run", *TINY, "--out", tmp_path / "run", before=KILLED))
    assert code == -signal.SIGKILL
    process = begun("run", *TINY, "--out", tmp_path / "run")
    code, _, err = stopped_when(process, (tmp_path / "run" / "config.json").exists)
    assert "exists and is not empty" not in err
    assert code == 143, err


NO_LOCKS = """
import errno, fcntl, os
def flock(*_): raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
fcntl.flock = flock
"""


@pytest.mark.parametrize("what", ["own file", "part", "folder", "no locks"])
def test_8_what_lies_in_a_runs_folder_neither_blocks_nor_goes_nor_stays(run: Path, what: str) -> None:
    """A person's own file stays, what a kill left goes, an indexer's folder and a disk without locks are no matter."""
    own, part, size = run / "checkpoint" / "notes.txt", run / ".result.json.0a1b2c3d.part", 0
    if what == "own file":  # of issue 2
        own.write_text("on this run")
    if what == "part":
        part.write_text("half of it")
    if what == "folder":
        (run / "checkpoint" / "@eaDir").mkdir()
    size = (run / "metrics.jsonl").stat().st_size
    process = begun("resume", run, "--quiet", before=NO_LOCKS if what == "no locks" else "")
    code, _, err = stopped_when(process, lambda: (run / "metrics.jsonl").stat().st_size > size)
    assert "another process; wait" not in err
    assert code == 143, err
    assert own.exists() == (what == "own file")
    assert not part.exists()


def test_8_a_folder_deleted_underneath_is_not_called_intact(run: Path) -> None:
    size = (run / "metrics.jsonl").stat().st_size
    process = begun("resume", run, "--quiet")
    while process.poll() is None and (run / "metrics.jsonl").stat().st_size == size:
        time.sleep(0.01)
    shutil.rmtree(run, ignore_errors=True)
    code, _, err = ended(process)
    assert "intact" not in err
    assert in_a_line(code, err), err
    assert "is gone" in err


def test_8_weights_that_are_no_numbers_give_no_nan(model: Path, tmp_path: Path) -> None:
    def spoil(name: str, raw: bytes) -> bytes:
        if name != "tensors.safetensors":
            return raw
        tensors = load(raw)
        return save({key: torch.full_like(t, torch.nan) if t.is_floating_point() else t for key, t in tensors.items()})

    with zipfile.ZipFile(model) as before, zipfile.ZipFile(tmp_path / "m.daydream", "w") as after:
        for name in before.namelist():
            after.writestr(name, spoil(name, before.read(name)))
    picture = next((model.parent / "photos").glob("*/*.png"))
    words = ("predict", tmp_path / "m.daydream", picture, "--device=cpu")
    for code, out, err in each(words, (*words, "--json")):
        assert "nan" not in out.lower()
        assert in_a_line(code, err), err


def test_9_folders_are_brought_to_the_disk_with_the_files_in_them(half: Path) -> None:
    log = half.with_name("synced")
    synced = set(log.read_text().splitlines()) if log.exists() else set()
    assert synced >= {str(half), str(half / "checkpoint")}


def test_9_another_number_in_latest_json_is_noticed(run: Path) -> None:
    latest = run / "checkpoint" / "latest.json"
    info = json.loads(latest.read_text())
    before = info["metrics_size"]
    latest.write_text(latest.read_text().replace(f'"metrics_size": {before}', '"metrics_size": 0'))
    assert json.loads(latest.read_text())["metrics_size"] == 0
    size = (run / "metrics.jsonl").stat().st_size
    code, _, err = stopped_when(begun("resume", run, "--quiet"), lambda: (run / "metrics.jsonl").stat().st_size != size)
    assert in_a_line(code, err), err
    assert "does not match its digest" in err


def test_10_a_lesson_is_stopped_politely(model: Path, tmp_path: Path) -> None:
    """It keeps the old model and says so; what was learnt of it is kept beside the model."""
    own, mark = shutil.copy(model, tmp_path / "m.daydream"), tmp_path / "trains"
    trains = (
        "import torch\nstep = torch.optim.SGD.step\n"
        f"def marked(*a, **k): open({str(mark)!r}, 'w'); return step(*a, **k)\ntorch.optim.SGD.step = marked\n"
    )
    learn = begun("learn", own, model.parent / "more", "--epochs=1000", "--device=cpu", "--quiet", before=trains)
    code, _, err = stopped_when(learn, mark.exists, signal.SIGINT)
    assert (code, own.read_bytes()) == (130, model.read_bytes()), err
    assert "is as it was before" in err
    assert "goes on with the lesson" in err
