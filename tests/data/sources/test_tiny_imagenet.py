"""Tiny-ImageNet's official tree, whole or with some classes as the pile."""

from pathlib import Path
from typing import Any

import pytest
import torch

from daydream.data.images import ImageSet
from daydream.data.sources import tiny_imagenet
from daydream.data.sources.tiny_imagenet import Settings

WNIDS = ("n01", "n02", "n03", "n04")


@pytest.fixture
def tree(tmp_path: Path, make_images: Any) -> Path:
    """Class k has training images of the greys 10k, 10k+1, 10k+2 and validation images of 100+10k, 101+10k."""
    tree = tmp_path / "tiny-imagenet-200"
    lines = []
    for k, wnid in enumerate(WNIDS):
        make_images(tree / "train" / wnid / "images", 3, first=10 * k, suffix="JPEG")
        for path in make_images(tree / "val" / "scratch", 2, first=100 + 10 * k, suffix="JPEG"):
            name = f"val_{k}{path.name[-6]}.JPEG"
            (tree / "val" / "images").mkdir(exist_ok=True)
            path.rename(tree / "val" / "images" / name)
            lines.append(f"{name}\t{wnid}\t0\t0\t63\t63\n")
    (tree / "val" / "val_annotations.txt").write_text("".join(reversed(lines)))
    (tree / "wnids.txt").write_text("\n".join(reversed(WNIDS)))
    words = ("goldfish, Carassius", "crane", "crane, machine", "owl", "moon")
    (tree / "words.txt").write_text("".join(f"{w}\t{t}\n" for w, t in zip((*WNIDS, "n99"), words, strict=True)))
    return tree


def greys(images: ImageSet) -> list[tuple[int, int]]:
    """Pair each image's label with its grey value, which JPEG keeps for a plain image."""
    pixels = images.pixels.fetch(torch.arange(len(images)))
    assert pixels.shape[1:] == (3, 64, 64)
    return list(zip(images.labels.tolist(), pixels[:, 0, 32, 32].tolist(), strict=True))


def test_reads_the_whole_tree(tree: Path) -> None:
    data = tiny_imagenet.load(tree, Settings())
    assert greys(data.train) == [(k, 10 * k + i) for k in range(4) for i in range(3)]
    assert sorted(greys(data.test)) == [(k, 100 + 10 * k + i) for k in range(4) for i in range(2)]
    assert data.class_names == ("goldfish", "n02", "n03", "owl")  # two cranes are told apart by their ids
    assert data.note == ""
    assert tiny_imagenet.load(tree.parent, Settings()).fingerprint() == data.fingerprint()


def test_labelled_classes_and_the_pile_are_disjoint(tree: Path) -> None:
    settings = Settings(labelled="1:3")
    data, pile = tiny_imagenet.load(tree, settings), tiny_imagenet.unlabeled(tree, settings)
    assert greys(data.train) == [(k - 1, 10 * k + i) for k in (1, 2) for i in range(3)]
    assert sorted(greys(data.test)) == [(k - 1, 100 + 10 * k + i) for k in (1, 2) for i in range(2)]
    assert greys(pile) == [(label, 10 * k + i) for label, k in enumerate((0, 3)) for i in range(3)]
    assert pile.class_names == ("n01", "n04")
    assert "not ImageNet-Subset" in data.note


def test_another_data_sets_pile_is_the_whole_tree(tree: Path) -> None:
    assert greys(tiny_imagenet.whole(tree)) == greys(tiny_imagenet.load(tree, Settings()).train)
    assert tiny_imagenet.whole(tree.parent).class_names == WNIDS


def test_words_are_not_needed(tree: Path) -> None:
    (tree / "words.txt").unlink()
    assert tiny_imagenet.load(tree, Settings()).class_names == WNIDS


def test_no_class_is_left_for_the_pile(tree: Path, user_error: Any) -> None:
    with user_error("all classes of", "--labelled 0:2"):
        tiny_imagenet.unlabeled(tree, Settings())


def test_wrong_ranges(tree: Path, user_error: Any) -> None:
    with user_error("--labelled", "some"):
        Settings(labelled="some")
    with user_error("--labelled is '0:5'", "4 classes"):
        tiny_imagenet.load(tree, Settings(labelled="0:5"))
    with user_error("4 classes"):
        tiny_imagenet.load(tree, Settings(labelled="4:"))


def test_wrong_roots(tree: Path, tmp_path: Path, user_error: Any) -> None:
    with user_error("tiny-imagenet", "--root"):
        tiny_imagenet.load(None, Settings())
    with user_error("does not exist"):
        tiny_imagenet.load(tmp_path / "nowhere", Settings())
    with user_error("no Tiny-ImageNet", "found n01, n02"):
        tiny_imagenet.load(tree / "train", Settings())
    with user_error("found a file"):
        tiny_imagenet.load(tree / "words.txt", Settings())


def test_damaged_trees(tree: Path, user_error: Any) -> None:
    image = tree / "train" / "n02" / "images" / "images_1.JPEG"
    image.write_bytes(image.read_bytes()[:300])
    with user_error(image, "cannot be decoded"):
        tiny_imagenet.load(tree, Settings())
    for path in image.parent.iterdir():
        path.unlink()
    with user_error(image.parent, "holds no image"):
        tiny_imagenet.load(tree, Settings())


@pytest.mark.parametrize(
    ("text", "words"),
    [("val_0.JPEG n01\n", ["line 1"]), ("../x\tn01\n", ["line 1"]), ("val_00.JPEG\tn01\n", ["no image of class n02"])],
)
def test_damaged_annotations(tree: Path, text: str, words: list[str], user_error: Any) -> None:
    (tree / "val" / "val_annotations.txt").write_text(text)
    with user_error("val_annotations.txt", *words):
        tiny_imagenet.load(tree, Settings())
