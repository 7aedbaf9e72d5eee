"""Learning-rate schedules: (epoch, epochs) -> factor, constant within an epoch."""

import math
from collections.abc import Sequence

from daydream.stage import Schedule


def cosine(epoch: int, epochs: int) -> float:
    """Fall from 1 towards 0 along half a cosine."""
    return 0.5 * (1 + math.cos(math.pi * epoch / epochs))


def step_down(milestones: Sequence[int], factor: float = 0.1) -> Schedule:
    """Multiply by `factor` at each milestone epoch."""

    def schedule(epoch: int, epochs: int) -> float:
        return factor ** sum(epoch >= m for m in milestones)

    return schedule
