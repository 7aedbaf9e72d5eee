"""Stages run one at a time on a state, for tests of what a stage changes."""

import copy
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from daydream.engine import Engine, EpochReport, Partial
from daydream.engine.feed import Feed
from daydream.experiment.experiment import Experiment
from daydream.methods.method import network
from daydream.stages.stage import Batch, Stage, State


class Notes:
    """A watcher that keeps the epochs' losses and never stops."""

    def __init__(self) -> None:
        self.epochs: list[Mapping[str, float]] = []

    def epoch(self, report: EpochReport) -> None:
        self.epochs.append(report.losses)

    def stop_asked(self) -> bool:
        return False

    def wants_checkpoint(self, epoch: int) -> bool:
        return False

    def checkpoint(self, partial: Partial) -> None: ...


def begun(state: State, stage: Stage) -> State:
    """Return a copy of a state in which a stage has begun."""
    state = copy.deepcopy(state)
    assert stage.begin is not None
    stage.begin(state)
    return state


def stirred(state: State) -> State:
    """Move the network's backbone and its head's scale, as if they had trained."""
    generator = torch.Generator().manual_seed(5)
    net = network(state)
    for parameter in net.lower.parameters():
        parameter.data += 0.05 * torch.randn(parameter.shape, generator=generator)
    for parameter in net.head.shared():
        parameter.data.fill_(3.0)
    return state


def drive(experiment: Experiment, state: State, task: int, stage: Stage) -> list[Mapping[str, float]]:
    """Train a stage that has begun, or run one that is only an action; return its epochs' losses."""
    notes = Notes()
    stage = replace(stage, begin=None) if stage.epochs else stage
    Engine(experiment.hardware, 1).run(stage, state, (task, stage.name), notes)
    return notes.epochs


def after_task(experiment: Experiment, state: State, task: int) -> State:
    """Return a copy of a state after all stages of a task."""
    state = copy.deepcopy(state)
    for stage in experiment.stages(experiment.stream.task(task)):
        if stage.epochs and stage.begin is not None:
            stage.begin(state)
        drive(experiment, state, task, stage)
    return state


def batch_of(stage: Stage, state: State, task: int) -> Batch:
    """Return the first batch of a stage."""
    feed = Feed(stage, state, (task, stage.name), 1)
    feed.load(0)
    return feed.read(torch.tensor([0]))


def snapshot(net: nn.Module) -> dict[str, Tensor]:
    return {name: values.clone() for name, values in net.state_dict().items()}


def same(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> set[str]:
    """Name the tensors that did not change."""
    assert before.keys() == after.keys()
    return {name for name in before if torch.equal(before[name], after[name])}
