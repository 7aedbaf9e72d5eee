"""Hostile and odd uploads: nothing is written elsewhere, and what is passed over is told."""

import errno
import io
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from png import png
from serving import Asking, client_of, files_of, zipped

from daydream import atomic
from daydream.serve import pictures, uploads


def picture(shade: int = 0, side: int = 12, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (side, side), (shade, 2 * shade % 255, 40)).save(out, kind)
    return out.getvalue()


def sent(model: Asking, *files: tuple[str, bytes], expect: int = 201, **query: object) -> dict[str, object]:
    answer: dict[str, object] = model(
        "POST", "/pictures", expect, files=[("files", one) for one in files], params=query
    )
    return answer


def test_a_zip_of_folders(model: Asking) -> None:
    content = zipped({"pets/cat/a.png": picture(1), "pets/dog/b.jpg": picture(9, kind="JPEG"), "pets/readme.txt": b"x"})
    assert sent(model, ("pets.zip", content))["kept"] == {"cat": 1, "dog": 1}


@pytest.mark.parametrize(
    "name", ["../cat/a.png", "/etc/cat/a.png", "cat/../../a.png", "C:\\cat\\a.png", "..\\cat\\a.png"]
)
def test_a_zip_that_leads_out_is_refused_whole(model: Asking, name: str) -> None:
    before = sorted(model.folder.rglob("*"))
    said = sent(model, ("evil.zip", zipped({"cat/fine.png": picture(1), name: picture(2)})), expect=422)
    assert "leads out" in str(said["error"])
    assert sorted(model.folder.rglob("*")) == before


def test_bombs(model: Asking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = png(tmp_path / "bomb.png", 9_000, 9_000, 8).read_bytes()
    said = sent(model, ("cat/bomb.png", bomb))
    assert (said["passed_over"], "pixels" in str(said["why"])) == (1, True)
    said = sent(model, ("zeros.zip", zipped({"cat/a.png": bytes(2**26 + 1)})))
    assert (said["kept"], "larger than 64 MiB" in str(said["why"])) == ({}, True)
    monkeypatch.setattr(uploads, "MEMBERS", 5)
    many = zipped({f"cat/{i}.png": b"" for i in range(6)})
    assert "limit" in str(sent(model, ("many.zip", many), expect=413)["error"])
    three = {
        kind: zipped({f"{kind}/{i}.png": picture(10 * i + len(kind)) for i in range(3)}) for kind in ("cat", "mouse")
    }
    said = sent(model, *((f"{kind}.zip", content) for kind, content in three.items()))
    assert (said["kept"], "in a request" in str(said["why"])) == ({"cat": 3}, True)
    monkeypatch.setattr(uploads, "KEPT", 4)
    said = sent(model, ("more.zip", three["mouse"]))
    assert (said["kept"], said["passed_over"]) == ({"mouse": 1}, 2)


def test_a_zip_that_lies_about_its_size(model: Asking) -> None:
    content = bytearray(zipped({"cat/a.png": bytes(2**26 + 5)}))
    for mark, place in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = content.index(mark) + place
        content[at : at + 4] = (100).to_bytes(4, "little")
    said = sent(model, ("lie.zip", bytes(content)))
    assert (said["kept"], said["passed_over"], "damaged" in str(said["why"])) == ({}, 1, True)


def test_a_bad_picture_in_a_zip_is_passed_over_and_told(model: Asking) -> None:
    fine = {f"cat/{i}.png": picture(i) for i in range(70)}
    content = bytearray(zipped({**fine, "cat/bad.png": bytes(range(256)) * 4}))
    at = content.index(b"cat/bad.png") + len(b"cat/bad.png")
    content[at : at + 40] = b"\xff" * 40  # no block of deflate begins so
    said = sent(model, ("pets.zip", bytes(content)), ("no.zip", b"no zip"))
    assert (said["kept"], said["passed_over"]) == ({"cat": 70}, 2)
    assert ["cat/bad.png: it is damaged" in said["why"][0], "no.zip" in said["why"][1]] == [True, True]  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cat/page.png", b"<svg onload=alert(1)></svg>"),
        ("cat/empty.jpg", b""),
        ("cat/half.png", picture(3)[:40]),
        ("no-class.png", picture(4)),
        (".hidden/a.png", picture(5)),
        ("a\x1b[2Jb/c.png", picture(6)),
        ("x" * 300 + "/a.png", picture(7)),
        ("cat/nested.zip", b"no zip"),
    ],
)
def test_what_is_no_picture_or_of_no_class_is_told(model: Asking, name: str, content: bytes) -> None:
    said = model.client.post(f"/api/models/{model.name}/pictures", files=[("files", (name, content))]).json()
    assert said.get("passed_over") == 1 or "error" in said
    assert "\x1b" not in str(said)
    assert model("GET")["classes"] == []


def test_names_of_classes(model: Asking) -> None:
    for name in ("../x", "a/b", ".git", "", " ", "a\x00b", "\u202eevil", "x" * 101, "a\\b"):
        assert "error" in sent(model, ("a.png", picture(8)), expect=422, **{"class": name}), name
    assert sent(model, ("a.png", picture(8)), **{"class": "<b>Käfer & Co."})["kept"] == {"<b>Käfer & Co.": 1}
    assert [path.name for path in (model.beside / "classes").iterdir()] == ["<b>Käfer & Co."]


def test_pictures_are_their_owners_alone(model: Asking, photos: Path) -> None:
    model.upload(photos / "first")
    for path in (model.beside, *model.beside.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_picture_of_two_classes_is_asked_about(model: Asking) -> None:
    sent(model, ("a.png", picture(1)), **{"class": "cat"})
    said = sent(model, ("a.png", picture(1)), **{"class": "dog"})
    assert (said["passed_over"], "of the class 'cat'" in str(said["why"])) == (1, True)


def test_a_thumbnail_is_never_what_was_uploaded(model: Asking) -> None:
    content = picture(1) + b"<script>alert(1)</script>"
    sent(model, ("a.png", content), **{"class": "cat"})
    one = model("GET", "/pictures", params={"class": "cat"})["pictures"][0]["id"]
    small = model.client.get(f"/api/models/{model.name}/pictures/{one}")
    assert small.headers["content-type"] == "image/jpeg"
    assert b"script" not in small.content
    assert Image.open(io.BytesIO(small.content)).size == (96, 96)


def test_no_address_is_fetched(model: Asking, photos: Path) -> None:
    for given in ({"json": {"url": "http://127.0.0.1:1/a.png"}}, {"data": {"files": "http://127.0.0.1:1/a.png"}}):
        said = model("POST", "/predict", 422, **given)
        assert "no address is ever fetched" in said["error"]


def test_many_files_in_one_request_are_refused(model: Asking) -> None:
    said = model("POST", "/pictures", 400, files=[("files", (f"{i}.png", b"")) for i in range(1001)])
    assert "1000" in said["error"]


def test_test_pictures_are_not_kept(model: Asking, photos: Path) -> None:
    model.upload(photos / "first")
    model.teach()
    before = sorted(model.beside.rglob("*"))
    assert model("POST", "/test", files=files_of(photos / "test"))["accuracy"] >= 0
    assert sorted(model.beside.rglob("*")) == before


def test_a_full_disk_is_one_line(model: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(part: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    sent(model, ("a.png", picture(1)), **{"class": "cat"})
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "settle", full)
        said = sent(model, ("b.png", picture(2)), expect=507, **{"class": "cat"})
    assert "the disk is full" in str(said["error"])
    assert [row["kept"] for row in model("GET")["classes"]] == [1]
    assert not list(model.beside.rglob("*.part"))


def test_strangers_links_and_pipes_are_left_alone(
    model: Asking, photos: Path, tmp_path: Path, named: list[str]
) -> None:
    model.upload(photos / "first")
    plans = tmp_path / "victim"
    for folder in (plans / "lesson-plans", plans / "classes" / "cat", plans / "pile", plans / ("lesson-" + 16 * "0")):
        folder.mkdir(parents=True)
        (folder / ".note.part").write_text("dear")
    before = sorted(plans.rglob("*"))
    for place in ("classes/cat", "classes", "pile", ""):
        beside = model.beside / place
        if beside.exists():
            beside.rename(tmp_path / f"own{len(place)}")
        beside.symlink_to(plans / place)
        if not place:
            model.file.write_bytes(b"a model")
        with client_of(model.folder) as client:  # a server that begins
            again = Asking(client, model.name, model.folder)
            expect = 200 if place == "classes/cat" else 409
            assert expect == 200 or "is a link" in again("GET", expect=expect)["error"]
            for asked in ({"class": "cat"}, {"unlabelled": True}):
                files = [("files", ("a.png", picture(77)))]
                answer = client.post(f"/api/models/{model.name}/pictures", files=files, params=asked)
                assert answer.status_code == (201 if place == "classes/cat" and "class" not in asked else 409)
        assert sorted(plans.rglob("*")) == before
        beside.unlink()
        if (own := tmp_path / f"own{len(place)}").exists():
            own.rename(beside)


def test_only_our_own_files_are_swept_away(model: Asking, photos: Path, named: list[str]) -> None:
    model.upload(photos / "first")
    of_a_class = model.beside / "classes" / named[0]
    ours = [model.beside / f"lesson-{16 * '0'}", of_a_class / f".{16 * 'a'}.png.01234567.part"]
    ours += [model.beside / f".{name}.json.01234567.part" for name in ("journal", f"upload-{16 * 'b'}")]
    ours += [model.file.with_name(f".{model.file.name}.01234567.part")]
    theirs = [model.beside / "lesson-homework", of_a_class / ".draft.part", model.beside / ".notes.json.01234567.part"]
    for path in (*ours, *theirs):
        path.mkdir() if path.name.startswith("lesson") else path.write_text("x")
    os.mkfifo(model.beside / "classes" / named[0] / f"{16 * 'f'}.png")
    with client_of(model.folder) as client:
        again = Asking(client, model.name, model.folder)
        assert [row["kept"] for row in again("GET")["classes"]] == [8, 8]
        assert client.get(f"/api/models/{model.name}/pictures/{16 * 'f'}").status_code == 404
    assert not [path for path in ours if path.exists()]
    assert not [path for path in theirs if not path.exists()]
    (model.beside / "classes" / named[0] / f"{16 * 'f'}.png").unlink()


def test_large_pictures_are_decoded_one_at_a_time(
    model: Asking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, at_once, most, decode = (
        png(tmp_path / "large.png", 2_100, 2_100, 8).read_bytes(),
        [0],
        [0],
        pictures.square,
    )

    def counted(image: Any, side: int) -> Any:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        time.sleep(0.05)
        at_once[0] -= 1
        return decode(image, side)

    monkeypatch.setattr(pictures, "square", counted)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: pictures.read(content, 16), range(6)))
        assert most == [1]
        list(pool.map(lambda i: pictures.read(picture(i), 16), range(6)))
    assert most[0] > 1


def test_a_move_of_what_is_not_kept_makes_no_folder_and_one_said_twice_is_one(model: Asking, photos: Path) -> None:
    model.upload(photos / "first")
    [first, *_] = model("GET")["classes"][0]["pictures"]
    pictures.Pictures(model.file).move([16 * "0"], "nobody")  # learnt by the command line, which keeps none
    assert not (model.beside / "classes" / "nobody").exists()
    model("POST", "/pictures/move", json={"ids": [first, first], "to": "cat"})
    assert [path.stem for path in (model.beside / "classes" / "cat").iterdir()] == [first]
