"""Losses as pure functions on tensors, each with its equation.

Shapes: B samples, D feature dimensions, C classes.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream.nets.cosine_ops import cosine

FLAT = 1e-10
"""A variance of cosines that is rounding alone."""


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """L = -mean_b log softmax(scores_b)[labels_b], in float32. scores [B, C], labels [B]."""
    return F.cross_entropy(scores.float(), labels)


def joint_cross_entropy(scores: Tensor, neighbours: Tensor, labels: Tensor) -> Tensor:
    """L = -mean_b log( (softmax(s_b)[y_b] + mean_k softmax(s_bk)[y_b]) / 2 ) (DDE, released code).

    scores s_b [B, C], scores s_bk of each one's neighbours [B, K, C], labels [B].
    """
    own = scores.float().log_softmax(1).gather(1, labels[:, None]).squeeze(1)
    theirs = neighbours.float().log_softmax(2)[torch.arange(len(labels), device=labels.device), :, labels]
    theirs = theirs.logsumexp(1) - math.log(neighbours.shape[1])
    return (math.log(2) - torch.logaddexp(own, theirs)).mean()


def cosine_distillation(new: Tensor, old: Tensor) -> Tensor:
    """L_dist = mean_b (1 - cos(f(x_b), f_old(x_b))), the paper's section 3.4 averaged over samples. new, old [B, D]."""
    return (1 - cosine(new.float(), old.float())).mean()


def topology(z: Tensor, vertices: Tensor) -> Tensor:
    """L = -r({cos(z_i, z_j)}, {cos(v_i, v_j)}) over pairs i < j, r being Pearson's correlation (TPCIL, as we read it).

    z, vertices [B, D]. Where either side's cosines do not deviate, or there is no pair, it is 0.
    """
    i, j = torch.triu_indices(len(z), len(z), 1, device=z.device)
    if not len(i):
        return z.float().sum() * 0
    with torch.autocast(z.device.type, enabled=False):  # similarities of 8 bits would be mostly ties
        a, b = (_deviations((unit @ unit.T)[i, j]) for unit in (F.normalize(x.float(), dim=1) for x in (z, vertices)))
        variances = a.square().mean(), b.square().mean()
        spread = (variances[0] > FLAT) & (variances[1] > FLAT)
        scale = torch.where(spread, variances[0] * variances[1], 1.0).rsqrt()
        return -(a * b).mean() * scale * spread


def margin_ranking(cosines: Tensor, labels: Tensor, num_old: int, margin: float, negatives: int) -> Tensor:
    """L_mr = mean over samples of old classes and k of max(0, margin - s_y + s_k) (UCIR, section 3.4).

    s are cosines [B, C], labels [B]; the first `num_old` classes are old, and s_k are the `negatives` highest cosines
    with new classes. Samples of new classes cost nothing.
    """
    s, old = cosines.float(), (labels < num_old).float()
    hardest = s[:, num_old:].topk(min(negatives, s.shape[1] - num_old), dim=1).values
    short = (margin - s.gather(1, labels[:, None]) + hardest).clamp(min=0).mean(1)
    return (short * old).sum() / old.sum().clamp(min=1)


def cosine_cross_entropy(z: Tensor, weight: Tensor, scale: Tensor, labels: Tensor) -> Tensor:
    """L = -mean_b log softmax(scale z^_b.w^)[y_b], with z [B, D] and weights [C, D] scaled to length 1."""
    return F.cross_entropy(scale * F.normalize(z, dim=1) @ F.normalize(weight, dim=1).T, labels)


def learnt_cosines(z: Tensor, labels: Tensor, weight: Tensor, scale: Tensor, steps: int, rate: float) -> Tensor:
    """Return the weights [C, D] after steps w <- w - rate dL/dw, L = `cosine_cross_entropy` of z [B, D].

    Every step stays differentiable in z: the inner level of Mnemonics.
    """
    weight = weight.detach().requires_grad_()
    for _ in range(steps):
        loss = cosine_cross_entropy(z, weight, scale, labels)
        (slope,) = torch.autograd.grad(loss, weight, create_graph=True)
        weight = weight - rate * slope
    return weight


def nca(scores: Tensor, labels: Tensor, margin: Tensor | float = 0.0) -> Tensor:
    """L = mean_b -(s_y - m) + log(1 + sum_{j != y} exp(s_j - m)) with m = max_j s_j: NCA as PODNet's code has it.

    s are scaled scores [B, C], labels [B]; `margin` is taken off the target's score first. The 1 is the target's own
    entry, set to zero in the exponent; no hinge. Where the target scores highest, this is cross-entropy.
    """
    target = torch.zeros_like(scores, dtype=torch.float32).scatter(1, labels[:, None], 1.0)
    s = scores.float() - margin * target
    s = s - s.amax(1, keepdim=True)
    others = (s * (1 - target)).exp().sum(1).log()
    return (others - s.gather(1, labels[:, None]).squeeze(1)).mean()


def pod_spatial(new: Sequence[Tensor], old: Sequence[Tensor]) -> Tensor:
    """L_pod = mean over stages and samples of |a_new - a_old|_2 (PODNet, section 3.1).

    With e = h^2 of a stage's map h [B, C, H, W]: a = normalise([sum_w e, sum_h e]), flattened per sample.
    """
    return torch.stack([_mean_length(_lines(a) - _lines(b)) for a, b in zip(new, old, strict=True)]).mean()


def overwritten_bce(scores: Tensor, labels: Tensor, old_scores: Tensor | None, num_classes: int) -> Tensor:
    """L = 1/(B N) sum_b sum_c -[t log p + (1 - t) log(1 - p)] with p = sigmoid(scores) (iCaRL, Algorithm 3).

    Targets t are one-hot labels [B], overwritten for every sample by sigmoid(old_scores) [B, C_old] where there is an
    old network. scores [B, C]; the mean is over N >= C classes, those without a score adding nothing.
    """
    targets = (labels[:, None] == torch.arange(scores.shape[1], device=scores.device)).float()
    if old_scores is not None:
        targets = torch.cat([old_scores.float().sigmoid(), targets[:, old_scores.shape[1] :]], dim=1)
    total = F.binary_cross_entropy_with_logits(scores.float(), targets, reduction="sum")
    return total / (len(scores) * num_classes)


def soft_labels(scores: Tensor, old_scores: Tensor) -> Tensor:
    """L = -1/B sum_b sum_c t_bc log softmax(s_b)_c with t_b = softmax(o_b) over the old classes c.

    s [B, C] are scores of all classes, the old ones first: the new ones stand in the denominator. o [B, K] are the old
    network's, which get no gradient.
    """
    targets = old_scores.detach().float().softmax(1)
    return -(targets * scores.float().log_softmax(1)[:, : targets.shape[1]]).sum(1).mean()


def soft_cross_entropy(scores: Tensor, old_scores: Tensor, temperature: float) -> Tensor:
    """L_d = -mean_b sum_c softmax(old / T)_c log softmax(new / T)_c, without a factor T^2 (BiC, section 3).

    scores [B, C], of which the first C_old count; old_scores [B, C_old].
    """
    new = scores[:, : old_scores.shape[1]]
    return F.cross_entropy(new.float() / temperature, (old_scores.float() / temperature).softmax(1))


def class_weights(counts: Tensor, beta: float) -> Tensor:
    """w_c = (1 - beta) / (1 - beta^n_c), scaled to a mean of 1: rare classes weigh more (effective numbers, CVPR 2019).

    counts n [C] of images -> w [C].
    """
    weights = (1 - beta) / (1 - beta ** counts.double())
    return (weights * len(counts) / weights.sum()).float()


def balanced_distillation(scores: Tensor, taught: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """L = -mean_b sum_c q_c log softmax(scores / T)_c with q = w softmax(taught / T), scaled to a sum of 1.

    FOSTER's balanced distillation. scores, taught [B, C]; weights w [C].
    """
    targets = weights * (taught.float() / temperature).softmax(1)
    return F.cross_entropy(scores.float() / temperature, targets / targets.sum(1, keepdim=True))


def weight_share(layers: Sequence[tuple[int, Tensor, Tensor]]) -> Tensor:
    """L_S = sum_l K_l |m_in|_1 |m_out|_1 / sum_l K_l c_in c_out: the share of weights that masks leave (DER, 3.3).

    layers: of each convolution the size of its kernel K and the masks of its channels, m_in [c_in] and m_out [c_out].
    """
    kept = torch.stack([kernel * m_in.sum() * m_out.sum() for kernel, m_in, m_out in layers]).sum()
    return kept / sum(kernel * len(m_in) * len(m_out) for kernel, m_in, m_out in layers)


Centring = Literal["sample-teacher", "sample", "teacher", "class"]


def centred(teachers: Sequence[Tensor], over: Centring) -> Tensor:
    """Return the scores [B, C_k] of teachers side by side [B, C], each less a mean (DMC, equation 4).

    The mean is that of a sample's scores by one teacher (`sample-teacher`), of a sample's scores by all (`sample`), of
    all scores in the batch by one teacher (`teacher`), or of a class's scores in the batch (`class`).
    """
    scores = [s.float() for s in teachers]
    if over == "sample-teacher":
        scores = [s - s.mean(1, keepdim=True) for s in scores]
    elif over == "teacher":
        scores = [s - s.mean() for s in scores]
    whole = torch.cat(scores, dim=1)
    if over == "sample":
        return whole - whole.mean(1, keepdim=True)
    return whole - whole.mean(0) if over == "class" else whole


def regression(scores: Tensor, targets: Tensor) -> Tensor:
    """L_dd = 1/(B C) sum_b sum_c (s_bc - t_bc)^2 (DMC, equation 3). scores, targets [B, C]."""
    return F.mse_loss(scores.float(), targets.float())


def divergence(targets: Tensor, scores: Tensor) -> Tensor:
    """KL_b = sum_c t_bc (log t_bc - log softmax(s_b)_c), of each sample [B]. targets t, scores s [B, C]."""
    return F.kl_div(scores.float().log_softmax(1), targets.float(), reduction="none").sum(1)


def softened_divergence(teacher: Tensor, scores: Tensor, temperature: float) -> Tensor:
    """L_b = T^2 KL(softmax(teacher / T) || softmax(scores / T)), of each sample [B]. teacher, scores [B, C]."""
    targets = (teacher.float() / temperature).softmax(1)
    return temperature**2 * divergence(targets, scores.float() / temperature)


def divergence_from_uniform(scores: Tensor) -> Tensor:
    """KL_b = -log C - 1/C sum_c log softmax(s_b)_c, of each sample [B]: 0 where all scores s [B, C] are equal."""
    return -scores.float().log_softmax(1).mean(1) - math.log(scores.shape[1])


def global_targets(old: Tensor, new: Tensor) -> Tensor:
    """q: an image's probabilities of l old and k new classes from those of a teacher each (GD, section 3.2).

    With p = softmax(old) [B, l], whose highest is p_j, c = softmax(new) [B, k] and r = l + k: q_j = p_j, the other old
    classes have p (l - 1)/(r - 1), the new ones c (1 - p_j) k/(r - 1). It sums to 1. [B, r].
    """
    p, c = old.float().softmax(1), new.float().softmax(1)
    num_old, num_new = p.shape[1], c.shape[1]
    others = num_old + num_new - 1
    highest, j = p.max(1, keepdim=True)
    spread = (p * ((num_old - 1) / others)).scatter(1, j, highest)
    return torch.cat([spread, c * (1 - highest) * (num_new / others)], dim=1)


def class_balance(counts: Tensor) -> Tensor:
    """w_y = n / (n_y C): by these weights all of C classes count alike, which have n_y images [C] and n together."""
    return counts.sum() / (counts * len(counts)).clamp(min=1)


def weighted_cross_entropy(scores: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """L = -sum_b w_b log softmax(scores_b)[labels_b], a sum. scores [B, C], labels and weights w [B]."""
    return (weights * F.cross_entropy(scores.float(), labels, reduction="none")).sum()


# The generators' losses (the paper's section 3.3). Maps are h [B, C, H, W]: B samples, C channels, H x W pixels. Each
# loss is a mean over samples. The `paper` form is the equations as printed; the `pooled` form is that of the paper's
# released code, which compares normalised, pooled energies and the Gram matrix of normalised channels. The `relative`
# form is ours: the equations as printed, in units of the real maps, for networks whose maps are of any scale.


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


def relative_contrast(mixed: Tensor, real: Tensor) -> Tensor:
    """L_SC of maps of any scale: |GAP(h_k) - GAP(h_mix)|_2 / s, where s^2 = mean_b sum_c GAP(h_k^2), a constant."""
    return semantic_contrast(mixed, real) / _energy(real).sqrt()


def relative_decoupling(mixed: Tensor, style: Tensor) -> Tensor:
    """L_SDC of maps of any scale: |Gram(h_u) - Gram(h_mix)|_F / (H W s^2), where s^2 = mean_b sum_c GAP(h_u^2)."""
    return semantic_decoupling(mixed, style) / (style[0, 0].numel() * _energy(style))


def _energy(maps: Tensor) -> Tensor:
    """Return the mean squared length of maps' pixels, no gradient following it."""
    return maps.detach().float().square().mean((0, 2, 3)).sum().clamp(min=FLAT)


def _deviations(values: Tensor) -> Tensor:
    return values - values.mean()


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
