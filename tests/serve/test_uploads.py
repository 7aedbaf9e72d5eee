"""Hostile and odd uploads: nothing is written elsewhere, and what is passed over is told."""

import errno
import io
from pathlib import Path

import pytest
from hostile import png
from PIL import Image
from serving import Asking, files_of, zipped

from daydream import atomic
from daydream.serve import uploads


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
    assert sent(model, ("zeros.zip", zipped({"cat/a.png": bytes(2**26 + 1)})), expect=413)
    monkeypatch.setattr(uploads, "MEMBERS", 5)
    many = zipped({f"cat/{i}.png": b"" for i in range(6)})
    assert "limit" in str(sent(model, ("many.zip", many), expect=413)["error"])


def test_a_zip_that_lies_about_its_size(model: Asking) -> None:
    content = bytearray(zipped({"cat/a.png": bytes(2**26 + 5)}))
    for mark, place in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = content.index(mark) + place
        content[at : at + 4] = (100).to_bytes(4, "little")
    assert "error" in sent(model, ("lie.zip", bytes(content)), expect=422)


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
