"""When to say "none of these": the threshold that costs a share of the pictures of known classes. Needs no torch."""

import math
from collections.abc import Sequence

from daydream.errors import UserError


def check_share(share: float) -> None:
    """Refuse a share of known pictures that nothing can be rejected by."""
    if not 0 < share < 1:
        raise UserError(f"--reject {share} must lie between 0 and 1: the share of known pictures it may cost")


def threshold(confidences: Sequence[float], keep: float) -> float:
    """Return the highest t that at least a share `keep` of confidences of known classes reaches.

    t = the ceil(keep N)-th largest confidence. An image below t is likely none of the known classes: the maximum
    softmax probability as a detector (Hendrycks and Gimpel 2017), set by the known classes it may lose.
    """
    if not 0 < keep <= 1:
        raise UserError(f"the share of known images to keep is {keep}, but must be above 0 and at most 1")
    if not len(confidences):
        raise UserError("there are no held-out images to set a rejection threshold by")
    rank = max(1, math.ceil(keep * len(confidences) - 1e-9))  # 0.07 * 100 is a little above 7
    return sorted(confidences, reverse=True)[rank - 1]
