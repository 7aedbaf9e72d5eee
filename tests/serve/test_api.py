"""The API from end to end, in this process: a model is named, taught, asked, mended, undone and written out."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image
from serving import Asking, files_of

from daydream.cli.serve import bound
from daydream.learner.exact_learner import ExactLearner


def test_a_model_from_first_to_last(model: Asking, photos: Path, named: list[str]) -> None:
    first, second = named[:2], named[2]
    assert model("GET")["exists"] is False
    sent = model.upload(photos / "first")
    assert sent["kept"] == dict.fromkeys(first, 8)
    assert model.upload(photos / "first")["doubled"] == 16
    estimate = model("GET", "/lessons/estimate")
    assert (estimate["images"], sorted(estimate["new"])) == (16, sorted(first))

    assert "learner is exact" in model("POST", "/lessons", 422, json={"epochs": 3})["error"]
    lesson = model.teach()
    assert sorted(lesson["after"]) == sorted(first)
    assert model.file.stat().st_mode & 0o077 == 0
    about = model("GET")
    assert [(row["known"], row["waiting"], row["kept"]) for row in about["classes"]] == [(8, 0, 8)] * 2
    picture = files_of(photos / "first" / first[0])[0]
    [told] = model("POST", "/predict", files=[picture], params={"nearest": 2})
    itself = ExactLearner.load(model.file)
    path = photos / "first" / first[0] / picture[1][0]
    expected = dict(zip(itself.names, itself.probabilities(path)[0].tolist(), strict=True))
    assert {row["name"]: row["probability"] for row in told["classes"]} == pytest.approx(expected, abs=1e-4)
    assert told["nearest"][0]["cosine"] == pytest.approx(1, abs=1e-3)
    assert told["nearest"][0]["kept"] is True
    predictor = model.client.app.app.state.models.get(model.name).view.predictor
    looks = itself.looks(path).item()
    for threshold, none in ((None, None), (looks + 0.01, True), (looks - 0.01, False)):
        predictor.threshold = threshold
        assert model("POST", "/predict", files=[picture])[0]["none_of_these"] is none
    report = model("POST", "/test", files=files_of(photos / "test"))
    assert set(report["per_class"]) == set(first)

    model.upload(photos / "second")
    assert model.teach()["before"].keys() == set(first)
    assert len(model("GET")["classes"]) == 3
    undone = model("POST", "/undo")
    assert [(row["name"], row["known"], row["waiting"]) for row in undone["classes"]][2] == (second, 0, 8)
    model.teach()

    model("POST", "/rename", json={"name": first[0], "to": "crow"})
    assert {row["name"] for row in model("GET")["classes"]} == {"crow", first[1], second}
    assert len(list((model.beside / "classes" / "crow").iterdir())) == 8
    model("POST", "/forget", json={"names": [second]})
    assert not (model.beside / "classes" / second).exists()
    assert len(model("GET")["classes"]) == 2


def test_pictures_move_and_go(model: Asking, photos: Path, named: list[str]) -> None:
    model.upload(photos / "first")
    model.teach()
    listed = model("GET", "/pictures", params={"class": named[0]})
    one, two = (row["id"] for row in listed["pictures"][:2])
    about = model("POST", "/pictures/delete", json={"ids": [one]})
    assert [row["known"] for row in about["classes"] if row["name"] == named[0]] == [7]
    assert len(list((model.beside / "classes" / named[0]).iterdir())) == 7
    model("POST", "/pictures/move", json={"ids": [two], "to": named[1]})
    about = model("GET")
    assert {row["name"]: row["known"] for row in about["classes"]} == {named[0]: 6, named[1]: 9}
    assert {row["name"]: row["kept"] for row in about["classes"]} == {named[0]: 6, named[1]: 9}


def test_unlabelled_pictures_are_asked_about_and_named(model: Asking, photos: Path, named: list[str]) -> None:
    model.upload(photos / "first")
    model.teach()
    assert model.upload(photos / "pile", unlabelled=True)["kept"] == {"": 8}
    ids = model("GET", "/next", params={"count": 3})
    assert len(ids) == 3
    thumbnail = model.client.get(f"/api/models/{model.name}/pictures/{ids[0]}")
    assert thumbnail.headers["content-type"] == "image/jpeg"
    model("POST", "/pictures/move", json={"ids": ids[:1], "to": named[0]})
    about = model("GET")
    assert (about["unlabelled"], sum(row["waiting"] for row in about["classes"])) == (7, 1)
    assert isinstance(model("GET", "/doubts"), list)


def test_a_doubt_can_be_called_right(model: Asking, photos: Path, named: list[str], tmp_path: Path) -> None:
    assert "knows no class" in model("GET", "/doubts", 409)["error"]
    model.upload(photos / "first")
    path = sorted((photos / "first" / named[0]).iterdir())[0]
    (tmp_path / named[1]).mkdir()
    with Image.open(path) as image:
        image.point(lambda value: max(0, value - 1)).save(tmp_path / named[1] / "double.png")
    model.upload(tmp_path)
    model.teach()
    assert model("GET", "/next") == []
    found = [row for row in model("GET", "/doubts") if row["kind"] == "doubled"]
    assert found
    left = model("POST", "/pictures/right", json={"ids": [found[0]["id"]]})
    assert left == model("GET", "/doubts") == [row for row in left if row["id"] != found[0]["id"]]
    model("POST", "/pictures/right", 404, json={"ids": ["0" * 16]})


@pytest.mark.parametrize(("kind", "begins"), [("onnx", b""), ("safetensors", b""), ("model", b"")])
def test_export(model: Asking, photos: Path, kind: str, begins: bytes) -> None:
    model("GET", "/export", 409, params={"as": kind})
    model.upload(photos / "first")
    model.teach()
    answer = model.client.get(f"/api/models/{model.name}/export", params={"as": kind})
    assert answer.status_code == 200
    assert len(answer.content) > 1000


def test_the_api_says_what_it_is(client: TestClient) -> None:
    spec: Any = client.get("/openapi.json").json()
    assert "/api/models/{model}/lessons" in spec["paths"]
    assert client.get("/docs.html").status_code == 200
    assert "cdn" not in client.get("/docs.html").text
    for methods in spec["paths"].values():
        for about in methods.values():
            assert {"400", "401", "403", "404", "409", "413", "422", "500", "507"} <= set(about["responses"])


def test_answers_are_sent_at_once() -> None:
    """A connection that gathers what it sends holds every answer back for 40 ms."""

    async def asked() -> int:
        gathers: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def met(_: Any, writer: asyncio.StreamWriter) -> None:
            own = writer.get_extra_info("socket")
            gathers.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = bound("127.0.0.1", 0)
        async with await asyncio.start_server(met, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            found = await gathers
            writer.close()
        return found

    assert asyncio.run(asked()) != 0
