"""Files are the whole old one or the whole new one."""

import json
import os
import stat
from pathlib import Path

import pytest

from daydream import atomic
from daydream.errors import UserError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    atomic.write_text(path, "one ä")
    assert path.read_text(encoding="utf-8") == "one ä"
    atomic.write_text(path, "two")
    assert path.read_text(encoding="utf-8") == "two"
    assert names(tmp_path) == ["a.txt"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_json_ends_in_a_new_line(tmp_path: Path) -> None:
    atomic.write_json(tmp_path / "a.json", {"b": [1, 2]})
    text = (tmp_path / "a.json").read_text()
    assert json.loads(text) == {"b": [1, 2]}
    assert text.endswith("}\n")


def write_half(path: Path, error: BaseException) -> None:
    with atomic.replacing(path) as part:
        part.write_text("half")
        assert path.read_text() == "old", "a reader sees the old file until the end"
        raise error


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(type(error)):
        write_half(path, error)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_what_json_cannot_hold_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(TypeError):
        atomic.write_json(path, {"a": object()})
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.json"]


def test_the_content_is_on_disk_before_the_name_and_both_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("fsync"), sync(handle)))
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("replace"), rename(a, b)))
    atomic.write_text(tmp_path / "a", "x")
    assert done == ["fsync", "replace", "fsync"]


def test_a_lock_where_nothing_can_be_written_is_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=r"nowhere cannot be written to: No such file"),
        atomic.locked(tmp_path / "nowhere" / ".lock", "held"),
    ):
        pass
