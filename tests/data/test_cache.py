"""The cache of decoded images: fast when it is right, and never trusted when it is not."""

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from daydream.data import cache, decode
from daydream.data.decode import Decoding, decode_group


class Source:
    """Six image files, and how often they were decoded."""

    def __init__(self, folder: Path, make_images: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.paths = [str(path) for path in make_images(folder, 6, first=10, size=(8, 8))]
        self.decoded = 0
        monkeypatch.setattr(cache, "decode_all", self._decode_all)

    def _decode_all(self, paths: list[str], canvas: int) -> Decoding:
        self.decoded += 1
        return decode_group(paths, canvas)

    def load(self, label: str = "set", canvas: int = 8) -> Decoding:
        return cache.decode_cached(label, self.folder, self.paths, canvas)

    def values(self) -> list[int]:
        pixels = self.load().pixels
        assert pixels.shape == (6, 3, 8, 8)
        assert (pixels == pixels[:, :1, :1, :1]).all()
        return pixels[:, 0, 0, 0].tolist()


@pytest.fixture
def source(tmp_path: Path, make_images: Any, monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.setattr(cache, "BLOCK", 100)  # a dozen blocks, the last one short
    return Source(tmp_path / "source", make_images, monkeypatch)


def only_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


GREYS = [10, 11, 12, 13, 14, 15]


def test_the_second_time_nothing_is_decoded(source: Source, own_cache: Path) -> None:
    assert source.values() == GREYS
    assert source.values() == GREYS
    assert source.decoded == 1
    assert only_file(own_cache).stat().st_size > 6 * 3 * 64


def test_the_arrays_are_writable_and_apart(source: Source) -> None:
    source.load()
    source.load().pixels[:] = 0
    assert source.values() == GREYS


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.9999])
def test_a_torn_file_is_made_anew(source: Source, own_cache: Path, share: float) -> None:
    source.load()
    raw = only_file(own_cache).read_bytes()
    only_file(own_cache).write_bytes(raw[: int(share * len(raw))])
    assert source.values() == GREYS
    assert source.decoded == 2
    assert only_file(own_cache).read_bytes() == raw


def test_a_longer_file_is_made_anew(source: Source, own_cache: Path) -> None:
    source.load()
    with only_file(own_cache).open("ab") as file:
        file.write(b"x")
    assert source.values() == GREYS
    assert source.decoded == 2


def test_any_flipped_byte_is_noticed(source: Source, own_cache: Path) -> None:
    source.load()
    raw = only_file(own_cache).read_bytes()
    places = [*range(0, len(raw), 37), len(raw) - 1]
    for count, place in enumerate(places):
        damaged = bytearray(raw)
        damaged[place] ^= 0x20
        only_file(own_cache).write_bytes(damaged)
        assert source.values() == GREYS, place
        assert source.decoded == 2 + count, place


def test_a_touched_image_is_decoded_again(source: Source, own_cache: Path) -> None:
    source.load()
    before = os.stat(source.paths[2])
    Image.fromarray(np.full((8, 8, 3), 99, np.uint8)).save(source.paths[2])
    os.utime(source.paths[2], ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert source.values() == [10, 11, 99, 13, 14, 15]
    only_file(own_cache)  # the old content's file is gone


def test_another_list_size_or_decoder_is_not_taken_from_the_cache(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.load()
    source.paths.reverse()
    assert source.values() == GREYS[::-1]
    assert source.load(canvas=4).pixels.shape == (6, 3, 4, 4)
    assert source.decoded == 3
    monkeypatch.setattr(decode, "VERSION", decode.VERSION + 1)
    source.load()
    assert source.decoded == 4
    source.paths.pop()
    assert len(source.load().pixels) == 5


def test_a_cached_file_under_another_name_is_not_trusted(source: Source, own_cache: Path) -> None:
    source.load("one")
    one = only_file(own_cache)
    source.paths.reverse()
    source.load("two")
    (two,) = set(own_cache.iterdir()) - {one}
    two.write_bytes(one.read_bytes())
    assert source.load("two").pixels[0, 0, 0, 0] == 15


def test_a_name_that_is_not_utf8_is_cached_too(source: Source) -> None:
    odd = os.path.join(source.folder, os.fsdecode(b"caf\xe9.png"))
    os.rename(source.paths[2], odd)
    source.paths[2] = odd
    assert source.values() == GREYS
    assert source.values() == GREYS
    assert source.decoded == 1
    os.remove(odd)
    assert list(source.load().failures) == [2]


def test_failures_are_remembered_until_they_are_mended(source: Source) -> None:
    hidden = Path(source.paths[1]).rename(source.folder / "elsewhere")
    Path(source.paths[1]).symlink_to(source.folder / "link")  # leads nowhere, for now
    assert list(source.load().failures) == [1]
    again = source.load()
    assert list(again.failures) == [1]
    assert source.decoded == 1
    (source.folder / "link").symlink_to(hidden)
    assert source.values() == GREYS


def test_a_change_of_rights_alone_mends_an_image(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, canvas: int) -> Any:
        raise PermissionError(path)

    with monkeypatch.context() as patched:
        patched.setattr(decode, "decode", refuse)
        assert len(source.load().failures) == 6
    assert source.values() == GREYS


def test_without_a_place_to_write_the_set_is_decoded_all_the_same(
    source: Source, own_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (own_cache / "file").touch()
    monkeypatch.setenv("DAYDREAM_CACHE", str(own_cache / "file"))
    with caplog.at_level("INFO", logger="daydream"):
        assert source.values() == GREYS
    assert len(caplog.records) == 1
    assert "going on without a cache" in caplog.text
    assert source.values() == GREYS
    assert source.decoded == 2


def test_a_failed_write_leaves_nothing_behind(source: Source, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("daydream.atomic.os.replace", lambda old, new: full(new))
    assert source.values() == GREYS
    assert list(own_cache.iterdir()) == []


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DAYDREAM_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("DAYDREAM_CACHE")
    assert cache.cache_folder() == tmp_path / "shared" / "daydream"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_folder() == tmp_path / ".cache" / "daydream"


def test_the_file_is_readable_by_others_of_a_shared_cache(source: Source, own_cache: Path) -> None:
    own_cache.chmod(0o755)
    source.load()
    assert stat.S_IMODE(only_file(own_cache).stat().st_mode) == 0o644
