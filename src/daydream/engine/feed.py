"""An epoch's batches as tables on the device: a step reads its row, and nothing random or on the host happens in it.

Shapes: S steps in an epoch, B images of a stream in a step, N images of its set.
"""

import logging
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from daydream import rng
from daydream.data.images import Resident
from daydream.engine.distributed import ALONE, Team
from daydream.stages.stage import Batch, Batches, Clock, Samples, Stage, State

log = logging.getLogger("daydream")

WHOLE = slice(None)


def shuffled(generator: torch.Generator, count: int, steps: int, size: int) -> Tensor:
    """Deal `count` images out in random order, starting over as often as S x B asks for: index [S, B]."""
    rounds = -(-steps * size // count)
    dealt = torch.cat([torch.randperm(count, generator=generator) for _ in range(rounds)])
    return dealt[: steps * size].view(steps, size)


class StreamFeed:
    """One stream's tables, refilled in place each epoch so that a captured step keeps reading the same memory."""

    def __init__(self, stream: Batches, device: torch.device, part: slice = WHOLE) -> None:
        self.stream, self.part = stream, part
        self.pixels = stream.images.pixels
        self.labels = stream.images.labels.to(device)
        self.fields = {name: values.to(device) for name, values in stream.fields.items()}
        self.tables: dict[str, Tensor] = {}
        self.ahead: Iterator[Tensor] | None = None
        self.buffer: Tensor | None = None  # where a batch that is not resident lands

    def load(
        self,
        seed: tuple[str | int, ...],
        run_seed: int,
        steps: int,
        first: int,
        device: torch.device,
        before: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> Tensor:
        """Draw an epoch's index and random numbers and bring them to the device; return the index [S, B]."""
        stream = self.stream

        def named(use: str) -> torch.Generator:
            return rng.generator(run_seed, use, *seed)

        index = (
            shuffled(named("batches"), len(stream.images), steps, stream.size)
            if stream.draw is None
            else stream.draw(named("batches"), steps, before)
        )
        assert index.shape == (steps, stream.size), (index.shape, steps, stream.size)
        drawn = {"index": index}
        drawn |= {f"draw/{k}": v for k, v in stream.augment.draw(named("augment"), steps, stream.size).items()}
        drawn |= {f"noise/{k}": make(named(f"noise/{k}"), steps, stream.size) for k, make in stream.noise.items()}
        drawn = {k: v[:, self.part] for k, v in drawn.items()}
        if not self.tables:
            self.tables = {k: v.to(device) for k, v in drawn.items()}
        else:
            for key, values in drawn.items():
                self.tables[key].copy_(values)
        if not isinstance(self.pixels, Resident):
            self.ahead = self.pixels.batches(drawn["index"][first:])
        return index

    def advance(self) -> None:
        """Bring the next batch of a set that is not resident into its buffer."""
        if self.ahead is not None:
            batch = next(self.ahead)
            if self.buffer is None:
                self.buffer = torch.empty_like(batch)
            self.buffer.copy_(batch)

    def read(self, step: Tensor) -> Samples:
        """Return the batch of a step [1], gathered and augmented on the device."""
        row = {k: table.index_select(0, step).squeeze(0) for k, table in self.tables.items()}
        index = row["index"]
        if isinstance(self.pixels, Resident):
            images = self.pixels.tensor.index_select(0, index)
        else:
            assert self.buffer is not None
            images = self.buffer
        draws = {k.removeprefix("draw/"): v for k, v in row.items() if k.startswith("draw/")}
        noise = {k.removeprefix("noise/"): v for k, v in row.items() if k.startswith("noise/")}
        fields = {k: v.index_select(0, index) for k, v in self.fields.items()}
        return Samples(self.stream.augment(images, draws), self.labels.index_select(0, index), index, fields | noise)


class Feed:
    """All streams and scalars of a stage; of several processes each reads its part of them, where a stage allows."""

    def __init__(
        self, stage: Stage, state: State, place: tuple[str | int, ...], run_seed: int, team: Team = ALONE
    ) -> None:
        self.stage, self.device, self.place, self.run_seed = stage, state.device, place, run_seed
        streams = stage.streams(state)
        sizes = [stream.size for stream in streams.values()]
        self.split = stage.split and team.divides(sizes)
        if stage.split and not self.split and team.size > 1:
            text = " + ".join(map(str, sizes))
            log.info("stage '%s': %s images do not divide by %d; every process does all", stage.name, text, team.size)
        parts = {name: team.part(stream.size) if self.split else WHOLE for name, stream in streams.items()}
        self.streams = {name: StreamFeed(stream, state.device, parts[name]) for name, stream in streams.items()}
        self.share = sum(part.stop - part.start for part in parts.values()) / sum(sizes) if self.split else 1.0
        self.scalars = {name: torch.zeros(stage.steps, device=state.device) for name in stage.scalars}

    def load(self, epoch: int, first: int = 0) -> None:
        """Prepare an epoch, to be read from step `first` on."""
        stage = self.stage
        drawn: dict[str, Tensor] = {}
        for name, feed in self.streams.items():
            place = (*self.place, epoch, name)
            drawn[name] = feed.load(place, self.run_seed, stage.steps, first, self.device, drawn)
        for name, rule in stage.scalars.items():
            values = [rule(Clock(epoch, stage.epochs, step, stage.steps)) for step in range(stage.steps)]
            self.scalars[name].copy_(torch.tensor(values))

    def advance(self) -> None:
        for feed in self.streams.values():
            feed.advance()

    def read(self, step: Tensor) -> Batch:
        scalars: Mapping[str, Tensor] = {k: v.index_select(0, step).squeeze(0) for k, v in self.scalars.items()}
        return Batch({name: feed.read(step) for name, feed in self.streams.items()}, scalars)

    @property
    def images_per_step(self) -> int:
        return sum(feed.stream.size for feed in self.streams.values())
