"""Choosing from the unlabelled pile: which images a generator is fed.

Shapes: N images of the pile, C classes, M images mined.
"""

import torch
from torch import Tensor

CERTAIN = 1.0  # bits: an image with less entropy is certain (the paper's released code)
PER_CLASS = 100  # most certain images kept per predicted class (the paper's released code)


def entropy(scores: Tensor) -> Tensor:
    """H = -sum_c p_c log2 p_c with p = softmax(scores), in bits. [N, C] -> [N]."""
    log_p = scores.float().log_softmax(1)
    return -(log_p.exp() * log_p).sum(1) / torch.log(torch.tensor(2.0))


def most_certain(scores: Tensor, at_least: int) -> tuple[Tensor, Tensor]:
    """Return index [M] and predicted class [M], sorted by class, of the most certain images: at most 100 of a class.

    Images of 1 bit and more are left out, unless too few remain: then the most certain of the pile fill up `at_least`.
    """
    bits, predicted = entropy(scores), scores.argmax(1)
    order = bits.argsort(stable=True)
    by_class = order[predicted[order].argsort(stable=True)]
    classes = predicted[by_class]
    counts = torch.bincount(classes, minlength=scores.shape[1])
    rank = torch.arange(len(classes), device=scores.device) - (counts.cumsum(0) - counts)[classes]
    keep = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
    keep[by_class[(rank < PER_CLASS) & (bits[by_class] < CERTAIN)]] = True
    if int(keep.sum()) < at_least:
        keep[order[:at_least]] = True
    index = by_class[keep[by_class]]
    return index, predicted[index]


def draw_other_class(generator: torch.Generator, mined: Tensor, classes: Tensor) -> Tensor:
    """Draw, for each of `classes` [...], a place among mined images [M] (their classes, sorted) of any other class.

    Where all mined images are of that one class, any of them is drawn.
    """
    low = torch.searchsorted(mined, classes.contiguous())
    own = torch.searchsorted(mined, classes.contiguous(), right=True) - low
    own = torch.where(own == len(mined), 0, own)
    place = (torch.rand(classes.shape, generator=generator) * (len(mined) - own)).long()
    return place + torch.where(place >= low, own, 0)
