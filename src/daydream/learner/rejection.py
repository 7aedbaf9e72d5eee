"""When to say "none of these": the threshold that costs a share of the pictures of known classes. Needs no torch.

An exact model that keeps features goes by how known a picture looks: the highest score of ridge regression, before any
softmax, plus the cosine to the nearest picture that was learnt. Scores alone are lower for a class never shown than its
probability tells, and the nearest picture knows what no linear function does. Any other model goes by the highest
probability (Hendrycks and Gimpel 2017).

Shapes: N pictures, C classes, D features, K kept pictures.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daydream.errors import UserError

MOST = 2000
"""Pictures left out that set a threshold; of more, every so many."""


def knownness(scores: NDArray[Any], nearest: NDArray[Any]) -> NDArray[np.float64]:
    """Return how known pictures look [N], of their scores [N, C] and the cosine to the nearest learnt [N]."""
    found: NDArray[np.float64] = scores.max(1) + nearest
    return found


def nearest_cosine(features: NDArray[Any], kept: Iterable[NDArray[Any]]) -> NDArray[np.float64]:
    """Return the cosine [N] of features [N, D] to the nearest of kept ones, which come in parts [K, D] of length 1."""
    found, own = np.full(len(features), -1.0), unit(features)
    for part in kept:
        found = np.maximum(found, (own @ part.T).max(1))
    return found


def unit(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Return rows of length 1."""
    found: NDArray[np.float32] = rows.astype(np.float32)
    found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
    return found


def check_share(share: float) -> None:
    """Refuse a share of known pictures that nothing can be rejected by."""
    if not 0 < share < 1:
        raise UserError(f"--reject {share} must lie between 0 and 1: the share of known pictures it may cost")


def threshold(confidences: Sequence[float], keep: float) -> float:
    """Return the highest t that at least a share `keep` of confidences of known classes reaches.

    t = the ceil(keep N)-th largest. An image below t is likely none of the known classes.
    """
    if not 0 < keep <= 1:
        raise UserError(f"the share of known images to keep is {keep}, but must be above 0 and at most 1")
    if not len(confidences):
        raise UserError("there are no held-out images to set a rejection threshold by")
    rank = max(1, math.ceil(keep * len(confidences) - 1e-9))  # 0.07 * 100 is a little above 7
    return sorted(confidences, reverse=True)[rank - 1]
