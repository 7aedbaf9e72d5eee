"""What two processes started by torchrun do together; each writes what it saw to FOLDER/RANK.json for the test."""

import contextlib
import copy
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from stages_driven import Notes, begun
from tiny_runs import Watch, tiny_experiment, without_times
from torch import Tensor, nn

from daydream.engine import Engine, Interrupted
from daydream.engine.distributed import Team, joined, team
from daydream.engine.feed import Feed
from daydream.engine.loop import Loop
from daydream.experiment.experiment import Experiment
from daydream.protocol.memory import Budget, Memory
from daydream.stages.stage import Stage, State
from daydream.storage.run_folder import RunFolder


def even_replay() -> Experiment:
    """Replay whose increments have 8 new images and 8 exemplars in a batch."""
    return tiny_experiment("replay", run={"memory": 24}, batch_size=16, new_share=0.5)


def agreement(us: Team) -> dict[str, Any]:
    """Start from states that differ in values, and in one tensor's shape; return what each process then holds."""
    memory = Memory.empty(Budget("total", 2))
    memory = replace(memory, images=torch.full((2, 3, 4, 4), us.rank, dtype=torch.uint8))
    state = State(memory, torch.device("cpu"), nets={"net": nn.BatchNorm2d(2).to(memory_format=torch.channels_last)})
    net = state.nets["net"]
    assert isinstance(net, nn.BatchNorm2d)
    nn.init.constant_(net.weight, us.rank + 0.1)
    state.tensors = {"index": torch.arange(3 + us.rank), "mask": torch.tensor(us.rank == 0), "none": torch.zeros(0)}
    us.agree(state)
    return {
        "images": state.memory.images.sum().item(),
        "weight": net.weight.tolist(),
        "tensors": {name: values.tolist() for name, values in state.tensors.items()},
    }


def trained_state(experiment: Experiment) -> tuple[State, Stage]:
    """Return the state at the beginning of an increment, and its training stage."""
    state, engine = experiment.fresh_state(), Engine(experiment.hardware, 1, team())
    for place, stage in enumerate(experiment.stages(experiment.stream.task(0))):
        engine.run(stage, state, (0, place), Notes())
    stage = experiment.stages(experiment.stream.task(1))[0]
    return begun(state, stage), stage


def stepped(experiment: Experiment, state: State, stage: Stage, us: Team) -> Loop:
    """Take one step of a stage, alone or together; return the loop, which holds gradients and state."""
    state = copy.deepcopy(state)
    loop = Loop(stage, state, experiment.hardware, Feed(stage, state, (1, 0), 1, us), us)
    loop.feed.load(0)
    loop.step()
    return loop


def one_step(us: Team, experiment: Experiment, state: State, stage: Stage) -> dict[str, Any]:
    """Take a step together and alone: how far are gradients, losses and batch-norm statistics apart?"""
    together, alone = stepped(experiment, state, stage, us), stepped(experiment, state, stage, Team())
    assert together.feed.split
    weights = torch.cat([v.double().flatten() for v in together.state.nets["net"].state_dict().values()])
    return {
        "gradients": distance(
            [t.grad for t in together.optimizer.parameters()], [t.grad for t in alone.optimizer.parameters()]
        ),
        "statistics": distance(list(together.state.nets["net"].buffers()), list(alone.state.nets["net"].buffers())),
        "losses": {name: [float(v), float(alone.sums[name])] for name, v in together.sums.items()},
        "state": [float(weights.sum()), float(weights.square().sum())],
    }


def distance(found: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> float:
    """Return |found - expected| / |expected| over all tensors."""
    a, b = (torch.cat([v.double().flatten() for v in values if v is not None]) for values in (found, expected))
    return float((a - b).norm() / b.norm())


def interrupted(us: Team, folder: Path) -> dict[str, Any]:
    """Run, and run again with a stop that one process alone asks for; return both results."""
    whole = even_replay().start(folder / "whole", Watch())
    with contextlib.suppress(Interrupted):
        even_replay().start(folder / "stopped", Watch(stop_at=5 if us.rank else None))
        raise AssertionError("nobody stopped")
    us.meet()  # the first one has written its last checkpoint
    resumed = even_replay().resume(RunFolder(folder / "stopped"), Watch())
    return {"whole": without_times(whole), "resumed": without_times(resumed)}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with joined(trains=True):
        us = team()
        seen = {"agreement": agreement(us), "runs": interrupted(us, folder)}
        experiment = even_replay()
        state, stage = trained_state(experiment)
        stage = replace(stage, clamp=None)
        seen["normed"] = one_step(us, experiment, state, stage)
        seen["still"] = one_step(us, experiment, state, replace(stage, train_mode=frozenset()))
        seen["asked"] = [us.any(False), us.any(us.rank == 1)]
        uneven = tiny_experiment("finetune", batch_size=7)
        base = replace(uneven.stages(uneven.stream.task(0))[0], clamp=None)
        seen["uneven"] = one_step(us, uneven, begun(uneven.fresh_state(), base), base)
        (folder / f"{us.rank}.json").write_text(json.dumps(seen))
