"""Probabilities that mean something: a temperature, how far from the truth they are, and when to say "none of these".

Shapes: N held-out images, C classes. All of it is computed in float64, on images that no weight was trained on.
"""

import math

import torch
from torch import Tensor

from daydream.learner.rejection import threshold

COLDEST, HOTTEST = 0.05, 20.0
HALVINGS = 60  # of an interval of 6 in log T: far below what a float64 tells apart
FLAT = 1e-12  # a slope this small is rounding: the temperature changes nothing


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature T that makes softmax(z / T) most likely on held-out logits [N, C], labels [N].

    T minimises mean_i sum_c -q_ic log softmax(z_i / T)_c (Guo et al. 2017, On Calibration of Modern Neural Networks,
    section 4.2), where q_i is the label's one-hot vector mixed with 1 / (N + 1) of the uniform one. That part, which
    the paper has not, counts as one more image with a label drawn at random; it vanishes as N grows and, like Laplace's
    rule of succession, keeps a few images that are all classified correctly from asking for T = 0.

    The loss is convex in 1 / T, so the place where its slope, mean_i (softmax(z_i / T) - q_i) . z_i, is 0 is found by
    halving, between 0.05 and 20. Where T changes nothing (a single class, no image, equal logits) it is 1.
    """
    count, classes = logits.shape
    z = logits.detach().double()
    z = z - z.mean(1, keepdim=True)
    smooth = 1 / (count + 1)
    target = torch.full_like(z, smooth / classes)
    target.scatter_add_(1, labels.to(z.device)[:, None], torch.full_like(z, 1 - smooth))

    def slope(temperature: float) -> float:
        return float((((z / temperature).softmax(1) - target) * z).sum(1).mean())

    if not abs(slope(1.0)) > FLAT:
        return 1.0
    low, high = math.log(COLDEST), math.log(HOTTEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(math.exp(middle)) > 0 else (low, middle)
    return math.exp((low + high) / 2)


def expected_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    """Return ECE = sum_b |B_b| / N |accuracy(B_b) - confidence(B_b)| of probabilities [N, C] against labels [N].

    B_b holds the images whose highest probability lies in ((b - 1) / bins, b / bins] (Guo et al. 2017, section 2).
    """
    confidence, predicted = probabilities.detach().double().max(1)
    right = (predicted == labels.to(predicted.device)).double()
    edges = torch.arange(1, bins, dtype=torch.float64, device=confidence.device) / bins
    gaps = torch.bincount(torch.bucketize(confidence, edges), weights=right - confidence)
    return float(gaps.abs().sum() / len(labels))


def rejection_threshold(confidences: Tensor, keep: float) -> float:
    """Return the highest t that at least a share `keep` of held-out confidences [N] of known classes reaches."""
    return threshold(confidences.detach().double().tolist(), keep)
