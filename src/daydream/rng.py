"""Random numbers by name: every use draws from a generator derived from the run's seed and what it is for.

A generator is a function of (seed, names), never of what was drawn before, so a resumed run needs no stored
generator state and two uses can never disturb each other.
"""

import contextlib
import hashlib
from collections.abc import Iterator

import torch


def derive(seed: int, *names: str | int) -> int:
    """Return the 63-bit seed that belongs to these names under the run's seed."""
    digest = hashlib.sha256("/".join(str(part) for part in (seed, *names)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(seed: int, *names: str | int) -> torch.Generator:
    """Return a CPU generator for one named use, e.g. `generator(seed, "batches", task, stage, epoch)`."""
    return torch.Generator().manual_seed(derive(seed, *names))


@contextlib.contextmanager
def seeded(seed: int, *names: str | int) -> Iterator[None]:
    """Let torch's default generator, which initialises layers, be a named one inside."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, *names))
        yield
