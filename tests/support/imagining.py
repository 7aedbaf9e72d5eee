"""A tiny run that imagines, stage by stage: what its tests share."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from stages_driven import Notes, snapshot
from torch import Tensor, nn

from daydream.components.imagination import Imagination
from daydream.engine import Engine
from daydream.experiment.experiment import Experiment
from daydream.stages.stage import Stage, State

BASE, STEPS, SEED = 2, 2, 1
"""Of the tiny run: 2 base classes and 2 increments of 2."""


def drive(experiment: Experiment, state: State, task: int, place: int, stage: Stage) -> Notes:
    """Run a stage as the experiment would."""
    notes = Notes()
    Engine(experiment.hardware, SEED).run(stage, state, (task, place), notes)
    return notes


def after_base(experiment: Experiment, generators: bool = True) -> State:
    """Return the state after the base task, with or without its generators."""
    state = experiment.fresh_state()
    stages = experiment.stages(experiment.stream.task(0))
    assert [stage.name for stage in stages] == ["train", "select", "imagine"]
    for place, stage in enumerate(stages if generators else stages[:2]):
        drive(experiment, state, 0, place, stage)
    return state


def equal(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def statistics(net: nn.Module) -> dict[str, Tensor]:
    found = {name: values for name, values in snapshot(net).items() if "running" in name or "tracked" in name}
    assert found
    return found


def imagining(experiment: Experiment, **values: Any) -> Imagination:
    """Return the experiment's imagination with other settings, those of teaching on the pile among them."""
    own = experiment.carried.imagination
    assert own is not None
    taught = {name: values.pop(f"pile_{name}") for name in ("distill", "labels", "soft") if f"pile_{name}" in values}
    settings, teaching = replace(experiment.config.imagination, **values), replace(own.teaching, **taught)
    return Imagination(settings, experiment.method, own.pile, teaching)


def increment(experiment: Experiment, base: State, **values: Any) -> tuple[State, Stage, Stage]:
    """Return a state that has begun the first increment, and its stage without and with imagination."""
    state, task = copy.deepcopy(base), experiment.stream.task(1)
    stage = experiment.method.stages(task)[0]
    assert stage.begin is not None
    stage.begin(state)
    return state, stage, imagining(experiment, **values).replayed(task, stage)
