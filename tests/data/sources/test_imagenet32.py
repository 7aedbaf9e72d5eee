"""Downsampled ImageNet: ten batches, ranges of classes, and the pile."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from daydream.data.sources import class_slice, imagenet32
from daydream.data.sources.imagenet32 import BATCHES, Settings
from daydream.errors import UserError


def write(path: Path, ids: list[int]) -> None:
    """Write an image per id, each with its id as every pixel's value."""
    data = np.repeat(np.array(ids, np.uint8)[:, None], 3072, axis=1)
    path.write_bytes(pickle.dumps({"data": data, "labels": ids, "mean": data.mean(0)}, protocol=3))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number, name in enumerate(BATCHES):
        write(tmp_path / name, [1 + number % 5, 1 + (number + 2) % 5, 5])
    write(tmp_path / "val_data", [5, 4, 3, 2, 1])
    return tmp_path


def test_reads_all_batches(root: Path) -> None:
    data = imagenet32.load(root, Settings())
    assert data.train.pixels.shape == (30, 3, 32, 32)
    assert data.class_names == ("class-0001", "class-0002", "class-0003", "class-0004", "class-0005")
    assert data.train.labels.tolist()[:6] == [0, 2, 4, 1, 3, 4]
    for part in (data.train, data.test):
        pixels = part.pixels.fetch(torch.arange(len(part)))
        assert torch.equal(pixels, (part.labels + 1).to(torch.uint8).view(-1, 1, 1, 1).expand_as(pixels))


@pytest.mark.parametrize(("classes", "ids"), [("first:2", [1, 2]), ("0:2", [1, 2]), ("1:4", [2, 3, 4]), ("3:", [4, 5])])
def test_reads_a_range_of_classes(root: Path, classes: str, ids: list[int]) -> None:
    data = imagenet32.load(root, Settings(classes=classes))
    assert data.class_names == tuple(f"class-{i:04d}" for i in ids)
    assert sorted(data.test.labels.tolist()) == list(range(len(ids)))
    values = data.train.pixels.fetch(torch.arange(len(data.train)))[:, 0, 0, 0]
    assert torch.equal(values.long() - ids[0], data.train.labels)


def test_the_pile_needs_one_batch_and_no_validation_images(root: Path, user_error: Any) -> None:
    for name in (*BATCHES[3:], "val_data"):
        (root / name).unlink()
    pile = imagenet32.unlabeled(root, Settings(classes="4:5"))
    assert pile.pixels.shape == (4, 3, 32, 32)  # id 5 is once in each batch, and once more in the third
    assert pile.class_names == ("class-0005",)
    with user_error("lacks train_data_batch_4", "val_data"):
        imagenet32.load(root, Settings())


def test_class_ids_name_the_classes(root: Path) -> None:
    lines = [f"n{10 * number:08d} {number} a_word" for number in (5, 1, 7, 2, 3, 4)]
    (root / "map_clsloc.txt").write_text("\n".join(lines) + "\n")
    data = imagenet32.load(root, Settings(classes="1:3"))
    assert data.class_names == data.test.class_names == ("n00000020", "n00000030")
    assert imagenet32.unlabeled(root, Settings(classes="4:5")).class_names == ("n00000050",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n00000001 1 a\nn00000002\n", ["line 2"]),
        ("n00000001 1 a\nn00000002 1 b\n", ["line 2"]),
        ("kit_fox 1\n", ["line 1"]),
        ("n00000001 1\nn00000002 2\n", ["no line for class 3"]),
        ("", ["no line for class 1"]),
    ],
)
def test_wrong_class_ids(root: Path, text: str, words: list[str], user_error: Any) -> None:
    (root / "map_clsloc.txt").write_text(text)
    with user_error(root / "map_clsloc.txt", *words):
        imagenet32.unlabeled(root, Settings())


def test_the_arrays_hold_no_spare_rows(root: Path) -> None:
    pixels, _ = imagenet32._read([root / name for name in BATCHES], slice(0, 1))
    assert pixels.shape == (4, 3072)
    assert pixels.base is None


def test_missing_validation_images(root: Path, user_error: Any) -> None:
    (root / "val_data").unlink()
    with user_error("lacks val_data"):
        imagenet32.load(root, Settings())


def test_wrong_roots(tmp_path: Path, user_error: Any) -> None:
    with user_error("imagenet32", "--root"):
        imagenet32.load(None, Settings())
    with user_error("does not exist"):
        imagenet32.unlabeled(tmp_path / "nowhere", Settings())
    (tmp_path / "photos").mkdir()
    with user_error("no downsampled ImageNet", "found photos"):
        imagenet32.unlabeled(tmp_path, Settings())


def test_no_image_of_the_classes(root: Path, user_error: Any) -> None:
    with user_error("no image of --classes 7:9", "from 1 to 5"):
        imagenet32.load(root, Settings(classes="7:9"))


def test_truncated_batch(root: Path, user_error: Any) -> None:
    path = root / BATCHES[4]
    path.write_bytes(path.read_bytes()[:5000])
    with user_error(path, "truncated or damaged"):
        imagenet32.load(root, Settings())


def test_content_that_does_not_fit(root: Path, user_error: Any) -> None:
    write(root / BATCHES[0], [0, 1])
    with user_error(root / BATCHES[0], "count from 1"):
        imagenet32.load(root, Settings())
    (root / BATCHES[0]).write_bytes(pickle.dumps({"data": 1, "fine_labels": 2}))
    with user_error("has data, fine_labels"):
        imagenet32.load(root, Settings())


def test_a_class_without_test_images(root: Path, user_error: Any) -> None:
    write(root / "val_data", [1, 2, 3, 4])
    with user_error("class id 5", "val_data"):
        imagenet32.load(root, Settings())
    assert len(imagenet32.load(root, Settings(classes="first:4")).class_names) == 4


@pytest.mark.parametrize("text", ["x", "5:5", "6:2", "first:", "-1:4", "1:2:3", "100"])
def test_ranges_that_are_none(text: str) -> None:
    with pytest.raises(UserError, match="--classes is"):
        Settings(classes=text)


def test_ranges() -> None:
    assert class_slice.parse("", "classes") == slice(0, None)
    assert class_slice.parse(":7", "classes") == slice(0, 7)
