"""Learning-rate schedules: (epoch, epochs) -> factor, constant within an epoch."""

import math
from collections.abc import Sequence

from daydream.stages.stage import Schedule


def cosine(epoch: int, epochs: int) -> float:
    """Fall from 1 towards 0 along half a cosine."""
    return 0.5 * (1 + math.cos(math.pi * epoch / epochs))


def step_down(milestones: Sequence[int], factor: float = 0.1, of: int | None = None) -> Schedule:
    """Multiply by `factor` at each milestone epoch; those of a training of `of` epochs move with its length."""

    def schedule(epoch: int, epochs: int) -> float:
        return factor ** sum(epoch * (of or epochs) >= m * epochs for m in milestones)

    return schedule
