"""How good imagined counterparts are: numbers that tell a working generator from a collapsed one.

Shapes: D feature dimensions, C classes.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Gathered(NamedTuple):
    """Normalised features [.., D] of real images, exemplars and counterparts of some classes, and their labels."""

    real: Tensor
    exemplars: Tensor
    imagined: Tensor
    real_labels: Tensor
    exemplar_labels: Tensor
    imagined_labels: Tensor
    scores: Tensor
    """Of the counterparts, by the head."""


def measure(found: Gathered) -> dict[str, float]:
    """Measure what tells a working generator from a collapsed one, on images without jitter.

    With z normalised features and c a class's mean of real ones: `distance` is the mean |z - c| of counterparts;
    `spread` their mean distance to their own class mean; `real_spread` and `exemplar_spread` the same of real images
    and of exemplars. In per cent, `accuracy` is how often the network takes a counterpart for its class, and `nearest`
    how often the nearest c (by its angle) is that of its class: the head can be right about a counterpart which lies
    where no real image does. Of a single class there is no `nearest`.
    """
    classes = int(found.real_labels.max()) + 1
    centre = class_centres(found.real, found.real_labels, classes)
    own = class_centres(found.imagined, found.imagined_labels, classes)
    middle = class_centres(found.exemplars, found.exemplar_labels, classes)
    right = (found.scores.argmax(1) == found.imagined_labels).double().mean()
    numbers = {
        "distance": spread(found.imagined, centre, found.imagined_labels),
        "spread": spread(found.imagined, own, found.imagined_labels),
        "real_spread": spread(found.real, centre, found.real_labels),
        "exemplar_spread": spread(found.exemplars, middle, found.exemplar_labels),
        "accuracy": round(100 * float(right), 2),
    }
    present = torch.bincount(found.real_labels, minlength=classes) > 0
    if int(present.sum()) > 1:
        angles = (found.imagined @ F.normalize(centre, dim=1).T).masked_fill(~present, -torch.inf)
        home = (angles.argmax(1) == found.imagined_labels).double().mean()
        numbers["nearest"] = round(100 * float(home), 2)
    return numbers


def class_centres(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the mean feature of each class [C, D]."""
    total = torch.zeros(classes, features.shape[1], device=features.device).index_add_(0, labels, features)
    return total / torch.bincount(labels, minlength=classes).clamp(min=1)[:, None]


def spread(features: Tensor, centres: Tensor, labels: Tensor) -> float:
    """Return the mean distance of features to the centre of their class."""
    return round(float((features - centres[labels]).norm(dim=1).mean()), 4)
