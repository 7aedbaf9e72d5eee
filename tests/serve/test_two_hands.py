"""Two who change one model: two tabs, the command line, another program; and a lesson that is cancelled."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import call
from own_images import write_classes
from serving import TINY, Asking, client_of

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


def test_a_lesson_is_cancelled_and_a_second_one_refused(tmp_path: Path, photos: Path, named: list[str]) -> None:
    with client_of(tmp_path) as client:
        assert client.post("/api/models", json=ADAPTING).status_code == 201
        model = Asking(client, "slow", tmp_path)
        model.upload(photos / "first")
        model("POST", "/lessons", 202, json={"epochs": 1})
        assert model.ended()["after"].keys() == set(named[:2])
        before = model.file.read_bytes()
        assert model("GET")["can_undo"] is False
        model.upload(photos / "more")
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
        picture = next((photos / "first" / named[0]).iterdir())
        files = [("files", (picture.name, picture.read_bytes()))]
        assert model("POST", "/predict", files=files)[0]["classes"][0]["name"] in named[:2]
        while not model("GET")["lesson"]["done"]:
            time.sleep(0.1)
        assert model("DELETE", "/lessons/current")["state"] == "cancelled"
        assert model.file.read_bytes() == before
        assert [row["waiting"] for row in model("GET")["classes"]] == [0, 0, 8]
        assert "no lesson" in model("DELETE", "/lessons/current", 409)["error"]


def test_pictures_that_are_not_kept(tmp_path: Path, photos: Path, named: list[str]) -> None:
    with client_of(tmp_path, keep=False) as client:
        client.post("/api/models", json={"name": "shy", **TINY})
        model = Asking(client, "shy", tmp_path)
        model.upload(photos / "first")
        model.teach()
        about = model("GET")
        assert about["keeps_pictures"] is False
        assert [(row["known"], row["kept"]) for row in about["classes"]] == [(8, 0), (8, 0)]
        assert not list(model.beside.rglob("*.png"))


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


def test_places_where_no_model_can_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        ((str(tmp_path / "no" / "m.daydream"),), "is not a folder"),
        ((str(tmp_path / "m.txt"),), "name a model file"),
        ((str(tmp_path), "--host", "256.1.1.1", "--port", "1"), "cannot be listened on"),
    ):
        code, _, err = call(capsys, "serve", *words, "--no-browser")
        assert (code, said in err, err.count("\n")) == (2, True, 1), err
    write_classes(tmp_path / "x", range(1), 1)
