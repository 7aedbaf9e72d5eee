"""ImageNet-Subset: which classes are labelled, and that the others are the pile."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from daydream.data.decoded import Decoded
from daydream.data.sources import imagenet_subset
from daydream.data.sources.imagenet_subset import Settings, labelled_classes

WNIDS = [f"n{number:02d}" for number in range(6)]
SMALL = {"labelled": "0:2", "image_size": 28}


@pytest.fixture
def tree(tmp_path: Path, make_images: Any) -> Path:
    for k, wnid in enumerate(WNIDS):
        make_images(tmp_path / "train" / wnid, 2, first=10 * k, size=(50, 40), suffix="JPEG")
        make_images(tmp_path / "val" / wnid, 1, first=100 + 10 * k, size=(30, 60), suffix="JPEG")
    return tmp_path


def test_reads_the_first_classes_and_leaves_the_others_to_the_pile(tree: Path) -> None:
    settings = Settings(**SMALL)
    data, pile = imagenet_subset.load(tree, settings), imagenet_subset.unlabeled(tree, settings)
    assert data.train.pixels.shape == (4, 3, 32, 32)  # room for random crops of 28
    assert data.network_size == 28
    assert data.train.labels.tolist() == [0, 0, 1, 1]
    assert data.train.pixels.fetch(torch.arange(4))[:, 0, 0, 0].tolist() == [0, 1, 10, 11]
    assert data.test.pixels.fetch(torch.arange(2))[:, 0, 0, 0].tolist() == [100, 110]
    assert data.class_names == ("n00", "n01")
    assert data.augmentation == "imagenet"
    assert "first of the sorted class ids" in data.note
    assert pile.class_names == tuple(WNIDS[2:])
    assert pile.pixels.fetch(torch.arange(8))[:, 0, 0, 0].tolist() == [20, 21, 30, 31, 40, 41, 50, 51]


def test_a_set_too_large_for_memory_stays_on_disk(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resident = imagenet_subset.load(tree, Settings(**SMALL))
    monkeypatch.setenv("DAYDREAM_RESIDENT_GB", "0")
    data = imagenet_subset.load(tree, Settings(**SMALL))
    assert isinstance(data.train.pixels, Decoded)
    assert data.fingerprint() == resident.fingerprint()


def test_seed_1993_shuffles_as_other_code_does() -> None:
    wnids = [f"n{number:04d}" for number in range(1000)]
    chosen = labelled_classes(wnids, Settings(subset="seed1993"))
    np.random.seed(1993)
    order = np.arange(1000)
    np.random.shuffle(order)
    assert chosen == [wnids[i] for i in order[:100]]
    assert chosen[:5] == ["n0054", "n0007", "n0894", "n0512", "n0126"]
    assert labelled_classes(wnids, Settings()) == wnids[:100]


def test_classes_from_a_file(tree: Path, tmp_path: Path, user_error: Any) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text("n04\n\nn01 \n")
    data = imagenet_subset.load(tree, Settings(subset=str(listed), **SMALL))
    assert data.class_names == ("n04", "n01")
    assert str(listed) in data.note
    assert imagenet_subset.unlabeled(tree, Settings(subset=str(listed), **SMALL)).class_names == (
        "n00",
        "n02",
        "n03",
        "n05",
    )
    for text, word in (("n04\nn77\n", "'n77'"), ("n04\nn04\n", "twice"), ("n04\n", "--labelled is 0:2")):
        listed.write_text(text)
        with user_error(listed, word):
            imagenet_subset.load(tree, Settings(subset=str(listed), **SMALL))
    with user_error("--subset is 'frist'", "seed1993"):
        imagenet_subset.load(tree, Settings(subset="frist"))


def test_too_few_classes(tree: Path, user_error: Any) -> None:
    with user_error("--labelled is 0:100", "has 6"):
        imagenet_subset.load(tree, Settings())
    with user_error("none is left"):
        imagenet_subset.unlabeled(tree, Settings(labelled="0:6"))
    with user_error("--labelled is '2:1'"):
        Settings(labelled="2:1")
    with user_error("or more"):
        Settings(image_size=0)


def test_wrong_roots(tree: Path, tmp_path: Path, user_error: Any) -> None:
    with user_error("imagenet-subset", "--root"):
        imagenet_subset.load(None, Settings())
    with user_error("does not exist"):
        imagenet_subset.load(tmp_path / "nowhere", Settings())
    with user_error("no ImageNet tree", "found n00"):
        imagenet_subset.load(tree / "train", Settings())


def test_damaged_trees(tree: Path, user_error: Any) -> None:
    (tree / "val" / "n01" / "n01_0.JPEG").unlink()
    with user_error(tree / "val" / "n01", "holds no image"):
        imagenet_subset.load(tree, Settings(**SMALL))
    (tree / "train" / "n00" / "n00_1.JPEG").write_bytes(b"x")
    with user_error("n00_1.JPEG", "cannot be decoded"):
        imagenet_subset.load(tree, Settings(**SMALL))
