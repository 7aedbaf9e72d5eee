"""The unlabelled pile: where it comes from, which classes, at what size, and the list of CIFAR-100's classes."""

import json
import logging
import pickle
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from daydream.data import unlabeled
from daydream.data.decoded import Decoded
from daydream.data.images import ImageSet, Resident
from daydream.data.sources import imagenet_subset, tiny_imagenet
from daydream.data.sources.class_slice import Labelled
from daydream.data.sources.shapes import shapes
from daydream.data.unlabeled import PileSource, classes_in_cifar100, load_pile

FROG, BEE, TABBY, MOWER, UMBRELLA = "n01641577", "n02206856", "n02123045", "n03649909", "n04507155"
WNIDS = (FROG, TABBY, BEE, MOWER, UMBRELLA)
"""Sorted; the third and the fourth are also in CIFAR-100."""
SHAPES = shapes.Settings(classes=2, train_per_class=1, test_per_class=1, image_size=16, pile_size=6)


def pile(unlabeled: str = "", data: str = "cifar100", size: int = 32, **settings: Any) -> ImageSet:
    """Load a pile for a data set whose root and settings play no part, and check what holds of any pile."""
    images = load_pile(PileSource(unlabeled=unlabeled, **settings), data, None, None, size)
    assert images.image_size == (size, size)
    assert images.class_names == ("unlabelled",)
    assert images.labels.dtype == torch.int64
    assert not images.labels.any()
    return images


def greys(images: ImageSet) -> list[int]:
    """Return each image's value; the images of these tests are plain."""
    pixels = images.pixels.fetch(torch.arange(len(images)))
    assert pixels.dtype == torch.uint8
    assert torch.equal(pixels, pixels[:, :1, :1, :1].expand_as(pixels))
    return pixels[:, 0, 0, 0].tolist()


def write_batch(path: Path, ids: list[int], **labels: Any) -> None:
    data = np.repeat(np.array(ids, np.uint8)[:, None], 3072, axis=1)
    path.write_bytes(pickle.dumps({"data": data, "labels": ids, **labels}, protocol=3))


@pytest.fixture
def imagenet32(tmp_path: Path) -> str:
    """Write a batch whose images have their class ids as values; the ids' order is not that of the WordNet ids."""
    root = tmp_path / "imagenet32"
    root.mkdir()
    write_batch(root / "train_data_batch_1", [5, 4, 3, 2, 1, 1])
    lines = [f"{wnid} {number} word" for number, wnid in enumerate(reversed(WNIDS), 1)]
    (root / "map_clsloc.txt").write_text("\n".join(lines))
    return f"imagenet32:{root}"


@pytest.fixture
def tiny(tmp_path: Path, make_images: Any) -> Path:
    """Write two images of each class, of the greys 10k and 10k+1; only the words of classes are readable names."""
    tree = tmp_path / "tiny-imagenet-200"
    for k, wnid in enumerate(WNIDS):
        make_images(tree / "train" / wnid / "images", 2, first=10 * k, suffix="JPEG")
    (tree / "val").mkdir()
    (tree / "val" / "val_annotations.txt").touch()
    (tree / "words.txt").write_text("".join(f"{wnid}\tword{k}\n" for k, wnid in enumerate(WNIDS)))
    return tree


@pytest.fixture
def ilsvrc(tmp_path: Path, make_images: Any) -> Path:
    """Write an ImageNet tree of 105 classes: 100 made up, which come first and are labelled by default, and WNIDS."""
    for k, wnid in enumerate([f"n00000{number:03d}" for number in range(100)] + list(WNIDS)):
        for part in ("train", "val"):
            make_images(tmp_path / part / wnid, 1, first=k, size=(48, 40), suffix="JPEG")
    return tmp_path


def test_a_data_sets_own_pile(tiny: Path) -> None:
    own = load_pile(PileSource(), "shapes", None, SHAPES, 16)
    expected = shapes.unlabeled(None, SHAPES)
    assert torch.equal(own.pixels.fetch(torch.arange(6)), expected.pixels.fetch(torch.arange(6)))
    settings = tiny_imagenet.Settings(labelled="1:3")
    for text in ("", "tiny-imagenet", f"tiny-imagenet:{tiny}"):
        root = None if ":" in text else tiny
        images = load_pile(PileSource(unlabeled=text), "tiny-imagenet", root, settings, 64)
        assert greys(images) == [0, 1, 30, 31, 40, 41]
        assert images.class_names == ("unlabelled",)
        assert not images.labels.any()


def test_own_piles_of_imagenet_subset(ilsvrc: Path) -> None:
    settings = imagenet_subset.Settings(labelled="0:102", image_size=28)
    assert greys(load_pile(PileSource(), "imagenet-subset", ilsvrc, settings, 32)) == [102, 103, 104]
    ec = load_pile(PileSource(pile_exclude="cifar100"), "imagenet-subset", ilsvrc, settings, 32)
    assert greys(ec) == [104]


@pytest.mark.parametrize("data", ["cifar100", "cifar10", "imagenet32", "folder"])
def test_data_sets_without_a_pile(data: str, user_error: Any) -> None:
    with user_error(f"'{data}' has no unlabelled images of its own", "--unlabeled NAME:DIR"):
        pile(data=data)


def test_nothing_is_left_unlabelled(tiny: Path, user_error: Any) -> None:
    with user_error("'tiny-imagenet' has no unlabelled images of its own", "--unlabeled NAME:DIR", "--labelled 0:50"):
        load_pile(PileSource(), "tiny-imagenet", tiny, tiny_imagenet.Settings(), 64)
    with user_error("all classes of", "none is left unlabelled", "--labelled 0:2"):
        load_pile(PileSource(), "tiny-imagenet", tiny, tiny_imagenet.Settings(labelled="0:5"), 64)


def test_another_copy_of_the_data_set_is_named(tiny: Path, tmp_path: Path, user_error: Any) -> None:
    missing = PileSource(unlabeled=f"tiny-imagenet:{tmp_path / 'nowhere'}")
    with user_error(f"--unlabeled tiny-imagenet:{tmp_path / 'nowhere'} does not exist"):
        load_pile(missing, "tiny-imagenet", tiny, tiny_imagenet.Settings(labelled="1:3"), 64)


def test_imagenet32_and_its_classes(imagenet32: str) -> None:
    assert greys(pile(imagenet32)) == [5, 4, 3, 2, 1, 1]
    assert greys(pile(imagenet32, pile_classes=2)) == [2, 1, 1]
    assert greys(pile(imagenet32, pile_exclude="cifar100")) == [5, 4, 1, 1]
    assert greys(pile(imagenet32, pile_exclude="cifar100", pile_classes=2)) == [4, 1, 1]


def test_imagenet32_without_class_ids(imagenet32: str, user_error: Any) -> None:
    Path(imagenet32.partition(":")[2], "map_clsloc.txt").unlink()
    assert greys(pile(imagenet32, pile_classes=1)) == [1, 1]
    with user_error("--pile-exclude cifar100", "lacks map_clsloc.txt"):
        pile(imagenet32, pile_exclude="cifar100")


def test_tiny_imagenet_is_borrowed_whole(tiny: Path) -> None:
    name = f"tiny-imagenet:{tiny}"
    assert greys(pile(name, size=64)) == [10 * k + i for k in range(5) for i in range(2)]
    assert greys(pile(name, pile_exclude="cifar100")) == [0, 1, 10, 11, 40, 41]
    assert greys(pile(name, pile_exclude="cifar100", pile_classes=1)) == [0, 1]


def test_imagenet_subset_lends_what_it_leaves_unlabelled(ilsvrc: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "daydream")
    assert greys(pile(f"imagenet-subset:{ilsvrc}")) == [100, 101, 102, 103, 104]
    assert greys(pile(f"imagenet-subset:{ilsvrc}", pile_exclude="cifar100")) == [100, 101, 104]
    assert "resized" not in caplog.text  # it is decoded at the wanted size


@pytest.fixture
def cifar10(tmp_path: Path) -> Path:
    """Write two training images of each of five batches: one of the batch's class, one of class 0."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for number in range(1, 6):
        write_batch(folder / f"data_batch_{number}", [number, 0])
    write_batch(folder / "test_batch", [9])
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    return tmp_path


def test_cifars_own_pile_is_what_it_leaves_unlabelled(cifar10: Path) -> None:
    settings = Labelled(labelled="1:4")
    for text in ("", "cifar10", f"cifar10:{cifar10}"):
        root = None if ":" in text else cifar10
        assert greys(load_pile(PileSource(unlabeled=text), "cifar10", root, settings, 32)) == [0, 0, 0, 4, 0, 5, 0]


def test_cifar_lends_its_training_images(cifar10: Path, user_error: Any) -> None:
    name = f"cifar10:{cifar10}"
    assert greys(pile(name)) == [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]
    assert greys(pile(name, pile_classes=2)) == [1, 0, 0, 0, 0, 0]
    with user_error("--pile-exclude cifar100", "'cifar10' has the class 'a'"):
        pile(name, pile_exclude="cifar100")


@pytest.mark.parametrize("size", [24, 256])
def test_a_folder_is_decoded_at_the_wanted_size(
    size: int, tmp_path: Path, make_images: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "daydream")
    make_images(tmp_path, 2, first=7, size=(50, 40))
    make_images(tmp_path / "nested" / "deep", 1, first=90)
    assert greys(pile(f"folder:{tmp_path}", size=size)) == [7, 8, 90]
    assert "resized" not in caplog.text


def test_a_folder_between_two_conventions_is_resized(tmp_path: Path, make_images: Any) -> None:
    make_images(tmp_path, 1, first=7)
    assert greys(pile(f"folder:{tmp_path}", size=100)) == [7]


def test_shapes_need_no_folder() -> None:
    assert len(pile("shapes", size=8)) == shapes.Settings().pile_size


@pytest.mark.parametrize(("size", "chunk"), [(16, 1024), (32, 2), (80, 1)])
def test_other_sizes_are_resized(
    size: int, chunk: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "daydream")
    monkeypatch.setattr(unlabeled, "CHUNK", chunk)
    stored = torch.arange(5, dtype=torch.uint8).view(5, 1, 1, 1).expand(5, 3, 64, 64).clone()
    stored[0, :, :, 32:] = 255
    pixels = unlabeled._resized(Resident(stored), size)
    assert pixels.shape == (5, 3, size, size)
    images = pixels.fetch(torch.arange(5))
    assert images[1:, 0, size // 2, size // 2].tolist() == [1, 2, 3, 4]
    assert images[0, 0, 0, 0] == 0
    assert images[0, 2, -1, -1] == 255
    assert [record.getMessage() for record in caplog.records] == [
        f"the pile's images are resized from 64x64 to {size}x{size} pixels"
    ]
    assert unlabeled._resized(pixels, size) is pixels


@pytest.mark.parametrize("limit", ["0", "0.00002"])
def test_sets_too_large_for_memory_are_decoded_at_the_size(
    limit: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYDREAM_RESIDENT_GB", limit)  # too small for anything; too small for 64 pixels, not for 16
    images = pile(f"tiny-imagenet:{tiny}", size=16)
    assert isinstance(images.pixels, Decoded if limit == "0" else Resident)
    assert greys(images)[-2:] == [40, 41]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("imagnet32:x", ["unknown data set 'imagnet32'", "did you mean 'imagenet32'"]),
        ("/data/pictures", ["unknown data set '/data/pictures'"]),
        ("imagenet32", ["needs --unlabeled imagenet32:DIR"]),
        ("imagenet32:", ["needs --unlabeled imagenet32:DIR"]),
        ("folder", ["needs --unlabeled folder:DIR"]),
        ("cifar10:/nowhere", ["--unlabeled cifar10:/nowhere does not exist"]),
        ("tiny-imagenet:EMPTY", ["--unlabeled tiny-imagenet:EMPTY holds no Tiny-ImageNet"]),
        ("folder:EMPTY", ["--unlabeled folder:EMPTY holds no readable image"]),
    ],
)
def test_wrong_sources(text: str, words: list[str], tmp_path: Path, user_error: Any) -> None:
    with user_error(*(word.replace("EMPTY", str(tmp_path)) for word in words)):
        pile(text.replace("EMPTY", str(tmp_path)))


def test_wrong_choices_of_classes(imagenet32: str, tmp_path: Path, make_images: Any, user_error: Any) -> None:
    for number in (0, -3):
        with user_error(f"--pile-classes is {number}", "1 or more"):
            PileSource(pile_classes=number)
    with user_error("--pile-classes is 6", "'imagenet32' has 5 classes"):
        pile(imagenet32, pile_classes=6)
    with user_error("--pile-classes is 4", "has 3 classes left"):
        pile(imagenet32, pile_classes=4, pile_exclude="cifar100")
    make_images(tmp_path / "photos", 1)
    with user_error("--pile-exclude cifar100", "'folder' has the class 'unlabelled'"):
        pile(f"folder:{tmp_path / 'photos'}", pile_exclude="cifar100")


def test_nothing_is_left_of_a_pile(imagenet32: str, user_error: Any) -> None:
    write_batch(Path(imagenet32.partition(":")[2], "train_data_batch_1"), [2, 3])
    with user_error("no image is left", "imagenet32"):
        pile(imagenet32, pile_exclude="cifar100")


def test_the_list_of_cifar100s_classes() -> None:
    listed = json.loads(resources.files("daydream.data").joinpath("cifar100_in_imagenet.json").read_text())
    assert isinstance(listed.pop("about"), str)
    assert len(listed) == 100
    assert list(listed) == sorted(listed)
    wnids = [wnid for ids in listed.values() for wnid in ids]
    assert all(re.fullmatch(r"n\d{8}", wnid) for wnid in wnids)
    assert len(wnids) == len(set(wnids)) == len(classes_in_cifar100())
    assert {BEE, MOWER} <= classes_in_cifar100()
    assert not {FROG, TABBY, UMBRELLA} & classes_in_cifar100()
    assert listed["mouse"] == []  # ImageNet's only mouse is a computer's


def test_the_settings_import_no_torch() -> None:
    code = "import sys, daydream.data.unlabeled; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
