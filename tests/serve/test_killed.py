"""The server killed with -9 in an upload, a lesson and an undo: the model is whole, what was acknowledged is there."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from own_images import write_classes
from serving import TINY, began_with, files_of

from daydream.learner import opening
from daydream.learner.locking import taught

pytestmark = pytest.mark.slow
httpx = pytest.importorskip("httpx")


@contextlib.contextmanager
def served(
    place: Path, given: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[Any, "subprocess.Popen[str]"]]:
    """Run the command on a folder; yield a client of it, and its process."""
    words = [sys.executable, "-m", "daydream", "serve", str(place), "--port", "0", "--no-browser"]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **given}
    )
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
        until(lambda: list(beside.glob("upload-*.json")))
        killed(process)
        asking.join()

    with served(place) as (client, process):
        rows = {row["name"]: row["waiting"] for row in client.get(url).json()["classes"]}
        assert {name: rows[name] for name in sent} == sent
        assert not list(beside.rglob("*.part"))
        assert "Sending pictures was interrupted" in client.get(url).json()["notices"][0]
        client.delete(f"{url}/notices").raise_for_status()
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


def test_a_lesson_that_trains_goes_on_after_a_kill(tmp_path: Path, named: list[str]) -> None:
    """It is kept every minute; here after every epoch."""
    photos, place = write_classes(tmp_path / "photos", range(2), 10), tmp_path / "models"
    place.mkdir()
    program = "import daydream.learner.lesson_checkpoint as kept\nkept.SECONDS = 0.0"
    path = {"PYTHONPATH": os.pathsep.join([str(began_with(tmp_path / "path", program)), *filter(None, sys.path)])}
    url, kept = "/api/models/m", place / ".m.daydream.lesson" / "latest.json"
    with served(place, path) as (client, process):
        client.post("/api/models", json={"name": "m", "method": "replay", **TINY}).raise_for_status()
        client.post(f"{url}/pictures", files=files_of(photos)).raise_for_status()
        client.post(f"{url}/lessons", json={"epochs": 40}).raise_for_status()
        until(kept.exists)
        killed(process)
    free_again(place / "m.daydream")
    with served(place, path) as (client, process):
        assert "A lesson was interrupted" in client.get(url).json()["notices"][0]
        assert (kept.parent.stat().st_mode & 0o077, (place / "m.daydream").exists()) == (0, False)
        client.post(
            f"{url}/pictures", files=files_of(write_classes(tmp_path / "more", range(2, 3), 4))
        ).raise_for_status()
        plan = client.get(f"{url}/lessons/estimate").json()
        assert (plan["goes_on"], plan["epochs"], plan["images"]) == (True, 40, 20)
        client.post(f"{url}/lessons", json={}).raise_for_status()
        until(lambda: client.get(url).json()["lesson"]["state"] != "running")
        about = client.get(url).json()
        assert about["lesson"]["state"] == "done", about["lesson"]
        assert {row["name"]: row["waiting"] for row in about["classes"]} == {**dict.fromkeys(named[:2], 0), named[2]: 4}
        plan = client.get(f"{url}/lessons/estimate").json()
        assert (plan["kept"], plan["goes_on"], plan["images"]) == (False, False, 4)
    assert not kept.parent.exists()
    assert opening.load(place / "m.daydream", device="cpu").history[0].epochs == 40


def free_again(file: Path) -> None:
    """Wait until the process that taught is gone with its server, and the model's lock with it."""

    def free() -> bool:
        with contextlib.suppress(Exception), taught(file):
            return True
        return False

    until(free)
