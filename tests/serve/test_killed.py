"""The server killed with -9 in an upload, a lesson and an undo: the model is whole, what was acknowledged is there."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from own_images import write_classes
from serving import TINY, files_of

from daydream.learner import opening
from daydream.learner.locking import taught

pytestmark = pytest.mark.slow
httpx = pytest.importorskip("httpx")


@contextlib.contextmanager
def served(place: Path) -> Iterator[tuple[Any, "subprocess.Popen[str]"]]:
    """Run the command on a folder; yield a client of it, and its process."""
    words = [sys.executable, "-m", "daydream", "serve", str(place), "--port", "0", "--no-browser"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert process.stdout is not None
    try:
        address = process.stdout.readline().split(": ", 1)[1].strip()
        with httpx.Client(base_url=address, timeout=60) as client:
            yield client, process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def killed(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def until(true: Any) -> None:
    last = time.monotonic() + 60
    while not true():
        assert time.monotonic() < last
        time.sleep(0.005)


def unheard(call: Any) -> threading.Thread:
    """Ask something whose answer will not come."""

    def ask() -> None:
        with contextlib.suppress(httpx.HTTPError):
            call()

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def test_killed_in_an_upload_a_lesson_and_an_undo(tmp_path: Path, named: list[str]) -> None:
    photos, more = write_classes(tmp_path / "photos", range(2), 10), write_classes(tmp_path / "more", range(2, 3), 10)
    place = tmp_path / "models"
    place.mkdir()
    url, file = "/api/models/m", place / "m.daydream"
    beside = place / "m.daydream.pictures"

    with served(place) as (client, process):
        client.post("/api/models", json={"name": "m", **TINY}).raise_for_status()
        sent = client.post(f"{url}/pictures", files=files_of(photos)[:10]).json()["kept"]
        slow = [(field, (f"x{i}/{name}", raw)) for i in range(40) for field, (name, raw) in files_of(photos)[10:]]
        asking = unheard(lambda: client.post(f"{url}/pictures", files=slow))
        until(lambda: len(list(beside.rglob("*.p*"))) > 10)
        killed(process)
        asking.join()

    with served(place) as (client, process):
        rows = {row["name"]: row["waiting"] for row in client.get(url).json()["classes"]}
        assert {name: rows[name] for name in sent} == sent
        assert not list(beside.rglob("*.part"))
        names = [name for name in rows if name not in sent]
        if names:
            client.post(f"{url}/forget", json={"names": names}).raise_for_status()
        client.post(f"{url}/pictures", files=files_of(photos)).raise_for_status()
        client.post(f"{url}/lessons", json={}).raise_for_status()
        until(lambda: client.get(url).json()["lesson"]["state"] == "done")
        client.post(f"{url}/pictures", files=files_of(more)).raise_for_status()
        before = file.read_bytes()
        asking = unheard(lambda: client.post(f"{url}/lessons", json={}))
        until(lambda: (beside / "journal.json").exists())
        killed(process)
        asking.join()

    free_again(file)
    assert file.read_bytes() == before or len(opening.load(file, device="cpu").names) == 3
    with served(place) as (client, process):
        about = client.get(url).json()
        assert about["notices"] == [line for line in about["notices"] if "A lesson was interrupted" in line] != []
        assert {row["name"]: row["kept"] for row in about["classes"]} == dict.fromkeys(named, 10)
        assert not list(beside.glob("lesson-*"))
        if len(opening.load(file, device="cpu").names) == 2:
            client.post(f"{url}/lessons", json={}).raise_for_status()
            until(lambda: client.get(url).json()["lesson"]["state"] == "done")
        asking = unheard(lambda: client.post(f"{url}/undo"))
        until(lambda: (beside / "journal.json").exists())
        killed(process)
        asking.join()

    free_again(file)
    assert len(opening.load(file, device="cpu").names) in (2, 3)
    with served(place) as (client, _):
        about = client.get(url).json()
        assert "An undo was interrupted" in about["notices"][0]
        assert sum(row["kept"] for row in about["classes"]) == 30


def free_again(file: Path) -> None:
    """Wait until the process that taught is gone with its server, and the model's lock with it."""

    def free() -> bool:
        with contextlib.suppress(Exception), taught(file):
            return True
        return False

    until(free)
