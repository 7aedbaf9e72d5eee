"""Two who change one model: two tabs, the command line, another program; and a lesson that is cancelled."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import call
from own_images import write_classes
from serving import TINY, Asking, began_with, client_of

from daydream.atomic import signature
from daydream.learner.locking import taught

ADAPTING = {"name": "slow", "method": "replay", **TINY}


def test_the_command_line_and_the_page_take_turns(model: Asking, photos: Path) -> None:
    model.upload(photos / "first")
    with taught(model.file):
        lesson = model.teach("failed")
    assert "being taught by another process" in lesson["error"]
    assert not model.file.exists()
    assert model.teach()["state"] == "done"


def test_the_command_line_changes_what_the_page_shows(
    model: Asking, photos: Path, named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    model.upload(photos / "first")
    model.teach()
    assert call(capsys, "rename", str(model.file), named[0], "crow")[0] == 0
    about = model("GET")
    assert "changed by another program" in about["notices"][0]
    assert {row["name"]: (row["known"], row["kept"]) for row in about["classes"]} == {"crow": (8, 8), named[1]: (8, 8)}
    assert call(capsys, "forget", str(model.file), "crow")[0] == 0
    about = model("GET")
    assert [row["name"] for row in about["classes"]] == [named[1]]
    assert not (model.beside / "classes" / "crow").exists()
    assert model("DELETE", "/notices")["notices"] == []
    model.file.unlink()
    assert "gone" in model("GET")["notices"][0]
    shutil.rmtree(model.beside)
    assert model("GET")["classes"] == []


def test_a_name_in_a_model_file_leads_nowhere(
    model: Asking, photos: Path, named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    model.upload(photos / "first")
    model.teach()
    before = {path for path in model.folder.parent.rglob("*") if not path.is_relative_to(model.beside)}
    for name in ("../../evil", str(model.folder / "evil"), "..", "a/b"):
        now = model("GET")["classes"][0]["name"]
        assert call(capsys, "rename", str(model.file), now, name)[0] == 0
        about = model("GET")
        assert name in {row["name"] for row in about["classes"]}
        assert sum(row["kept"] for row in about["classes"]) == 16
    after = {path for path in model.folder.parent.rglob("*") if not path.is_relative_to(model.beside)}
    assert before == after


def test_a_damaged_file_is_said(model: Asking, photos: Path) -> None:
    model.upload(photos / "first")
    model.teach()
    model.file.write_bytes(model.file.read_bytes()[:-100])
    assert "damaged" in model("GET", expect=422)["error"]


def test_a_lesson_is_cancelled_and_a_second_one_refused(
    tmp_path: Path, photos: Path, named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with client_of(tmp_path) as client:
        assert client.post("/api/models", json=ADAPTING).status_code == 201
        model = Asking(client, "slow", tmp_path)
        model.upload(photos / "first")
        first = model("GET", "/lessons/estimate")
        assert (first["epochs"], 0 < first["seconds"] < first["seconds_most"]) == (160, True)
        model("POST", "/lessons", 202, json={"epochs": 1})
        assert model.ended()["after"].keys() == set(named[:2])
        assert model("GET", "/lessons")["records"][-1]["epochs"] == 1
        before = model.file.read_bytes()
        assert model("GET")["can_undo"] is False
        model.upload(photos / "more")
        again = model("GET", "/lessons/estimate")
        assert (again["epochs"], again["seconds"] < again["seconds_most"], again["kept"]) == (160, True, False)
        assert "4 pictures of 2 known classes, 160 epochs, about" in again["sentence"]
        assert "1 epoch," in model("GET", "/lessons/estimate", params={"epochs": 1})["sentence"]
        model("POST", "/lessons", 202, json={"epochs": 1})
        assert set(model.ended()["before"]) == set(model.ended()["after"]) == set(named[:2])
        assert model.file.read_bytes() != before
        undone = model("POST", "/undo")
        assert model.file.read_bytes() == before
        assert ([row["waiting"] for row in undone["classes"]], undone["can_undo"]) == ([2, 2], False)
        model(
            "POST", "/pictures/delete", json={"ids": [one for row in undone["classes"] for one in row["pictures"][:2]]}
        )

        model.upload(photos / "second")
        model("POST", "/lessons", 202, json={"epochs": 10_000})
        assert "under way" in model("POST", "/lessons", 409, json={})["error"]
        assert "under way" in model("POST", "/rename", 409, json={"name": named[0], "to": "x"})["error"]
        while not model("GET")["lesson"]["done"]:  # by then it holds the lock
            time.sleep(0.1)
        code, _, err = call(capsys, "rename", str(model.file), named[0], "x")
        assert (code, "being taught by another process" in err) == (2, True)
        picture = next((photos / "first" / named[0]).iterdir())
        files = [("files", (picture.name, picture.read_bytes()))]
        assert model("POST", "/predict", files=files)[0]["classes"][0]["name"] in named[:2]
        assert model("DELETE", "/lessons/current")["state"] == "cancelled"
        assert not list(tmp_path.glob(".*.lesson"))
        assert model.file.read_bytes() == before
        assert [row["waiting"] for row in model("GET")["classes"]] == [0, 0, 8]
        assert "no lesson" in model("DELETE", "/lessons/current", 409)["error"]


def test_what_a_killed_server_had_not_noted_is_noted(tmp_path: Path, photos: Path, named: list[str]) -> None:
    with client_of(tmp_path) as client:
        client.post("/api/models", json=ADAPTING)
        model = Asking(client, "slow", tmp_path)
        for folder in ("first", "more"):
            model.upload(photos / folder)
            was = signature(model.file)
            ids = [one for row in model("GET")["classes"] for one in row["pictures"]][: 16 if folder == "first" else 4]
            model("POST", "/lessons", 202, json={"epochs": 1})
            model.ended()
    for name in ("taught.json", "undo.json"):
        (model.beside / name).unlink()
    known = [path.stem for path in sorted((model.beside / "classes").rglob("*.png")) if path.stem not in ids]
    (model.beside / "taught.json").write_text(json.dumps({"what": "taught", "ids": known}))
    (model.beside / "journal.json").write_text(json.dumps({"what": "learn", "file": was, "ids": ids, "number": 1}))
    with client_of(tmp_path) as client:
        model = Asking(client, "slow", tmp_path)
        about = model("GET")
        assert "it had been written" in about["notices"][0]
        assert ([row["waiting"] for row in about["classes"]], about["can_undo"]) == ([0, 0], True)
        assert sum(row["waiting"] for row in model("POST", "/undo")["classes"]) == 4


def test_pictures_that_are_not_kept(tmp_path: Path, photos: Path, named: list[str]) -> None:
    with client_of(tmp_path) as client:
        client.post("/api/models", json={"name": "shy", **TINY})
        model = Asking(client, "shy", tmp_path)
        model.upload(photos / "first")
        model.teach()
        model.upload(photos / "pile", unlabelled=True)
        model.upload(photos / "more")
    with client_of(tmp_path, keep=False) as client:
        model = Asking(client, "shy", tmp_path)
        about = model("GET")
        assert (about["keeps_pictures"], about["unlabelled"]) == (False, 0)
        assert "24 pictures of before were deleted" in about["notices"][0]
        assert [(row["known"], row["kept"], row["waiting"]) for row in about["classes"]] == [(8, 2, 2), (8, 2, 2)]
        model.teach()
        about = model("GET")
        assert [(row["known"], row["kept"]) for row in about["classes"]] == [(10, 0), (10, 0)]
        assert not list(model.beside.rglob("*.png"))
        assert [row["waiting"] for row in model("POST", "/undo")["classes"]] == [0, 0]
        model.upload(photos / "pile", unlabelled=True)
    assert not list(model.beside.rglob("*.png"))


def test_a_full_disk_in_a_lesson_and_an_undo(
    tmp_path: Path, photos: Path, named: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = tmp_path / "full"
    program = f"""import errno, os, pathlib
before = os.fsync
def fsync(handle):
    if pathlib.Path({str(full)!r}).exists():
        raise OSError(errno.ENOSPC, "No space left on device")
    before(handle)
os.fsync = fsync"""
    monkeypatch.syspath_prepend(str(began_with(tmp_path / "path", program)))
    place = tmp_path / "models"
    place.mkdir()
    with client_of(place) as client:
        client.post("/api/models", json={"name": "m", **TINY})
        model = Asking(client, "m", place)
        model.upload(photos / "first")
        model.teach()
        model.upload(photos / "more")
        model.teach()
        before = model.file.read_bytes()
        model.upload(photos / "second")
        full.touch()
        assert (
            model.teach("failed")["error"]
            == "the disk is full: free some space and try again; the model is as it was before"
        )
        assert "the disk is full" in model("POST", "/undo", 507)["error"]
        assert model.file.read_bytes() == before
        full.unlink()
        assert model.teach()["after"].keys() == set(named)
        assert sum(row["known"] for row in model("POST", "/undo")["classes"]) == 20


@pytest.mark.slow
def test_the_command_serves_one_file_and_stops(tmp_path: Path) -> None:
    httpx = pytest.importorskip("httpx")
    words = [sys.executable, "-m", "daydream", "serve", str(tmp_path / "m.daydream"), "--port", "0", "--no-browser"]
    process = subprocess.Popen([*words, "--token", "secret"], stdout=subprocess.PIPE, text=True, env={**os.environ})
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split(": ", 1)[1].strip()
        assert address.startswith("http://127.0.0.1:")
        answer = httpx.get(address, follow_redirects=True, timeout=30)
        assert "<title>daydream</title>" in answer.text
        bare = address.split("?")[0]
        assert httpx.get(f"{bare}api", timeout=30).status_code == 401
        about = httpx.get(f"{bare}api", headers={"authorization": "Bearer secret"}, timeout=30).json()
        assert [model["name"] for model in about["models"]] == ["m"]
    finally:
        process.terminate()
        assert process.wait(timeout=30) in (0, -15)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_another_host_needs_a_token_which_is_printed(tmp_path: Path) -> None:
    httpx = pytest.importorskip("httpx")
    words = [sys.executable, "-m", "daydream", "serve", str(tmp_path), "--port", "0", "--no-browser"]
    process = subprocess.Popen([*words, "--host", "127.0.0.2"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        bare, token = process.stdout.readline().split(": ", 1)[1].strip().split("?token=")
        assert len(token) >= 32
        assert httpx.get(f"{bare}api", timeout=30).status_code == 401
        known = {"authorization": f"Bearer {token}"}
        assert httpx.get(f"{bare}api", headers=known, timeout=30).status_code == 200
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_places_where_no_model_can_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        ((str(tmp_path / "no" / "m.daydream"),), "is not a folder"),
        ((str(tmp_path / "m.txt"),), "name a model file"),
        ((str(tmp_path), "--host", "256.1.1.1", "--port", "1"), "cannot be listened on"),
    ):
        code, _, err = call(capsys, "serve", *words, "--no-browser")
        assert (code, said in err, err.count("\n")) == (2, True, 1), err
    write_classes(tmp_path / "x", range(1), 1)
