"""A user's own folders: splits, odd files, and any folder as the pile."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from own_images import lock_out

from daydream.data.images import ImageSet
from daydream.data.sources import folder
from daydream.data.sources.folder import Settings

SMALL = {"image_size": 8}


def values(images: ImageSet) -> set[int]:
    return set(images.pixels.fetch(torch.arange(len(images)))[:, 0, 0, 0].tolist())


@pytest.fixture
def root(tmp_path: Path, make_images: Any) -> Path:
    root = tmp_path / "mine"
    make_images(root / "cat", 10, first=0)
    make_images(root / "ant", 5, first=50, suffix="JPG")
    (root / "ant" / "notes.txt").write_text("hello")
    (root / ".git").mkdir()
    return root


def test_splits_each_class_by_itself(root: Path, make_images: Any) -> None:
    data = folder.load(root, Settings(**SMALL))
    assert data.class_names == ("ant", "cat")
    assert data.train.counts().tolist() == [4, 8]
    assert data.test.counts().tolist() == [1, 2]
    train, test = values(data.train), values(data.test)
    assert not train & test
    assert train | test == {*range(10), *range(50, 55)}
    assert data.test.pixels.shape == (3, 3, 8, 8)
    make_images(root / "bee", 4, first=90)
    with_bees = folder.load(root, Settings(**SMALL))
    assert values(with_bees.test) - set(range(90, 94)) == test
    assert values(folder.load(root, Settings(test_share=0.5, **SMALL)).test) > test - set(range(90, 94))


def test_labels_follow_the_folders(root: Path) -> None:
    data = folder.load(root, Settings(**SMALL))
    for part in (data.train, data.test):
        pixels = part.pixels.fetch(torch.arange(len(part)))[:, 0, 0, 0]
        assert torch.equal(part.labels == 0, pixels >= 50)


@pytest.mark.parametrize("name", ["test", "val"])
def test_takes_the_trees_of_a_split_root(tmp_path: Path, make_images: Any, name: str, user_error: Any) -> None:
    for k, kind in enumerate(("ant", "cat")):
        make_images(tmp_path / "train" / kind, 3, first=10 * k)
        make_images(tmp_path / name / kind, 1, first=100 + 10 * k)
    data = folder.load(tmp_path, Settings(**SMALL))
    assert values(data.train) == {0, 1, 2, 10, 11, 12}
    assert values(data.test) == {100, 110}
    make_images(tmp_path / name / "bee", 1)
    with user_error("class 'bee'", tmp_path / name, "not in"):
        folder.load(tmp_path, Settings(**SMALL))


def test_takes_the_test_folder_asked_for(root: Path, tmp_path: Path, make_images: Any, user_error: Any) -> None:
    elsewhere = tmp_path / "elsewhere"
    make_images(elsewhere / "ant", 1, first=200)
    make_images(elsewhere / "cat", 1, first=201)
    data = folder.load(root, Settings(test_folder=str(elsewhere), **SMALL))
    assert values(data.test) == {200, 201}
    assert len(data.train) == 15
    with user_error("--test-folder is 'nowhere'"):
        folder.load(root, Settings(test_folder="nowhere", **SMALL))
    with user_error("among the classes"):
        folder.load(root, Settings(test_folder="cat", **SMALL))


def test_size_decides_the_augmentation(root: Path) -> None:
    small, large = folder.load(root, Settings(image_size=96)), folder.load(root, Settings(image_size=112))
    assert (small.augmentation, small.train.image_size, small.network_size) == ("cifar", (96, 96), 96)
    assert (large.augmentation, large.train.image_size, large.network_size) == ("imagenet", (128, 128), 112)


@pytest.mark.parametrize("limit", ["24", "0"])
def test_damaged_images_are_named_and_skipped(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, limit: str, own_cache: Path
) -> None:
    monkeypatch.setenv("DAYDREAM_RESIDENT_GB", limit)
    (root / "ant" / "ant_1.JPG").write_bytes(b"")
    (root / "cat" / "cat_7.png").write_text("not an image")
    with caplog.at_level("WARNING", logger="daydream"):
        data = folder.load(root, Settings(image_size=32))
    assert values(data.train) | values(data.test) == {*range(10), *range(50, 55)} - {7, 51}
    assert (data.train.counts() + data.test.counts()).tolist() == [4, 9]
    assert "skipped 2 of 15" in caplog.text
    assert "ant_1.JPG" in caplog.text
    assert "cat_7.png" in caplog.text
    (cached,) = own_cache.iterdir()  # what does not fit in memory is only tried, at a small size
    assert (cached.stat().st_size < 15 * 3 * 32 * 32) == (limit == "0")


def test_a_class_without_readable_images(root: Path, make_images: Any, user_error: Any) -> None:
    (root / "bee").mkdir()
    with user_error("class 'bee' has no readable image", root / "bee"):
        folder.load(root, Settings(**SMALL))
    (root / "bee" / "a.png").write_text("not an image")
    with user_error("class 'bee' has no readable image"):
        folder.load(root, Settings(**SMALL))
    make_images(root / "bee", 1)
    with user_error("class 'bee' has 1 readable image"):
        folder.load(root, Settings(**SMALL))


def test_wrong_roots(root: Path, tmp_path: Path, user_error: Any) -> None:
    with user_error("folder", "--root"):
        folder.load(None, Settings())
    with user_error("does not exist"):
        folder.load(tmp_path / "nowhere", Settings())
    with user_error("no folder per class", "found cat_0.png"):
        folder.load(root / "cat", Settings())
    with user_error("found a file"):
        folder.load(root / "cat" / "cat_0.png", Settings())
    with user_error("found a file"):
        folder.unlabeled(root / "cat" / "cat_0.png", Settings())


def test_wrong_settings(user_error: Any) -> None:
    for wrong in (0.0, 1.0, -0.1):
        with user_error("--test-share"):
            Settings(test_share=wrong)
    with user_error("--image-size is 7"):
        Settings(image_size=7)


def test_any_folder_is_a_pile(root: Path, make_images: Any, user_error: Any) -> None:
    make_images(root / "cat" / "more", 2, first=100)
    make_images(root, 1, first=200)
    make_images(root / ".thumbnails", 1, first=220)
    pile = folder.unlabeled(root, Settings(**SMALL))
    assert values(pile) == {*range(10), *range(50, 55), 100, 101, 200}
    assert pile.labels.unique().tolist() == [0]
    (root / "empty").mkdir()
    with user_error("no readable image", "found an empty folder"):
        folder.unlabeled(root / "empty", Settings(**SMALL))


LATIN = os.fsdecode(b"caf\xe9")
"""A name as an old disk may have it: not UTF-8, so Python holds it with a surrogate."""


def test_a_files_name_need_not_be_utf8(root: Path) -> None:
    (root / "cat" / "cat_3.png").rename(root / "cat" / f"{LATIN}.png")
    for _ in range(2):  # decoded, and from the cache
        data = folder.load(root, Settings(**SMALL))
        assert values(data.train) | values(data.test) == {*range(10), *range(50, 55)}
    (root / "ant").rename(root / LATIN)
    assert values(folder.unlabeled(root, Settings(**SMALL))) == {*range(10), *range(50, 55)}


def test_a_classes_name_must_be_utf8(root: Path, user_error: Any) -> None:
    (root / "ant").rename(root / LATIN)
    with user_error(r"the class folder 'caf\udce9' in", root, "not valid UTF-8: rename it"):
        folder.load(root, Settings(**SMALL))


def test_a_folder_that_cannot_be_read(root: Path, monkeypatch: pytest.MonkeyPatch, user_error: Any) -> None:
    with monkeypatch.context() as locked:
        lock_out(locked, root / "cat")
        with user_error(f"{root / 'cat'} cannot be read (Permission denied)"):
            folder.load(root, Settings(**SMALL))
    with monkeypatch.context() as locked:
        lock_out(locked, root)
        for read in (folder.load, folder.unlabeled):
            with user_error(f"{root} cannot be read (Permission denied)"):
                read(root, Settings(**SMALL))


def test_a_root_that_may_not_be_looked_into(root: Path, monkeypatch: pytest.MonkeyPatch, user_error: Any) -> None:
    """As with a folder of mode 000: nothing below it has a status."""
    stat = os.stat

    def status(path: Any, **how: Any) -> os.stat_result:
        if root in Path(os.fsdecode(path)).parents:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **how)

    monkeypatch.setattr(os, "stat", status)
    lock_out(monkeypatch, root)
    with user_error(f"{root} cannot be read (Permission denied)"):
        folder.load(root, Settings(**SMALL))
    with user_error(f"{root / 'cat'} cannot be read (Permission denied)"):
        folder.load(root / "cat", Settings(**SMALL))


def test_a_pile_goes_without_sub_folders_that_cannot_be_read(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lock_out(monkeypatch, root / "cat")
    with caplog.at_level("WARNING", logger="daydream"):
        assert values(folder.unlabeled(root, Settings(**SMALL))) == set(range(50, 55))
    assert f"skipped the folder {root / 'cat'}, which cannot be read: Permission denied" in caplog.text
