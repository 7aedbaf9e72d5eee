"""The stream: class orders, task sizes, labels by arrival, held-out images."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from daydream.data.images import Dataset, ImageSet, Resident
from daydream.errors import UserError
from daydream.protocol.stream import (
    arrival,
    class_order,
    hold_out,
    make_stream,
    named_orders,
    places_in_class,
    task_sizes,
)


def numbered(counts: list[int], seed: int = 0) -> ImageSet:
    """Images that carry their own number in their first pixels, classes mixed."""
    labels = torch.cat([torch.full((n,), c) for c, n in enumerate(counts)])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    number = torch.arange(len(labels))
    pixels = torch.stack([number % 256, number // 256, labels], dim=1).to(torch.uint8)[:, :, None, None]
    return ImageSet(Resident(pixels), labels, tuple(f"name{c}" for c in range(len(counts))))


def numbers(images: ImageSet) -> list[int]:
    pixels = images.pixels.fetch(torch.arange(len(images))).long()[:, :, 0, 0]
    return (pixels[:, 0] + 256 * pixels[:, 1]).tolist()


def classes_in_pixels(images: ImageSet) -> list[int]:
    return images.pixels.fetch(torch.arange(len(images)))[:, 2, 0, 0].tolist()


def dataset(train: list[int], test: list[int]) -> Dataset:
    return Dataset("toy", numbered(train), numbered(test, 1), (0.5,) * 3, (0.2,) * 3, "cifar")


# --- orders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("icarl", [87, 0, 52, 58, 44, 91]),
        ("paper-1", [87, 0, 52, 58, 44, 91]),
        ("paper-2", [58, 30, 93, 69]),
        ("paper-3", [71, 54, 45, 32]),
        ("lucir", [68, 56, 78, 8, 23, 84]),
    ],
)
def test_named_orders_start_as_published_and_are_permutations(name: str, start: list[int]) -> None:
    order = class_order(name, 100)
    assert order[: len(start)] == start
    assert sorted(order) == list(range(100))
    assert name in named_orders()


def test_all_named_orders_are_tested() -> None:
    assert set(named_orders()) == {"icarl", "paper-1", "paper-2", "paper-3", "lucir"}
    assert class_order("icarl", 100) == class_order("paper-1", 100)


def test_lucir_is_numpys_shuffle_by_1993() -> None:
    order = np.arange(100)
    np.random.RandomState(1993).shuffle(order)
    assert class_order("lucir", 100) == order.tolist()


def test_natural_is_natural() -> None:
    assert class_order("natural", 7) == list(range(7))


@settings(deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 200))
def test_a_seeded_order_is_a_permutation_and_always_the_same(seed: int, classes: int) -> None:
    order = class_order(f"seed:{seed}", classes)
    assert sorted(order) == list(range(classes))
    torch.manual_seed(seed + 1)
    assert class_order(f"seed:{seed}", classes) == order


def test_seeds_differ() -> None:
    assert len({tuple(class_order(f"seed:{s}", 30)) for s in range(5)}) == 5


@pytest.mark.parametrize("text", ["2 0 1 3", "2,0,1,3\n", "[2, 0,\n1, 3]"])
def test_an_order_from_a_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "order").write_text(text)
    assert class_order(str(tmp_path / "order"), 4) == [2, 0, 1, 3]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"2 0 1", "each class from 0 to 3 once; it holds 3"),
        (b"2 0 1 1", "each class from 0 to 3 once"),
        (b"1 2 3 4", "each class from 0 to 3 once"),
        (b"0 1 2 3 4", "each class from 0 to 3 once; it holds 5"),
        (b"0 1 2 x", "must hold class numbers"),
        (b"0 1 2 -3", "must hold class numbers"),
        ("0 1 2 ³".encode(), "must hold class numbers"),
        (b"\xff\xd8\xff\xe0", "must hold class numbers"),
        (b"", "each class"),
    ],
)
def test_a_file_that_is_no_order_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "order").write_bytes(content)
    with pytest.raises(UserError, match=why):
        class_order(str(tmp_path / "order"), 4)


@pytest.mark.parametrize("name", ["seed:", "seed:x", "seed:-1", "seed:1.5", "seed:²"])
def test_a_seed_that_is_no_number_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="whole number"):
        class_order(name, 4)


def test_an_order_of_another_number_of_classes_is_refused() -> None:
    with pytest.raises(UserError, match="icarl orders 100 classes, but the data set has 10"):
        class_order("icarl", 10)


def test_an_unknown_order_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'icral'; did you mean 'icarl'\? .*natural.*seed:N"):
        class_order("icral", 100)


# --- task sizes ------------------------------------------------------------------------------------------------------


def test_the_papers_task_sizes() -> None:
    assert task_sizes(100, 50, 5) == (50, 10, 10, 10, 10, 10)
    assert task_sizes(100, 50, 10) == (50, *[5] * 10)
    assert task_sizes(100, 10, 9) == (10,) * 10
    assert task_sizes(7, 7, 0) == (7,)


@given(st.integers(1, 120), st.integers(-1, 121), st.integers(-1, 121))
def test_task_sizes_add_up_or_say_why(classes: int, base: int, steps: int) -> None:
    fits = 1 <= base <= classes and (steps == 0 if base == classes else steps >= 1 and (classes - base) % steps == 0)
    if not fits:
        with pytest.raises(UserError, match=f"--base {base} "):
            task_sizes(classes, base, steps)
    else:
        sizes = task_sizes(classes, base, steps)
        assert (sum(sizes), len(sizes), sizes[0]) == (classes, steps + 1, base)
        assert len(set(sizes[1:])) <= 1


@pytest.mark.parametrize(
    ("base", "steps", "why"),
    [
        (0, 5, "between 1 and the 10 classes"),
        (11, 5, "between 1 and the 10 classes"),
        (4, 4, "leaves 6 of 10 classes, which --steps 4 does not divide; steps that do: 1, 2, 3, 6"),
        (4, 0, "steps that do: 1, 2, 3, 6"),
        (10, 2, "steps that do: 0"),
    ],
)
def test_sizes_that_do_not_fit_are_explained(base: int, steps: int, why: str) -> None:
    with pytest.raises(UserError, match=why):
        task_sizes(10, base, steps)


# --- places in a class ---------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 4), max_size=20))
def test_places_in_class_count_equal_labels_before(labels: list[int]) -> None:
    found = places_in_class(torch.tensor(labels, dtype=torch.int64))
    assert found.tolist() == [labels[:i].count(label) for i, label in enumerate(labels)]


# --- labels by arrival -----------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(st.permutations(range(6)))
def test_labels_count_classes_in_order_of_arrival(order: list[int]) -> None:
    images = numbered([3, 1, 4, 1, 5, 2])
    found = arrival(images, order)
    assert found.class_names == tuple(f"name{c}" for c in order)
    for label, original in zip(found.labels.tolist(), images.labels.tolist(), strict=True):
        assert order[label] == original
    assert numbers(found) == numbers(images)


def test_tasks_hold_their_classes_and_nothing_else() -> None:
    order = [4, 0, 3, 1, 5, 2]
    stream = make_stream(dataset([5, 6, 7, 8, 9, 10], [2, 1, 3, 2, 1, 2]), order, base=2, steps=2)
    assert len(stream) == 3
    arrived: list[int] = []
    for index in range(3):
        task = stream.task(index)
        new = order[2 * index : 2 * index + 2]
        arrived += new
        assert (task.index, task.num_old, task.num_new, task.num_seen) == (index, 2 * index, 2, 2 * index + 2)
        assert task.num_classes == 6
        assert (task.is_base, task.is_last, task.num_tasks) == (index == 0, index == 2, 3)
        assert set(classes_in_pixels(task.train)) == set(new)
        assert len(task.train) == sum([5, 6, 7, 8, 9, 10][c] for c in new)
        assert [order[label] for label in task.train.labels.tolist()] == classes_in_pixels(task.train)
        assert set(classes_in_pixels(task.seen)) == set(arrived)
        test = stream.test_seen(index)
        assert set(classes_in_pixels(test)) == set(arrived)
        assert len(test) == sum([2, 1, 3, 2, 1, 2][c] for c in arrived)
        assert [order[label] for label in test.labels.tolist()] == classes_in_pixels(test)


def test_merged_is_the_same_data_as_one_task() -> None:
    stream = make_stream(dataset([4] * 6, [2] * 6), [5, 4, 3, 2, 1, 0], base=2, steps=2)
    merged = stream.merged()
    assert merged.sizes == (6,)
    task = merged.task(0)
    assert task.is_base
    assert task.is_last
    assert numbers(task.train) == numbers(stream.train)
    assert numbers(merged.test_seen(0)) == numbers(stream.test)
    assert torch.equal(task.train.labels, stream.train.labels)


def test_merged_may_stop_after_some_tasks() -> None:
    stream = make_stream(dataset([4] * 6, [2] * 6), [5, 4, 3, 2, 1, 0], base=2, steps=2)
    merged = stream.merged(2)
    assert merged.sizes == (4,)
    assert numbers(merged.train) == numbers(stream.task(1).seen)
    assert numbers(merged.test) == numbers(stream.test_seen(1))
    assert merged.task(0).num_classes == 4


# --- held-out images -------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(2, 40), min_size=1, max_size=5), st.sampled_from([0.1, 0.2, 0.25, 0.5]))
def test_each_class_gives_its_share(counts: list[int], share: float) -> None:
    images = numbered(counts)
    rest, held = hold_out(images, share)
    for count, kept in zip(counts, held.counts().tolist(), strict=True):
        assert abs(kept - share * count) <= 0.5 or kept == 1
        assert kept >= 1
    both = sorted(numbers(rest) + numbers(held))
    assert both == list(range(len(images)))
    for part in (rest, held):
        assert classes_in_pixels(part) == part.labels.tolist()
        assert numbers(part) == sorted(numbers(part))


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 1000), st.permutations(range(4)), st.integers(1, 3))
def test_the_same_images_are_held_out_whatever_the_run(seed: int, order: list[int], base: int) -> None:
    assume(base < 4)
    data = dataset([10, 12, 14, 16], [1, 1, 1, 1])
    torch.manual_seed(seed)
    stream = make_stream(data, order, base=base, steps=4 - base, validation=0.25)
    rest, held = hold_out(data.train, 0.25)
    assert numbers(stream.test) == numbers(held)
    assert numbers(stream.train) == numbers(rest)
    assert [order[label] for label in stream.test.labels.tolist()] == held.labels.tolist()


def test_a_held_out_choice_is_mixed() -> None:
    _, held = hold_out(numbered([100]), 0.2)
    assert len(held) == 20
    assert numbers(held) != list(range(20))
    assert max(numbers(held)) > 50


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(UserError, match="share of the training images"):
        make_stream(dataset([4, 4], [1, 1]), [0, 1], 1, 1, validation=share)


def test_a_class_left_empty_is_refused() -> None:
    with pytest.raises(UserError, match="leaves a class without training images"):
        hold_out(numbered([10, 1]), 0.2)


def test_classes_without_images_do_not_disturb() -> None:
    images = numbered([10, 0, 10])
    rest, held = hold_out(images, 0.2)
    assert held.counts().tolist() == [2, 0, 2]
    assert rest.counts().tolist() == [8, 0, 8]
