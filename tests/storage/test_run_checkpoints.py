"""A run's checkpoints: what comes back, what survives a failed write, and the thread that writes them."""

import contextlib
import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import Watch, tiny_experiment
from torch import Tensor
from written_runs import RUN

from daydream.errors import UserError
from daydream.storage import checkpoint_files
from daydream.storage.checkpoint_files import CheckpointWriter, load_checkpoint, save_checkpoint
from daydream.storage.run_folder import RunFolder

CONFIG = {"format": 1, "run": {**RUN, "seed": 3}, "data": {}, "method": {}}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", CONFIG)


def components(value: float) -> dict[str, dict[str, torch.Tensor]]:
    return {
        "net.main": {"w": torch.full((50, 4), value), "b": torch.arange(5)},
        "tensors": {},
        "memory": {"images": torch.full((2, 3, 4, 4), int(value), dtype=torch.uint8)},
    }


def assert_holds(folder: Path, epoch: int, value: float) -> None:
    found = load_checkpoint(folder)
    assert found is not None
    info, loaded = found
    assert info["epoch"] == epoch
    expected = components(value)
    assert set(loaded) == set(expected)
    for name, tensors in expected.items():
        assert set(loaded[name]) == set(tensors)
        for key, tensor in tensors.items():
            assert loaded[name][key].dtype == tensor.dtype
            assert torch.equal(loaded[name][key], tensor)


@pytest.fixture
def folder(run: RunFolder) -> Path:
    """A checkpoint of epoch 1, with value 1."""
    path = run.path / "checkpoint"
    save_checkpoint(path, {"epoch": 1}, components(1.0))
    return path


def test_there_is_none_at_first(run: RunFolder) -> None:
    assert load_checkpoint(run.path / "checkpoint") is None


def test_a_checkpoint_comes_back(folder: Path) -> None:
    assert_holds(folder, 1, 1.0)
    latest = json.loads((folder / "latest.json").read_text())
    assert set(latest) == {"epoch", "files", "digest"}
    assert sorted(p.name for p in folder.iterdir()) == sorted(["latest.json", *latest["files"].values()])


def test_the_next_one_replaces_it_and_nothing_unnamed_stays(folder: Path) -> None:
    (folder / ".net.main.safetensors.0a_b9zqx.part").write_bytes(b"left by a killed process")
    (folder / f"net.old-{10 * 'a0'}.safetensors").write_bytes(b"left by a killed process")
    save_checkpoint(folder, {"epoch": 2}, components(2.0))
    assert_holds(folder, 2, 2.0)
    assert len(list(folder.iterdir())) == 4


def test_the_file_of_a_component_that_did_not_change_stays(folder: Path) -> None:
    before = {p.name: p.stat().st_ino for p in folder.iterdir()}
    changed = components(1.0) | {"tensors": {"t": torch.ones(1)}}
    save_checkpoint(folder, {"epoch": 2}, changed)
    after = {p.name: p.stat().st_ino for p in folder.iterdir()}
    assert {name for name in after if before.get(name) == after[name]} == {
        name for name in before if name.startswith(("net", "memory"))
    }


def test_a_component_called_unchanged_is_that_of_the_previous_checkpoint(folder: Path) -> None:
    """What is handed over for it is not even looked at."""
    save_checkpoint(folder, {"epoch": 2}, components(1.0) | {"net.main": {"w": torch.zeros(1)}}, unchanged=["net.main"])
    assert_holds(folder, 2, 1.0)
    save_checkpoint(folder, {"epoch": 3}, {"memory": components(1.0)["memory"]}, unchanged={"net.main", "tensors"})
    assert_holds(folder, 3, 1.0)
    assert len(list(folder.iterdir())) == 4


def test_views_and_channels_last_tensors_come_back(folder: Path) -> None:
    whole = torch.arange(120.0)
    odd = {
        "view": whole[3:60:2],
        "last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        "turned": torch.randn(3, 4).T,
        "trained": torch.nn.Parameter(torch.randn(3)),
        "scalar": torch.tensor(2.5),
        "none": torch.zeros(0, 3),
    }
    save_checkpoint(folder, {"epoch": 1}, {"odd": odd})
    found = load_checkpoint(folder)
    assert found is not None
    assert all(torch.equal(found[1]["odd"][name], tensor) for name, tensor in odd.items())


def component(folder: Path, name: str = "net.main") -> Path:
    (path,) = folder.glob(f"{name}-*.safetensors")
    return path


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [cut_short, flip_a_bit, empty, Path.unlink])
def test_a_damaged_component_is_named(folder: Path, harm: Callable[[Path], Any]) -> None:
    path = component(folder)
    harm(path)
    with pytest.raises(UserError, match=path.name):
        load_checkpoint(folder)


def test_a_torn_latest_is_named(folder: Path) -> None:
    cut_short(folder / "latest.json")
    with pytest.raises(UserError, match=r"latest\.json"):
        load_checkpoint(folder)


@pytest.mark.parametrize("fails_at", [0, 1, 2, 3])
def test_the_previous_checkpoint_survives_a_full_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """The disk fills up while the first, second, ... file is made to last: three components, then latest.json."""
    real, calls = os.fsync, 0

    def fsync(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls > fails_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr("os.fsync", fsync)
    changed = components(2.0) | {"tensors": {"t": torch.ones(3)}}
    with pytest.raises(UserError, match=r"No space left on device; the previous one is intact.*daydream resume"):
        save_checkpoint(folder, {"epoch": 2}, changed)
    monkeypatch.undo()
    assert_holds(folder, 1, 1.0)
    assert not list(folder.glob("*.part"))
    assert not list(folder.glob(".*"))
    save_checkpoint(folder, {"epoch": 2}, components(2.0))
    assert_holds(folder, 2, 2.0)
    assert len(list(folder.iterdir())) == 4


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Hold up the writing of checkpoints until it is set."""
    event, inner = threading.Event(), checkpoint_files.save_checkpoint

    def held_up(*args: Any) -> None:
        assert event.wait(30)
        inner(*args)

    monkeypatch.setattr(checkpoint_files, "save_checkpoint", held_up)
    return event


def test_a_checkpoint_is_of_the_moment_it_was_asked_for(folder: Path, gate: threading.Event) -> None:
    """What the run changes while it is being written is not in it."""
    given = components(2.0)
    with contextlib.closing(CheckpointWriter(folder)) as writer:
        writer.save({"epoch": 2}, given)
        for tensors in given.values():
            for tensor in tensors.values():
                tensor.zero_()
        assert_holds(folder, 1, 1.0)
        gate.set()
    assert_holds(folder, 2, 2.0)


def test_checkpoints_that_wait_are_written_in_their_order(folder: Path, gate: threading.Event) -> None:
    with contextlib.closing(CheckpointWriter(folder)) as writer:
        writer.save({"epoch": 2}, components(2.0))
        writer.save({"epoch": 3}, {"memory": components(2.0)["memory"]}, {"net.main", "tensors"})  # those of epoch 2
        threading.Timer(0.05, gate.set).start()
        writer.save({"epoch": 4}, components(2.0) | {"net.main": {}}, ["net.main"])  # waits until one is written
        assert json.loads((folder / "latest.json").read_text())["epoch"] >= 2
    assert_holds(folder, 4, 2.0)
    assert len(list(folder.iterdir())) == 4


def test_after_a_checkpoint_that_failed_no_other_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would name as unchanged what was never written."""
    inner = checkpoint_files._write_component

    def full(path: Path, name: str, tensors: Mapping[str, Tensor]) -> str:
        monkeypatch.setattr(checkpoint_files, "_write_component", inner)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint_files, "_write_component", full)
    writer = CheckpointWriter(folder)
    writer.save({"epoch": 2}, components(2.0))
    writer.save({"epoch": 3}, components(3.0), ["net.main"])
    for _ in range(2):
        with pytest.raises(UserError, match="No space left on device; the previous one is intact"):
            writer.wait()
    writer.save({"epoch": 4}, components(4.0))
    with pytest.raises(UserError, match="No space left"):
        writer.close()
    assert_holds(folder, 1, 1.0)


@pytest.mark.parametrize(
    ("ended_by", "told"), [(UserError("it diverged"), "it diverged"), (KeyboardInterrupt(), "No space left")]
)
def test_what_ended_a_run_is_told_before_a_checkpoint_that_failed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ended_by: BaseException, told: str
) -> None:
    def full(path: Path, name: str, tensors: Mapping[str, Tensor]) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint_files, "_write_component", full)
    writer = CheckpointWriter(folder)
    writer.save({"epoch": 2}, components(2.0))
    with pytest.raises(UserError, match=told), writer:
        raise ended_by


def test_a_run_that_cannot_write_its_last_checkpoint_does_not_say_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, name: str, tensors: Mapping[str, Tensor]) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint_files, "_write_component", full)
    with pytest.raises(UserError, match="No space left on device"):
        tiny_experiment().start(tmp_path / "run", Watch(stop_at=2))


LIMITED = """
import resource, signal, sys
from pathlib import Path
import torch
from daydream.errors import UserError
from daydream.storage.checkpoint_files import save_checkpoint
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    components = {"small": {"a": torch.zeros(9)}, "large": {"a": torch.zeros(9999)}}
    save_checkpoint(Path(sys.argv[1]), {"epoch": 2}, components)
except UserError as error:
    print(error)
    sys.exit(7)
"""


def test_the_previous_checkpoint_survives_a_real_limit(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    assert "File too large; the previous one is intact" in done.stdout
    assert_holds(folder, 1, 1.0)
    assert not list(folder.glob(".*"))
