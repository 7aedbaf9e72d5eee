"""Metrics against loops."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from daydream.protocol.evaluate import accuracy, average, confusion, forgetting, nearest_mean_scores


def share(right: list[bool]) -> float:
    return 100 * sum(right) / len(right)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 4), st.integers(0, 10**6))
def test_accuracy_is_the_count(sizes: list[int], per_class: int, seed: int) -> None:
    classes = sum(sizes)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat(per_class)
    labels = labels[torch.randperm(len(labels), generator=generator)]
    scores = torch.randn(len(labels), classes, generator=generator) + torch.eye(classes)[labels]

    task_of = [t for t, size in enumerate(sizes) for _ in range(size)]
    top1, top5 = [], []
    by_task: list[list[bool]] = [[] for _ in sizes]
    for row, label in zip(scores.tolist(), labels.tolist(), strict=True):
        place = sum(other > row[label] for other in row)
        top1.append(place == 0)
        top5.append(place < 5)
        by_task[task_of[label]].append(place == 0)

    found = accuracy(scores, labels, sizes)
    assert found.top1 == pytest.approx(share(top1), abs=1e-4)
    assert found.top5 == pytest.approx(share(top5), abs=1e-4)
    assert found.per_task == pytest.approx([share(r) for r in by_task], abs=1e-4)
    assert found.new == found.per_task[-1]
    if len(sizes) == 1:
        assert found.old is None
    else:
        assert found.old == pytest.approx(share([r for rights in by_task[:-1] for r in rights]), abs=1e-4)


def test_accuracy_by_hand() -> None:
    """Six classes in tasks of 2, 3 and 1; top-5 leaves one out."""
    labels = torch.tensor([0, 1, 2, 4, 5, 5])
    scores = torch.tensor(
        [
            [9.0, 1, 2, 3, 4, 5],  # right
            [9.0, 0, 2, 3, 4, 5],  # the worst of six: not even in the top five
            [1.0, 2, 9, 3, 4, 5],  # right
            [1.0, 2, 9, 3, 4, 5],  # third
            [1.0, 2, 9, 3, 4, 0],  # the worst
            [1.0, 2, 3, 4, 5, 9],  # right
        ]
    )
    found = accuracy(scores, labels, (2, 3, 1))
    assert (found.top1, found.per_task, found.new, found.old) == (50.0, (50.0, 50.0, 50.0), 50.0, 50.0)
    assert found.top5 == pytest.approx(100 * 4 / 6, abs=1e-4)


def test_nearest_means_are_squared_distances() -> None:
    generator = torch.Generator().manual_seed(1)
    features = 4 * torch.randn(5, 3, generator=generator)
    means = torch.nn.functional.normalize(torch.randn(4, 3, generator=generator), dim=1)
    found = nearest_mean_scores(features, means)
    for i, row in enumerate(features.tolist()):
        length = math.sqrt(sum(v * v for v in row))
        for c, mean in enumerate(means.tolist()):
            distance = sum((v / length - m) ** 2 for v, m in zip(row, mean, strict=True))
            assert float(found[i, c]) == pytest.approx(-distance, abs=1e-5)


@given(st.integers(1, 6), st.data())
def test_forgetting_is_the_mean_drop_from_the_best(tasks: int, data: st.DataObject) -> None:
    percent = st.floats(0, 100)
    matrix = [data.draw(st.lists(percent, min_size=t + 1, max_size=t + 1)) for t in range(tasks)]
    found = forgetting(matrix)
    if tasks == 1:
        assert found is None
        return
    total = 0.0
    for j in range(tasks - 1):
        best = -math.inf
        for t in range(j, tasks - 1):
            best = max(best, matrix[t][j])
        total += best - matrix[tasks - 1][j]
    assert found == pytest.approx(total / (tasks - 1))


def test_forgetting_by_hand() -> None:
    assert forgetting([[80.0], [70.0, 60.0], [75.0, 66.0, 90.0]]) == pytest.approx(((80 - 75) + (60 - 66)) / 2)


def test_the_average_counts_the_base_task() -> None:
    assert average([90.0, 60.0, 30.0]) == 60.0


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(1, 30), st.integers(0, 10**6))
def test_confusion_counts(classes: int, images: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (images,), generator=generator)
    scores = torch.randn(images, classes, generator=generator)
    counts = [[0] * classes for _ in range(classes)]
    for row, label in zip(scores.tolist(), labels.tolist(), strict=True):
        counts[label][row.index(max(row))] += 1
    assert confusion(scores, labels) == counts
