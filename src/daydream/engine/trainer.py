"""Run a stage: the one training loop of the package."""

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from daydream.engine.distributed import ALONE, Team
from daydream.engine.feed import Feed
from daydream.engine.hardware import Hardware
from daydream.engine.optim import Optimizer
from daydream.engine.shared_norm import SharedNorm
from daydream.errors import UserError
from daydream.stage import Stage, State, all_parameters

STOP_EVERY = 8  # steps after which several processes ask each other whether to stop
EAGER_STEPS = 3  # run as they are before a capture: they allocate, compile and tune what the capture then records


class Interrupted(Exception):
    """The run was asked to stop and has written a checkpoint."""


@dataclass(frozen=True)
class EpochReport:
    """What an epoch gave: mean losses, learning rate, speed."""

    epoch: int
    epochs: int
    losses: Mapping[str, float]
    lr: float
    images: int
    seconds: float


@dataclass(frozen=True)
class Partial:
    """A stage cut short: where it stands, the optimiser's state and the losses summed so far in the epoch."""

    epoch: int
    step: int
    optimizer: Mapping[str, Tensor] = field(default_factory=dict)
    sums: Mapping[str, float] = field(default_factory=dict)


class Watcher(Protocol):
    """Whoever runs the engine: told of each epoch, asked whether to stop, given what a checkpoint needs."""

    def epoch(self, report: EpochReport) -> None: ...

    def stop_asked(self) -> bool: ...

    def wants_checkpoint(self, epoch: int) -> bool: ...

    def checkpoint(self, partial: Partial) -> None: ...


@dataclass(frozen=True)
class Engine:
    """Runs stages on a device; knows no method."""

    hardware: Hardware
    seed: int
    team: Team = ALONE

    def run(
        self, stage: Stage, state: State, place: tuple[str | int, ...], watcher: Watcher, partial: Partial | None = None
    ) -> None:
        """Run a stage from its beginning, or on from where `partial` left it. `place` names its random numbers."""
        if partial is None and stage.begin is not None:
            stage.begin(state)
        self.team.agree(state)
        if stage.epochs:
            feed = Feed(stage, state, place, self.seed, self.team)
            loop = Loop(stage, state, self.hardware, feed, self.team)
            loop.train(watcher, partial or Partial(0, 0))
        if stage.finish is not None:
            stage.finish(state)
        self.team.agree(state)


class Loop:
    """The training of one stage: what a step does, and epochs of it."""

    def __init__(self, stage: Stage, state: State, hardware: Hardware, feed: Feed, team: Team = ALONE) -> None:
        self.stage, self.state, self.hardware, self.feed, self.team = stage, state, hardware, feed, team
        groups = stage.trains(state)
        for parameter in all_parameters(state.nets):
            parameter.requires_grad_(False)
        for group in groups:
            for tensor in group.tensors:
                tensor.requires_grad_(True)
        for name, net in state.nets.items():
            net.train(name in stage.train_mode)
            hardware.compile_parts(net)
        self.optimizer = Optimizer(stage.optimizer, groups, state.device)
        self.position = torch.zeros(1, dtype=torch.int64, device=state.device)
        self.sums: dict[str, Tensor] = {}
        self.graph: torch.cuda.CUDAGraph | None = None
        self.eager_steps = 0

    def train(self, watcher: Watcher, partial: Partial) -> None:
        """Run the epochs that are left, from `partial` on."""
        self.optimizer.load(partial.optimizer)
        self.sums = {name: torch.tensor(value, device=self.state.device) for name, value in partial.sums.items()}
        for epoch in range(partial.epoch, self.stage.epochs):
            first = partial.step if epoch == partial.epoch else 0
            watcher.epoch(self.run_epoch(epoch, first, watcher))
            if self.stage.after_epoch is not None:
                self.stage.after_epoch(self.state)
            if epoch + 1 < self.stage.epochs and watcher.wants_checkpoint(epoch + 1):
                watcher.checkpoint(Partial(epoch + 1, 0, self.optimizer.state()))
        for tensor in self.optimizer.parameters():
            tensor.grad = None
        for net in self.state.nets.values():
            net.eval()  # between stages every network is in evaluation mode

    def run_epoch(self, epoch: int, first: int, watcher: Watcher) -> EpochReport:
        """Run the steps of an epoch from `first` on."""
        start = time.perf_counter()
        stage = self.stage
        factor = stage.schedule(epoch, stage.epochs)
        self.optimizer.set_rate(factor)
        self.feed.load(epoch, first)
        self.position.fill_(first)
        if first == 0:
            for total in self.sums.values():
                total.zero_()
        for step in range(first, stage.steps):
            if self.stop_asked(step, watcher):
                sums = {name: float(total) for name, total in self.sums.items()}
                watcher.checkpoint(Partial(epoch, step, self.optimizer.state(), sums if step else {}))
                raise Interrupted
            self.feed.advance()
            self.take_step()
        losses = self.checked_means(epoch)
        images = self.feed.images_per_step * stage.steps
        # An epoch that was resumed inside is timed as if it had run at this speed from its start.
        seconds = (time.perf_counter() - start) * stage.steps / max(stage.steps - first, 1)
        return EpochReport(epoch, stage.epochs, losses, stage.optimizer.lr * factor, images, seconds)

    def stop_asked(self, step: int, watcher: Watcher) -> bool:
        """Say whether to stop before a step: several processes must all do so, before the same one."""
        if self.team.size == 1:
            return watcher.stop_asked()
        return step % STOP_EVERY == 0 and self.team.any(watcher.stop_asked())

    def take_step(self) -> None:
        """Replay the captured step; until there is one, run the step as it is."""
        if self.graph is not None:
            self.graph.replay()
        elif not self.hardware.capture:
            self.step()
        elif self.eager_steps < EAGER_STEPS:
            self.eager_steps += 1
            on_side_stream(self.step)
        else:
            for tensor in self.optimizer.parameters():
                tensor.grad = None  # the capture allocates gradients in its own pool
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.step()
            self.graph.replay()

    def step(self) -> None:
        """Read a batch, take its losses, follow their gradient."""
        stage, state = self.stage, self.state
        for tensor in self.optimizer.parameters():
            tensor.grad = None
        with self.hardware.autocast(), SharedNorm(self.feed.share) if self.feed.split else contextlib.nullcontext():
            batch = self.feed.read(self.position)
            losses = stage.losses(state, batch)
        if self.feed.split:
            losses = {name: self.feed.share * loss for name, loss in losses.items()}
        torch.stack([loss.float() for loss in losses.values()]).sum().backward()
        losses = {name: loss.detach() for name, loss in losses.items()}
        if self.feed.split:
            gradients = [t.grad for t in self.optimizer.parameters() if t.grad is not None]
            self.team.add_up([*gradients, *losses.values()])
        if stage.on_gradients is not None:
            stage.on_gradients(state)
        if stage.clamp is not None:
            gradients = [t.grad for t in self.optimizer.parameters() if t.grad is not None]
            torch._foreach_clamp_max_(gradients, stage.clamp)
            torch._foreach_clamp_min_(gradients, -stage.clamp)
        self.optimizer.inner.step()
        with torch.no_grad():
            for name, loss in losses.items():
                self.sums.setdefault(name, torch.zeros((), device=state.device)).add_(loss)
            self.position += 1
            if stage.after_step is not None:
                stage.after_step(state)

    def checked_means(self, epoch: int) -> dict[str, float]:
        """Return the epoch's mean losses; stop if a loss, a gradient or a weight is not finite."""
        tensors = self.optimizer.parameters()
        tensors = [t.detach() for t in tensors] + [t.grad for t in tensors if t.grad is not None]
        sound = torch.stack([n.float() for n in torch._foreach_norm(tensors)]).isfinite().all().float()
        values = torch.stack([sound, *(total.float() for total in self.sums.values())]).tolist()
        means = {name: value / self.stage.steps for name, value in zip(self.sums, values[1:], strict=True)}
        bad = [name for name, value in means.items() if not math.isfinite(value)]
        if bad or not values[0]:
            what = f"loss '{bad[0]}'" if bad else "a gradient"
            raise UserError(
                f"{what} is not finite in epoch {epoch + 1} of stage '{self.stage.name}': the training diverged; "
                "lower the learning rate (the last checkpoint is from before)"
            )
        return means


def on_side_stream(call: Callable[[], None]) -> None:
    """Run on another CUDA stream, as a capture asks of what comes before it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
