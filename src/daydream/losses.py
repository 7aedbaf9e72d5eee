"""Losses as pure functions on tensors, each with its equation.

Shapes: B samples, D feature dimensions, C classes.
"""

import torch.nn.functional as F
from torch import Tensor


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """L = -mean_b log softmax(scores_b)[labels_b], in float32. scores [B, C], labels [B]."""
    return F.cross_entropy(scores.float(), labels)


def cosine_distillation(new: Tensor, old: Tensor) -> Tensor:
    """L_dist = mean_b (1 - cos(f(x_b), f_old(x_b))), the paper's section 3.4 averaged over samples. new, old [B, D]."""
    return (1 - F.cosine_similarity(new.float(), old.float(), dim=1)).mean()
