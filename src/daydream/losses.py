"""Losses as pure functions on tensors, each with its equation.

Shapes: B samples, D feature dimensions, C classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """L = -mean_b log softmax(scores_b)[labels_b], in float32. scores [B, C], labels [B]."""
    return F.cross_entropy(scores.float(), labels)


def cosine_distillation(new: Tensor, old: Tensor) -> Tensor:
    """L_dist = mean_b (1 - cos(f(x_b), f_old(x_b))), the paper's section 3.4 averaged over samples. new, old [B, D]."""
    return (1 - F.cosine_similarity(new.float(), old.float(), dim=1)).mean()


# The generators' losses (the paper's section 3.3). Maps are h [B, C, H, W]: B samples, C channels, H x W pixels. Each
# loss is a mean over samples. The `paper` form is the equations as printed; the `pooled` form is that of the paper's
# released code, which compares normalised, pooled energies and the Gram matrix of normalised channels.


def semantic_contrast(mixed: Tensor, real: Tensor) -> Tensor:
    """L_SC = |GAP(h_k) - GAP(h_mix)|_2 (equation 5), with h_k of another real image of the class."""
    return _mean_length(real.float().mean((2, 3)) - mixed.float().mean((2, 3)))


def gram(maps: Tensor) -> Tensor:
    """W^(i,j) = r_i . r_j over flattened channels r (equations 6 and 7): [B, C, H, W] -> [B, C, C]."""
    rows = maps.float().flatten(2)
    return rows @ rows.transpose(1, 2)


def semantic_decoupling(mixed: Tensor, style: Tensor) -> Tensor:
    """L_SDC = |Gram(h_u) - Gram(h_mix)|_F (equation 8), with h_u the map whose manner is taken over."""
    return _mean_length((gram(style) - gram(mixed)).flatten(1))


def pooled_contrast(mixed: Tensor, real: Tensor) -> Tensor:
    """L_SC of the released code: distance of energies h^2, pooled over width and height, and over channels.

    With e = h^2: a = normalise([sum_w e, sum_h e]) and b = normalise(sum_c e), each flattened per sample;
    L = |a_k - a_mix|_2 + |b_k - b_mix|_2.
    """
    return _mean_length(_lines(real) - _lines(mixed)) + _mean_length(_places(real) - _places(mixed))


def pooled_decoupling(mixed: Tensor, style: Tensor) -> Tensor:
    """L_SDC of the released code: mean over rows i of |W^_u,i - W^_mix,i|_2, W^ the Gram of L2-normalised channels."""
    return _mean_length(gram(_unit_channels(style)) - gram(_unit_channels(mixed)))


def _unit_channels(maps: Tensor) -> Tensor:
    return F.normalize(maps.float().flatten(2), dim=2)


def _lines(maps: Tensor) -> Tensor:
    energy = maps.float().square()
    return F.normalize(torch.cat([energy.sum(3), energy.sum(2)], dim=2).flatten(1), dim=1)


def _places(maps: Tensor) -> Tensor:
    return F.normalize(maps.float().square().sum(1).flatten(1), dim=1)


def _mean_length(vectors: Tensor) -> Tensor:
    """Return the mean L2 norm of vectors [..., D]."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    return lengths.mean()
