"""What a stage and a state are: plain data. A method describes its training with these and the engine runs it.

A `State` is all that a method owns between steps, and all of it is checkpointed. A `Stage` says what trains, on which
batches, by which losses, and how long. `begin` and `finish` may change the state and run once; `trains` and `streams`
are pure functions of the state, called again when a run resumes inside the stage.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from daydream.data.augment import Augment
from daydream.data.images import ImageSet
from daydream.protocol.memory import Memory


class Rebuildable(Protocol):
    """What a network in a state offers beyond `nn.Module`: the arguments that build its like again."""

    def config(self) -> dict[str, Any]: ...


Kinds = Mapping[str, Callable[..., nn.Module]]
"""Builders of the networks a state may hold, by class name."""


@dataclass
class State:
    """Everything a method owns: named networks, named tensors, exemplars."""

    memory: Memory
    device: torch.device
    nets: dict[str, nn.Module] = field(default_factory=dict)
    """Each has `config()` and is of a class its method lists in `kinds`, so that a checkpoint can build it again."""
    tensors: dict[str, Tensor] = field(default_factory=dict)


Draw = Callable[[torch.Generator, int, Mapping[str, Tensor]], Tensor]
"""(generator, steps, the indices drawn for the streams before) -> index [steps, size]."""
Noise = Callable[[torch.Generator, int, int], Tensor]
"""(generator, steps, size) -> random numbers [steps, size, ...]."""


@dataclass(frozen=True, kw_only=True)
class Batches:
    """A named supply of batches: `size` images a step out of an image set, augmented, with extra fields.

    `fields` are tensors [N, ...] aligned with the images (an old network's stored outputs, say); their rows come with
    the batch. `draw` makes the index [steps, size] of an epoch; without it the images are shuffled and dealt out, again
    and again if an epoch asks for more than there are. `noise` makes an epoch's further random numbers, each
    [steps, size, ...].
    """

    images: ImageSet
    size: int
    augment: Augment
    fields: Mapping[str, Tensor] = field(default_factory=dict)
    draw: Draw | None = None
    noise: Mapping[str, Noise] = field(default_factory=dict)


@dataclass(frozen=True)
class Samples:
    """One stream's share of a batch, on the device."""

    images: Tensor
    """[B, 3, h, w] float, augmented and normalised."""
    labels: Tensor
    """[B] int64."""
    index: Tensor
    """[B] int64: which image of the stream's image set each is."""
    fields: Mapping[str, Tensor]
    """The rows of the stream's fields and noise, each [B, ...]."""


@dataclass(frozen=True)
class Batch:
    """What the losses of one step see."""

    streams: Mapping[str, Samples]
    scalars: Mapping[str, Tensor]

    def __getitem__(self, stream: str) -> Samples:
        return self.streams[stream]


@dataclass(frozen=True)
class Group:
    """Tensors that train together, at `factor` times the stage's learning rate."""

    tensors: Sequence[Tensor]
    factor: float = 1.0
    weight_decay: float | None = None
    """None takes the optimiser's."""


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Stochastic gradient descent with momentum."""

    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Clock:
    """Where a stage stands: scalars and schedules are functions of it."""

    epoch: int
    epochs: int
    step: int
    """Within the epoch."""
    steps: int


Schedule = Callable[[int, int], float]
"""(epoch, epochs) -> factor on the learning rate."""


Losses = Callable[[State, Batch], Mapping[str, Tensor]]
Hook = Callable[[State], None]


def no_groups(state: State) -> Sequence[Group]:
    return ()


def no_streams(state: State) -> Mapping[str, Batches]:
    return {}


def no_losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
    return {}


def constant(epoch: int, epochs: int) -> float:
    return 1.0


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stretch of training. Without epochs it is only an action: its `begin`."""

    name: str
    epochs: int = 0
    steps: int = 0
    """Steps that make an epoch."""
    trains: Callable[[State], Sequence[Group]] = no_groups
    streams: Callable[[State], Mapping[str, Batches]] = no_streams
    losses: Losses = no_losses
    """Named terms; the engine minimises their sum."""
    optimizer: SGD | Adam = SGD()
    schedule: Schedule = constant
    clamp: float | None = None
    """Every gradient entry is clamped to [-clamp, clamp]."""
    train_mode: frozenset[str] = frozenset()
    """The networks in train mode; all others run in evaluation mode. `in_mode` overrides it for a pass. A network that
    is neither here nor in `trains` must not change during the stage: a checkpoint writes it once."""
    split: bool = False
    """Whether several processes may share a step: every loss is then a mean over samples, and changes nothing but batch
    norm; samples that belong together stand at the same place of their streams. Otherwise each does the whole step."""
    exemplars: str | None = None
    """The stream that carries exemplars, if this stage replays them: what a component adds counterparts to."""
    scalars: Mapping[str, Callable[[Clock], float]] = field(default_factory=dict)
    """Numbers that change per step and live on the device, handed over with the batch."""
    begin: Hook | None = None
    finish: Hook | None = None
    on_gradients: Hook | None = None
    """Runs between backward and the optimiser's step, inside the captured region."""
    after_step: Hook | None = None
    """Runs after the optimiser's step, inside the captured region."""
    after_epoch: Hook | None = None
    report: Callable[[State], Mapping[str, float]] | None = None
    """Numbers measured when the stage has finished, for metrics.jsonl."""
    shared_as: Mapping[str, Any] | None = None
    """If given, the networks after this stage depend on these settings, the data and the backbone alone, so that runs
    may share them (`--base-from`)."""


def all_parameters(nets: Mapping[str, nn.Module]) -> Iterator[nn.Parameter]:
    """Yield every parameter of every network."""
    for net in nets.values():
        yield from net.parameters()
