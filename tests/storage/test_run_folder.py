"""The run's folder: what is refused, what its metrics hold, who holds the lock."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from written_runs import RUN, accuracies, result_of

from daydream.errors import UserError
from daydream.storage import run_folder as runs
from daydream.storage.run_folder import RunFolder, find_runs, resume_command

CONFIG = {"format": 2, "run": {**RUN, "seed": 3}, "data": {}, "method": {}}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", CONFIG)


# --- the folder ------------------------------------------------------------------------------------------------------


def test_a_new_run_holds_its_config(tmp_path: Path) -> None:
    made = RunFolder.create(tmp_path / "deep" / "er" / "run", CONFIG)
    assert RunFolder.open(made.path).config == CONFIG
    assert made.result is None
    assert made.metrics() == []
    assert made.metrics_size == 0


def test_an_empty_folder_may_become_a_run(tmp_path: Path) -> None:
    assert RunFolder.create(tmp_path, CONFIG).config == CONFIG


def test_a_folder_with_a_run_is_refused_and_kept(run: RunFolder) -> None:
    with pytest.raises(UserError, match=r"already holds a run: continue it with `daydream resume"):
        RunFolder.create(run.path, {})
    assert run.config == CONFIG


def test_a_folder_with_anything_else_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="exists and is not empty"):
        RunFolder.create(tmp_path, CONFIG)
    with pytest.raises(UserError, match="exists and is not empty"):
        RunFolder.create(tmp_path / "thesis.tex", CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_place_that_cannot_be_written_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written: Not a directory"):
        RunFolder.create(tmp_path / "file" / "run", CONFIG)


def test_a_folder_that_is_no_run_is_not_opened(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a run: it has no config\.json"):
        RunFolder.open(tmp_path)


def test_a_config_that_is_not_json_is_named(run: RunFolder) -> None:
    (run.path / "config.json").write_text('{"format": 1')
    with pytest.raises(UserError, match=r"config\.json cannot be read as JSON"):
        _ = run.config


def test_results_are_written_and_read(run: RunFolder) -> None:
    found = result_of(((80.0,), (60.0, 90.0)), nme=True)
    run.write_result(found)
    assert run.result == found


def test_runs_are_found_oldest_first(tmp_path: Path) -> None:
    for age, name in enumerate(["c", "b/deep", "a"]):
        made = RunFolder.create(tmp_path / name, CONFIG)
        os.utime(made.path / "config.json", (1000 + age, 1000 + age))
    for name, text in {"theirs": '{"architectures": ["Other"]}', "list": "[1]", "number": '{"run": 1}'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
        with pytest.raises(UserError, match=r"is not a run: its config\.json is not one that daydream wrote"):
            RunFolder.open(tmp_path / name)
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "config.json").write_text("// a comment")
    assert [r.path.relative_to(tmp_path).as_posix() for r in find_runs(tmp_path)] == ["c", "b/deep", "a"]


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_metrics_are_rows(run: RunFolder) -> None:
    rows = [{"kind": "note", "loss": 0.5}, {"kind": "report", "name": "Bär\u2028 \n"}]
    for row in rows:
        run.append(row)
    assert run.metrics() == rows


def test_a_torn_last_row_is_left_out(run: RunFolder) -> None:
    run.append({"kind": "note", "a": 1})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "note", "a": 2')
    assert run.metrics() == [{"kind": "note", "a": 1}]


def test_rows_after_a_checkpoint_are_forgotten(run: RunFolder) -> None:
    for i in range(3):
        run.append({"kind": "note", "a": i})
    size = run.metrics_size
    for i in range(3, 5):
        run.append({"kind": "note", "a": i})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "note", "a": 5')
    run.forget_metrics_after(size)
    assert run.metrics_size == size
    assert run.metrics() == [{"kind": "note", "a": 0}, {"kind": "note", "a": 1}, {"kind": "note", "a": 2}]
    run.append({"kind": "note", "a": 30})
    assert [row["a"] for row in run.metrics()] == [0, 1, 2, 30]
    run.forget_metrics_after(10**6)
    assert len(run.metrics()) == 4
    run.forget_metrics_after(0)
    assert run.metrics() == []


def test_without_metrics_there_is_nothing_to_forget(run: RunFolder) -> None:
    run.forget_metrics_after(0)
    assert run.metrics() == []


def test_a_file_that_lost_its_end_is_made_whole_with_the_tasks_a_checkpoint_knows(
    run: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    own = [{**accuracies([50.0] * (i + 1))} for i in range(3)]
    tasks = [
        {"task": i, "classes": 2 * i, "exemplars": 0, "cnn": own[i], "nme": None, "seconds": 1.0} for i in range(3)
    ]
    for task in tasks:
        run.append({"kind": "note", "a": task["task"]})
        run.append({"kind": "task", **task})
    size, path = run.metrics_size, run.path / "metrics.jsonl"
    first = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(first[:2]) + first[2][:9])
    with caplog.at_level("WARNING", "daydream"):
        run.forget_metrics_after(size, tasks)
    assert "had lost its end" in caplog.text
    assert [row.get("task", row.get("a")) for row in run.metrics()] == [0, 0, 1, 2]
    run.append({"kind": "note", "a": 9})
    assert run.metrics()[-1]["a"] == 9
    path.unlink()
    run.forget_metrics_after(size, tasks)
    assert [row["task"] for row in run.metrics()] == [0, 1, 2]


@pytest.mark.parametrize("line", [b"{}\n", b"[1]\n", b"\xff\xfe\n", b"{torn\n"])
def test_a_damaged_row_is_named(run: RunFolder, line: bytes) -> None:
    run.append({"kind": "note"})
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(line)
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged: line 2"):
        run.metrics()


def test_a_disk_that_is_full_is_one_line(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs.atomic, "append", full)
    with pytest.raises(UserError, match=r"metrics\.jsonl cannot be written: No space left.*daydream resume"):
        run.append({"kind": "note"})
    monkeypatch.setattr(runs.atomic, "write_json", full)
    with pytest.raises(UserError, match=r"result\.json cannot be written: No space left.*daydream resume"):
        run.write_result({})


@pytest.mark.parametrize("text", ["[1, 2]", "{}", '{"reports": "nme"}'])
def test_a_damaged_result_is_named(run: RunFolder, text: str) -> None:
    (run.path / "result.json").write_text(text)
    with pytest.raises(UserError, match=r"result\.json is damaged: it (does not say|is \[1, 2\], but takes an object)"):
        _ = run.result


def test_a_command_can_be_copied() -> None:
    assert resume_command(Path("a b/c")) == "daydream resume 'a b/c'"


# --- the lock --------------------------------------------------------------------------------------------------------

LOCKING = """
import sys
from pathlib import Path
from daydream.errors import UserError
from daydream.storage.run_folder import RunFolder
try:
    with RunFolder.open(Path(sys.argv[1])).locked():
        print("held", flush=True)
        sys.stdin.read()
except UserError as error:
    print(error)
    sys.exit(7)
"""


def test_a_second_process_is_refused_until_the_first_is_gone(run: RunFolder) -> None:
    words = [sys.executable, "-c", LOCKING, str(run.path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="being trained by another process"), run.locked():
            pass
        first.kill()
    with run.locked():
        second = subprocess.run(words, input="", capture_output=True, text=True, check=False)
        assert second.returncode == 7
        assert "being trained by another process" in second.stdout
    with run.locked():
        pass


def test_a_system_without_locks_still_trains(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with run.locked(), run.locked():
        pass
    assert runs.read_json(run.path / "config.json") == CONFIG
