"""Is B better than A? Paired runs, Student's t, and a plain verdict.

Runs of one class order, or of one base task, are no replicates of each other: their gains are averaged first, and the
standard error is that over class orders. Under three of them nothing is decided.
"""

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST = 3
"""Replicates below which no verdict is given."""
CONFIDENCE = 0.95
MOST = 1000
"""Further pairs beyond which their number is not said."""


@dataclass(frozen=True)
class Difference:
    """What B gives more than A, over paired runs."""

    mean: float
    error: float | None
    """The standard error over replicates; None for one."""
    pairs: int
    replicates: int

    @property
    def decided(self) -> bool:
        """Say whether the mean lies outside what chance alone gives in all but one of twenty times."""
        return self.replicates >= FEWEST and self.error is not None and _clears(self, self.replicates)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return between what the difference lies, but for one time in twenty; None below the fewest replicates."""
        if self.error is None or self.replicates < FEWEST:
            return None
        reach = quantile(self.replicates - 1) * self.error
        return self.mean - reach, self.mean + reach

    @property
    def more(self) -> int | None:
        """Return how many more replicates would decide, if they went on like this; None for more than can be said."""
        if self.decided:
            return 0
        if self.error is None:
            return FEWEST - self.replicates
        counts = range(max(FEWEST, self.replicates + 1), self.replicates + MOST + 1)
        return next((count - self.replicates for count in counts if _clears(self, count)), None)

    def text(self) -> str:
        """Return the difference and its standard error: `+1.60 ± 0.30`."""
        return f"{self.mean:+.2f}" + ("" if self.error is None else f" ± {self.error:.2f}")

    def verdict(self, unit: str, better: str = "B", worse: str = "A") -> str:
        """Say in words what the pairs decide, `better` being what stands first in the difference."""
        over = f"over {_counted(self.pairs, 'pair')}"
        each = "pair" if self.pairs == self.replicates else "class order"
        over += "" if each == "pair" else f" of {_counted(self.replicates, each)}"
        if self.decided:
            size = f"{abs(self.mean):.2f} ± {self.error:.2f} {unit}"
            return f"{better if self.mean > 0 else worse} is better by {size} {over}"
        more = self.more
        wanted = f"more than {MOST:,} more {each}s" if more is None else f"about {_counted(more, f'more {each}')}"
        if self.error is None:
            wanted = f"at least {_counted(FEWEST - self.replicates, f'more {each}')}"
        return f"not decided: {self.text()} {unit} {over}; {wanted} would be needed"


def difference(gains: Sequence[Sequence[float]]) -> Difference:
    """Return the mean gain and its standard error over replicates, each with the gains of its pairs."""
    means = [statistics.fmean(found) for found in gains]
    error = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else None
    return Difference(statistics.fmean(means), error, sum(map(len, gains)), len(means))


def _clears(found: Difference, count: int) -> bool:
    """Say whether so many replicates with this mean and deviation decide."""
    assert found.error is not None
    error = found.error * math.sqrt(found.replicates / count)
    return found.mean != 0 and abs(found.mean) >= quantile(count - 1) * error


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


@functools.cache
def quantile(freedom: int, inside: float = CONFIDENCE) -> float:
    """Return the t that Student's variable stays below in size with probability `inside`."""
    low, high = 0.0, 1.0
    while within(high, freedom) < inside:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, freedom) < inside else (low, middle)
    return high


def within(t: float, freedom: int) -> float:
    """P(|T| < t) of Student's variable (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = cosine if odd else 1.0, 0.0
    for k in range(odd + 1, freedom + 1, 2):
        if k > odd + 1:
            term *= cosine * cosine * (k - 2) / (k - 1)
        total += term if freedom > 1 else 0.0
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
