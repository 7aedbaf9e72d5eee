"""The image set: selecting, counting and naming images."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from daydream.data.images import Dataset, ImageSet, Resident

CPU = torch.device("cpu")


def numbered(labels: list[int], classes: int = 4, side: int = 2) -> ImageSet:
    pixels = torch.arange(len(labels)).to(torch.uint8).view(-1, 1, 1, 1).repeat(1, 3, side, side)
    return ImageSet(Resident(pixels), torch.tensor(labels), tuple(f"c{i}" for i in range(classes)))


def numbers(images: ImageSet) -> list[int]:
    return images.pixels.fetch(torch.arange(len(images)))[:, 0, 0, 0].tolist()


LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=20)


@settings(deadline=None)
@given(LABELS, st.sets(st.integers(0, 3)))
def test_of_classes_keeps_order(labels: list[int], wanted: set[int]) -> None:
    found = numbered(labels).of_classes(torch.tensor(sorted(wanted), dtype=torch.int64))
    assert numbers(found) == [i for i, label in enumerate(labels) if label in wanted]
    assert found.labels.tolist() == [label for label in labels if label in wanted]
    assert found.class_names == ("c0", "c1", "c2", "c3")


@settings(deadline=None)
@given(LABELS, st.data())
def test_select_follows_the_index(labels: list[int], data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(0, len(labels) - 1), max_size=10))
    found = numbered(labels).select(torch.tensor(index, dtype=torch.int64))
    assert numbers(found) == index
    assert found.labels.tolist() == [labels[i] for i in index]


@settings(deadline=None)
@given(LABELS)
def test_counts(labels: list[int]) -> None:
    assert numbered(labels).counts().tolist() == [labels.count(c) for c in range(4)]


def test_a_set_knows_its_size() -> None:
    images = numbered([0, 1, 2], side=5)
    assert (len(images), images.image_size, images.pixels.shape) == (3, (5, 5), (3, 3, 5, 5))
    assert images.to(CPU).pixels.device == CPU


def test_batches_are_fetches() -> None:
    pixels = numbered([0] * 10).pixels
    rows = torch.tensor([[3, 1, 4], [1, 5, 9]])
    assert [batch[:, 0, 0, 0].tolist() for batch in pixels.batches(rows)] == rows.tolist()


@pytest.mark.parametrize(
    "tensor", [torch.zeros(2, 3, 4, 4), torch.zeros(2, 1, 4, 4).byte(), torch.zeros(3, 4, 4).byte()]
)
def test_only_uint8_images_of_three_channels_are_resident(tensor: torch.Tensor) -> None:
    with pytest.raises(AssertionError):
        Resident(tensor)


def test_labels_and_images_must_be_as_many() -> None:
    with pytest.raises(AssertionError):
        ImageSet(numbered([0, 1]).pixels, torch.tensor([0]), ("a",))


def dataset(**changes: object) -> Dataset:
    made = Dataset("toy", numbered([0, 1, 2, 3]), numbered([3, 2]), (0.5,) * 3, (0.2,) * 3, "cifar")
    return dataclasses.replace(made, **changes)


def test_the_network_sees_the_crop_or_the_whole() -> None:
    assert dataset().network_size == 2
    assert dataset(crop=1).network_size == 1
    assert dataset().class_names == ("c0", "c1", "c2", "c3")


def test_a_fingerprint_is_stable_and_tells_data_apart() -> None:
    original = dataset()
    assert dataset().fingerprint() == original.fingerprint()
    pixels = numbered([3, 2]).pixels.fetch(torch.arange(2))
    pixels[1, 2, 1, 1] += 1
    changes = [
        dataset(name="other"),
        dataset(train=numbered([0, 1, 3, 2])),
        dataset(train=numbered([0, 1, 2])),
        dataset(train=numbered([0, 1, 2, 3], classes=5)),
        dataset(test=numbered([2, 3])),
        dataset(test=ImageSet(Resident(pixels), original.test.labels, original.class_names)),
    ]
    assert len({original.fingerprint(), *(d.fingerprint() for d in changes)}) == 7
    assert len(original.fingerprint()) == 16
