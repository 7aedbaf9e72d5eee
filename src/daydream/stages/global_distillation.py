"""What global distillation asks of tensors alone: which unlabelled images it takes, and what its three teachers say.

Shapes: B images of which the first n are labelled, C classes seen of which l are old, N unlabelled images.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from daydream.stages import losses as loss


def objective(
    scores: Tensor,
    labels: Tensor,
    previous: Tensor,
    current: Tensor,
    weights: Sequence[Tensor],
    strength: float,
    temperature: float,
) -> Mapping[str, Tensor]:
    """Return the losses of section 3.2 on scores [B, C], labels [n], and the answers of teachers, P [B, l] and C.

    An image's `weights` [B] are those among classes seen, old and new; `strength` is that of all three teachers.
    """
    count, size, (seen, old, new) = len(labels), len(scores), weights
    num_old, num_seen = previous.shape[1], scores.shape[1]
    outside = loss.divergence(loss.global_targets(previous[count:], current[count:]), scores[count:])
    of_old = loss.softened_divergence(previous, scores[:, :num_old], temperature)
    of_new = loss.softened_divergence(current, scores[:, num_old:], temperature)
    return {
        "ce": loss.weighted_cross_entropy(scores[:count], labels, seen[:count]) / size,
        "global": strength * outside.sum() / size,
        "previous": strength * num_old / num_seen * (old * of_old).mean(),
        "current": strength * (num_seen - num_old) / num_seen * (new * of_new).mean(),
    }


def balances(counts: Tensor, num_old: int) -> Tensor:
    """Return weights [3, C] by which classes count alike, from their images [C]: among all seen, old ones, new ones."""
    found = torch.ones(3, len(counts))
    for row, classes in zip(found, (slice(None), slice(num_old), slice(num_old, None)), strict=True):
        row[classes] = loss.class_balance(counts[classes])
    return found


def sampled(scores: Tensor, count: int, ood: float, generator: torch.Generator) -> Tensor:
    """Choose `count` unlabelled images, or a little fewer: an index in order.

    A share `ood` is drawn at random; the rest are those of the highest scores [N, C], as many for each class, which a
    random one may be too. Where there are no more than `count`, all are chosen.
    """
    if count >= len(scores):
        return torch.arange(len(scores))
    if not scores.shape[1]:
        return torch.randperm(len(scores), generator=generator)[:count].sort().values
    random = round(ood * count)
    likely = scores.topk((count - random) // scores.shape[1], dim=0).indices.flatten().cpu()
    index: Tensor = torch.cat([likely, torch.randperm(len(scores), generator=generator)[:random]]).unique()
    return index
