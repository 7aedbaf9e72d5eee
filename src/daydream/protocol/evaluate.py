"""Accuracy of a learner after a task: by its head (CNN) and by nearest means of exemplars (NME), in per cent.

Shapes: N test images, C classes seen, D feature dimensions, T tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Accuracy:
    """Top-1 and top-5 on all classes seen, top-1 on the classes of each task, on the newest and on all older ones."""

    top1: float
    top5: float
    per_task: tuple[float, ...]
    new: float
    old: float | None


def accuracy(scores: Tensor, labels: Tensor, sizes: Sequence[int]) -> Accuracy:
    """Judge scores [N, C] against labels [N]; `sizes` are the classes of each task so far, in order of arrival."""
    labels = labels.to(scores.device)
    ranked = scores.topk(min(5, scores.shape[1]), dim=1).indices == labels[:, None]
    right = ranked[:, 0].double()
    bounds = torch.tensor(sizes, device=scores.device).cumsum(0)
    task = torch.bucketize(labels, bounds, right=True)
    per_task = [percent(right[task == t]) for t in range(len(sizes))]
    old = right[task < len(sizes) - 1]
    return Accuracy(
        top1=percent(right),
        top5=percent(ranked.any(1).double()),
        per_task=tuple(per_task),
        new=per_task[-1],
        old=percent(old) if len(old) else None,
    )


def confusion(scores: Tensor, labels: Tensor) -> list[list[int]]:
    """Count, for each class (row) [C, C], what its images were taken for (column)."""
    classes = scores.shape[1]
    pairs = labels.to(scores.device) * classes + scores.argmax(1)
    counts: list[list[int]] = torch.bincount(pairs, minlength=classes**2).view(classes, classes).tolist()
    return counts


def nearest_mean_scores(features: Tensor, means: Tensor) -> Tensor:
    """Return -|z^ - m_c|^2 [N, C] for features [N, D] and unit means [C, D]: the nearest mean scores highest."""
    return 2 * (F.normalize(features.float(), dim=1) @ means.T - 1)


def forgetting(matrix: Sequence[Sequence[float]]) -> float | None:
    """Mean over old tasks of (best accuracy while it was known, before the end) - (accuracy at the end).

    `matrix[t][j]` is the accuracy on task j's classes after task t. None with a single task.
    """
    last = len(matrix) - 1
    drops = [max(matrix[t][j] for t in range(j, last)) - matrix[last][j] for j in range(last)]
    return sum(drops) / len(drops) if drops else None


def average(values: Sequence[float]) -> float:
    """Average accuracy: the mean over tasks of top-1 on all classes seen, base task included."""
    return sum(values) / len(values)


def percent(right: Tensor, places: int = 4) -> float:
    """Return the share of 1.0 among values [N], in per cent."""
    return round(100 * float(right.mean()), places)
