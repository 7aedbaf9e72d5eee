"""What is said to be written is on the disk, with its name, and is what was written."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from command_line import TINY, call
from hostile import stopped


def test_folders_are_brought_to_the_disk_with_the_files_in_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, real = set[str](), os.fsync

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr("os.fsync", fsync)
    code, _, err = call(capsys, "run", *TINY, "--tasks=1", "--quiet", "--out", str(tmp_path / "run"))
    assert code == 0, err
    assert synced >= {str(tmp_path / "run"), str(tmp_path / "run" / "checkpoint")}


@pytest.mark.parametrize("signed", [True, False])
def test_a_bit_that_fell_over_in_latest_json_is_noticed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, signed: bool
) -> None:
    """Only JSON and types were checked: another digit was another run. A file from before the digest still opens."""
    run = stopped(tmp_path / "run")
    latest = run / "checkpoint" / "latest.json"
    info = json.loads(latest.read_text())
    if signed:
        info["cursor"]["rows"][0]["cnn"]["top1"] += 1.0
    else:
        info.pop("digest", None)
    latest.write_text(json.dumps(info))
    shutil.copytree(run, tmp_path / "copy")
    code, _, err = call(capsys, "resume", str(tmp_path / "copy"), "--quiet")
    assert code == (2 if signed else 0), err
    assert not signed or "does not match its digest" in err
