"""A step by hand: gradients clamped on both sides, the rate as scheduled."""

import pytest
import torch
from stages_driven import Notes
from tiny_runs import tiny_experiment

from daydream.engine import Engine
from daydream.protocol.memory import Budget, Memory
from daydream.stages.stage import SGD, Group, Stage, State


@pytest.mark.parametrize("sign", [1, -1])
def test_clamp_and_schedule(sign: int) -> None:
    state = State(Memory.empty(Budget("total", 1)), torch.device("cpu"))
    state.tensors["w"] = torch.zeros(2)
    slopes = sign * torch.tensor([100.0, 0.25])
    stage = Stage(
        name="slope",
        epochs=3,
        steps=1,
        trains=lambda state: [Group([state.tensors["w"]])],
        losses=lambda state, batch: {"slope": (slopes * state.tensors["w"]).sum()},
        optimizer=SGD(lr=1.0, momentum=0.0, weight_decay=0.0),
        schedule=lambda epoch, epochs: (1.0, 0.5, 0.25)[epoch],
        clamp=5.0,
    )
    Engine(tiny_experiment().hardware, 1).run(stage, state, (0, "slope"), Notes())
    assert state.tensors["w"].tolist() == [-sign * 1.75 * 5.0, -sign * 1.75 * 0.25]
