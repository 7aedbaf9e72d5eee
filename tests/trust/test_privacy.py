"""A private picture stays private: who may read what is written, and what is kept of pictures elsewhere."""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import TINY, call
from own_images import write_classes

LEARN = ("--epochs=1", "--image-size=16", "--backbone=resnet10", "--device=cpu", "--quiet")


@pytest.fixture(params=[0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache in its usual place, in someone's home."""
    monkeypatch.delenv("DAYDREAM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "daydream"


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_run_respects_the_umask_and_keeps_its_pictures_to_its_owner(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, umask: int
) -> None:
    run = tmp_path / "run"
    code, _, err = call(capsys, "run", *TINY, "--quiet", "--out", str(run))
    assert code == 0, err
    held = list((run / "checkpoint").glob("*.safetensors"))
    assert any(path.name.startswith("memory") for path in held)
    assert {rights(path) for path in held} == {0o600}
    others = [path for path in run.rglob("*") if path.is_file() and path not in held and path.parent.name != "base"]
    assert {path.name for path in others} >= {"config.json", "metrics.jsonl", "result.json", "latest.json"}
    assert {rights(path) for path in others} == {0o666 & ~umask}


def test_a_model_file_is_its_owners_alone_until_told_otherwise(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, umask: int
) -> None:
    photos, model = write_classes(tmp_path / "photos", range(2), 6), tmp_path / "m.daydream"
    code, _, err = call(capsys, "learn", str(model), str(photos), *LEARN)
    assert code == 0, err
    assert rights(model) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.daydream", "photos"]
    model.chmod(0o640)
    more = write_classes(tmp_path / "more", range(2, 3), 6)
    code, _, err = call(capsys, "learn", str(model), str(more), "--epochs=1", "--device=cpu", "--quiet")
    assert code == 0, err
    assert rights(model) == 0o640 & ~umask


def test_the_cache_is_its_owners_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, own_cache: Path, umask: int
) -> None:
    photos = write_classes(tmp_path / "photos", range(2), 6)
    own_cache.mkdir(parents=True)
    own_cache.chmod(0o755)
    code, _, err = call(capsys, "learn", str(tmp_path / "m.daydream"), str(photos), *LEARN)
    assert code == 0, err
    assert rights(own_cache) == 0o700
    assert [rights(path) for path in own_cache.iterdir()] == [0o600]


def learn(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    """Let a new model learn a folder of its own, which is then in the cache."""
    photos = tmp_path / name
    if not photos.exists():
        write_classes(photos, range(2), 6)
    code, _, err = call(capsys, "learn", str(tmp_path / f"{name}.daydream"), str(photos), *LEARN)
    assert code == 0, err


def test_the_cache_stays_below_its_limit_and_the_least_recently_used_goes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(capsys, tmp_path, "a")
    (first,) = own_cache.iterdir()
    monkeypatch.setenv("DAYDREAM_CACHE_GB", str(2.5 * first.stat().st_size / 2**30))
    learn(capsys, tmp_path, "b")
    (second,) = set(own_cache.iterdir()) - {first}
    for file, age in ((first, 200), (second, 100)):
        os.utime(file, (time.time() - age, time.time() - age))
    left = own_cache / f".{first.name}.0a1b2c3d.part"
    left.write_bytes(b"left by a killed process")
    os.utime(left, (0, 0))
    (own_cache / "notes.txt").write_text("mine")
    learn(capsys, tmp_path, "a")  # read: from now on the other one is the least recently used
    learn(capsys, tmp_path, "c")
    there = {path.name for path in own_cache.iterdir()}
    assert first.name in there
    assert second.name not in there
    assert left.name not in there
    assert "notes.txt" in there
    assert len(there) == 3


def test_a_set_over_the_limit_is_not_cached(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYDREAM_CACHE_GB", "0")
    learn(capsys, tmp_path, "a")
    assert not list(own_cache.glob("*"))
    monkeypatch.setenv("DAYDREAM_CACHE_GB", "much")
    code, _, err = call(capsys, "learn", str(tmp_path / "m.daydream"), str(tmp_path / "a"), *LEARN)
    assert code == 2
    assert "DAYDREAM_CACHE_GB is 'much'" in err


def test_the_cache_can_be_looked_at_and_cleared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, own_cache: Path
) -> None:
    assert call(capsys, "cache")[0] == 0
    learn(capsys, tmp_path, "a")
    (own_cache / "notes.txt").write_text("mine")
    code, out, _ = call(capsys, "cache")
    assert code == 0
    assert str(tmp_path / "a") in out
    assert "learn" in out
    code, out, _ = call(capsys, "cache", "--clear")
    assert code == 0
    assert [path.name for path in own_cache.iterdir()] == ["notes.txt"]
