"""CIFAR-10 and CIFAR-100 from archives and folders, official and broken."""

import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from daydream.data.images import Dataset
from daydream.data.sources.cifar import CIFAR10, CIFAR100


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def write(folder: Path, contents: dict[str, dict[Any, Any]], keys: type) -> Path:
    folder.mkdir(parents=True)
    for name, content in contents.items():
        coded = {k.encode() if keys is bytes else k: v for k, v in content.items()}
        (folder / name).write_bytes(pickle.dumps(coded, protocol=2))
    return folder


def write_cifar100(place: Path, keys: type = bytes) -> Path:
    return write(
        place / "cifar-100-python",
        {
            "train": {"data": rows(6, 0), "fine_labels": [2, 1, 0, 0, 1, 2], "coarse_labels": [0] * 6},
            "test": {"data": rows(3, 1), "fine_labels": [0, 1, 2]},
            "meta": {"fine_label_names": [b"apple", b"bear", b"crab"], "coarse_label_names": [b"all"]},
        },
        keys,
    )


def write_cifar10(place: Path, keys: type = bytes) -> Path:
    batches = {f"data_batch_{i}": {"data": rows(2, i), "labels": [0, 1]} for i in range(1, 6)}
    others = {"test_batch": {"data": rows(2, 9), "labels": [1, 0]}, "batches.meta": {"label_names": [b"cat", b"dog"]}}
    return write(place / "cifar-10-batches-py", batches | others, keys)


def pack(folder: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, folder.name)
    return archive


def load100(root: Path | None) -> Dataset:
    return CIFAR100.load(root, CIFAR100.Settings())


def load10(root: Path | None) -> Dataset:
    return CIFAR10.load(root, CIFAR10.Settings())


def is_cifar100(data: Dataset) -> bool:
    expected = torch.from_numpy(rows(6, 0)).view(6, 3, 32, 32)
    return (
        torch.equal(data.train.pixels.fetch(torch.arange(6)), expected)
        and data.train.labels.tolist() == [2, 1, 0, 0, 1, 2]
        and data.test.labels.tolist() == [0, 1, 2]
        and data.class_names == ("apple", "bear", "crab")
    )


@pytest.mark.parametrize("keys", [bytes, str])
def test_reads_the_folder_and_the_folder_that_contains_it(tmp_path: Path, keys: type) -> None:
    folder = write_cifar100(tmp_path, keys)
    assert is_cifar100(load100(folder))
    assert is_cifar100(load100(tmp_path))


def test_reads_the_archive_and_the_folder_that_contains_it_without_extracting(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    archive = pack(write_cifar100(tmp_path), tmp_path / "root" / "cifar-100-python.tar.gz")
    assert is_cifar100(load100(archive))
    assert is_cifar100(load100(archive.parent))
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]


def test_a_part_of_the_classes_is_labelled_and_the_others_are_the_pile(tmp_path: Path, user_error: Any) -> None:
    root = write_cifar100(tmp_path)
    settings = CIFAR100.Settings(labelled="1:3")
    data, pile = CIFAR100.load(root, settings), CIFAR100.unlabeled(root, settings)
    every = torch.from_numpy(rows(6, 0)).view(6, 3, 32, 32)
    assert data.class_names == data.test.class_names == ("bear", "crab")
    assert data.train.labels.tolist() == [1, 0, 0, 1]  # of the labels 2, 1, 1, 2
    assert torch.equal(data.train.pixels.fetch(torch.arange(4)), every[[0, 1, 4, 5]])
    assert data.test.labels.tolist() == [0, 1]
    assert "classes 1:3 of CIFAR-100 alone" in data.note
    assert torch.equal(pile.pixels.fetch(torch.arange(2)), every[[2, 3]])
    assert pile.class_names == ("apple",)
    with user_error("--labelled is '0:4'", "CIFAR-100 has 3 classes"):
        CIFAR100.load(root, CIFAR100.Settings(labelled="0:4"))
    with user_error("all classes of CIFAR-100 are labelled", "--labelled 0:1"):
        CIFAR100.unlabeled(root, CIFAR100.Settings())


@pytest.mark.parametrize("packed", [False, True])
def test_reads_cifar10_in_the_order_of_its_batches(tmp_path: Path, packed: bool) -> None:
    root = write_cifar10(tmp_path)
    if packed:
        root = pack(root, tmp_path / "cifar-10-python.tar.gz")
    data = load10(root)
    expected = np.concatenate([rows(2, i) for i in range(1, 6)]).reshape(10, 3, 32, 32)
    assert np.array_equal(data.train.pixels.fetch(torch.arange(10)).numpy(), expected)
    assert data.class_names == ("cat", "dog")
    assert data.test.labels.tolist() == [1, 0]
    assert data.augmentation == "cifar"


def test_root_not_given_or_missing(tmp_path: Path, user_error: Any) -> None:
    with user_error("cifar100", "--root", "cs.toronto.edu"):
        load100(None)
    with user_error(tmp_path / "nowhere", "does not exist"):
        load100(tmp_path / "nowhere")


def test_root_of_another_data_set(tmp_path: Path, user_error: Any) -> None:
    ten, hundred = write_cifar10(tmp_path / "10"), write_cifar100(tmp_path / "100")
    with user_error("no CIFAR-100", "expected cifar-100-python.tar.gz", "found batches.meta, data_batch_1"):
        load100(ten)
    with user_error("no CIFAR-10:", "found meta, test, train"):
        load10(hundred)
    with user_error("no CIFAR-100", "found cifar-10-batches-py/batches.meta"):
        load100(pack(ten, tmp_path / "cifar-10-python.tar.gz"))
    (tmp_path / "empty").mkdir()
    with user_error("found an empty folder"):
        load100(tmp_path / "empty")


def test_a_file_that_is_no_archive(tmp_path: Path, user_error: Any) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with user_error("notes.txt", "no tar archive"):
        load100(tmp_path / "notes.txt")


@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_truncated_archive(tmp_path: Path, share: float, user_error: Any) -> None:
    archive = pack(write_cifar100(tmp_path), tmp_path / "cifar-100-python.tar.gz")
    raw = archive.read_bytes()
    archive.write_bytes(raw[: int(share * len(raw))])
    with user_error(archive, "truncated", "download"):
        load100(archive)


def test_truncated_pickle_and_missing_file(tmp_path: Path, user_error: Any) -> None:
    folder = write_cifar100(tmp_path)
    raw = (folder / "train").read_bytes()
    (folder / "train").write_bytes(raw[: len(raw) // 2])
    with user_error(folder / "train", "truncated or damaged; download it again"):
        load100(folder)
    (folder / "test").unlink()
    (folder / "train").write_bytes(raw)
    with user_error(folder, "lacks the file 'test'"):
        load100(folder)


@pytest.mark.parametrize("packed", [False, True])
def test_hostile_pickle_is_not_run(tmp_path: Path, packed: bool, user_error: Any) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'mark'}",)

    root = write_cifar100(tmp_path)
    (root / "test").write_bytes(pickle.dumps(Hostile()))
    with user_error("test", "system", "was not read"):
        load100(pack(root, tmp_path / "a.tar.gz") if packed else root)
    assert not (tmp_path / "mark").exists()


def test_links_in_an_archive_are_not_followed(tmp_path: Path, user_error: Any) -> None:
    folder = write_cifar100(tmp_path)
    (folder / "test").rename(tmp_path / "outside")
    (folder / "test").symlink_to(tmp_path / "outside")
    with user_error("expected cifar-100-python/test"):
        load100(pack(folder, tmp_path / "a.tar.gz"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"data": rows(2, 0), "labels": [0, 1]}, ["'fine_labels'", "has data, labels"]),
        ({"data": rows(2, 0), "fine_labels": [0]}, ["2 images"]),
        ({"data": rows(2, 0), "fine_labels": [0, 3]}, ["3 classes"]),
        ({"data": rows(2, 0), "fine_labels": [0, -1]}, ["3 classes"]),
        ({"data": rows(2, 0), "fine_labels": ["a", "b"]}, ["whole numbers"]),
        ({"data": rows(2, 0), "fine_labels": [[0], [1, 2]]}, ["whole numbers"]),
        ({"data": rows(2, 0)[:, :100], "fine_labels": [0, 1]}, ["(2, 100)"]),
        ({"data": rows(2, 0).astype(float), "fine_labels": [0, 1]}, ["float64"]),
    ],
)
def test_content_that_does_not_fit(tmp_path: Path, content: dict[str, Any], words: list[str], user_error: Any) -> None:
    folder = write_cifar100(tmp_path)
    (folder / "train").write_bytes(pickle.dumps(content))
    with user_error("train", *words):
        load100(folder)
