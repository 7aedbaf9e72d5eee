"""What one run does in a training step, and before and after an epoch of steps: the one loop of the package."""

import contextlib
import math
from collections.abc import Iterator, Mapping
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
from daydream.stages.stage import Stage, State, all_parameters

STOP_EVERY = 8  # steps after which several processes ask each other whether to stop


class Diverged(UserError):
    """A loss, a gradient or a weight is not finite."""


class Interrupted(Exception):
    """The run was asked to stop, and its checkpoint was handed over to be written."""


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


class Loop:
    """The training of one stage of one run: what a step does, and what comes before and after an epoch of steps."""

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

    def take_up(self, partial: Partial) -> None:
        """Stand where `partial` stands."""
        self.optimizer.load(partial.optimizer)
        self.sums = {name: torch.tensor(float(value), device=self.state.device) for name, value in partial.sums.items()}

    def stands(self, epoch: int, step: int) -> Partial:
        """Return where the loop stands before a step, all that `take_up` needs; nothing goes on from what diverged."""
        sums = {name: float(total) for name, total in self.sums.items()} if step else {}
        self.check_finite(sums, epoch)
        return Partial(epoch, step, self.optimizer.state(), sums)

    def begin_epoch(self, epoch: int, first: int) -> None:
        """Make the steps of an epoch ready, from `first` on."""
        self.optimizer.set_rate(self.stage.schedule(epoch, self.stage.epochs))
        self.feed.load(epoch, first)
        self.position.fill_(first)
        if first == 0:
            for total in self.sums.values():
                total.zero_()

    def end_epoch(self, epoch: int, losses: Mapping[str, float], seconds: float, watcher: Watcher) -> None:
        """Report an epoch of these mean losses, and let the watcher have its checkpoint."""
        stage = self.stage
        rate = stage.optimizer.lr * stage.schedule(epoch, stage.epochs)
        images = self.feed.images_per_step * stage.steps
        watcher.epoch(EpochReport(epoch, stage.epochs, losses, rate, images, seconds))
        if stage.after_epoch is not None:
            stage.after_epoch(self.state)
        if epoch + 1 < stage.epochs and watcher.wants_checkpoint(epoch + 1):
            watcher.checkpoint(self.stands(epoch + 1, 0))

    def close(self) -> None:
        """Leave the state as every stage does."""
        self.forget_gradients()
        for net in self.state.nets.values():
            net.eval()  # between stages every network is in evaluation mode

    def forget_gradients(self) -> None:
        for tensor in self.optimizer.parameters():
            tensor.grad = None

    def stop_asked(self, step: int, watcher: Watcher) -> bool:
        """Say whether to stop before a step: several processes must all do so, before the same one."""
        if self.team.size == 1:
            return watcher.stop_asked()
        return step % STOP_EVERY == 0 and self.team.any(watcher.stop_asked())

    def step(self) -> None:
        """Read a batch, take its losses, follow their gradient."""
        stage, state = self.stage, self.state
        self.forget_gradients()
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
        self.check_finite(means, epoch, sound=bool(values[0]))
        return means

    def check_finite(self, losses: Mapping[str, float], epoch: int, sound: bool = True) -> None:
        """Stop if a loss is not finite, or if a gradient or a weight is not `sound`."""
        bad = [name for name, value in losses.items() if not math.isfinite(value)]
        if bad or not sound:
            what = f"loss '{bad[0]}'" if bad else "a gradient"
            raise Diverged(
                f"{what} is not finite in epoch {epoch + 1} of stage '{self.stage.name}': the training diverged; "
                "lower the learning rate; what was saved last is from before"
            )


@dataclass
class Training:
    """A stage that has begun and waits to be trained: its loop, who watches it, and where it starts."""

    loop: Loop
    watcher: Watcher
    start: Partial = Partial(0, 0)
    place: tuple[str | int, ...] = ()
    failure: UserError | None = None

    @contextlib.contextmanager
    def failing_alone(self) -> Iterator[None]:
        """Keep a failure to this run: whoever waits for the training raises it."""
        try:
            yield
        except UserError as error:
            self.failure = error
