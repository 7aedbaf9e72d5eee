"""The average of the weights against a loop over the steps."""

from dataclasses import replace

import torch
from stages_driven import begun, drive, snapshot
from tiny_runs import tiny_experiment
from torch import Tensor

from daydream.components.ema import averaged, follow
from daydream.methods.method import network
from daydream.nets.network import Network
from daydream.stages.stage import State

DECAY = 0.7


def test_follow_against_a_loop() -> None:
    average, net = Network("resnet10", "linear", (2,)), Network("resnet10", "linear", (2,))
    before, new = snapshot(average), snapshot(net)
    follow(average, net, DECAY)
    for name, values in average.state_dict().items():
        pairs = zip(before[name].flatten().tolist(), new[name].flatten().tolist(), strict=True)
        expected = torch.tensor([DECAY * m + (1 - DECAY) * w for m, w in pairs], dtype=torch.float64)
        torch.testing.assert_close(values.flatten().double(), expected, rtol=1e-5, atol=1e-7)


def test_an_increment_leaves_the_average_of_its_steps() -> None:
    experiment = tiny_experiment()
    task = experiment.stream.task(1)
    state = experiment.fresh_state()
    for stage in experiment.stages(experiment.stream.task(0)):
        if stage.epochs and stage.begin is not None:
            stage.begin(state)
        drive(experiment, state, 0, stage)
    path: list[dict[str, Tensor]] = []
    plain = experiment.method.stages(task)[0]
    plain = replace(plain, after_step=lambda state: path.append(snapshot(state.nets["net"])))
    stage = averaged(plain, DECAY)
    state = begun(state, stage)
    expected = {name: values.double() for name, values in snapshot(state.nets["net"]).items()}
    drive(experiment, state, 1, stage)
    assert len(path) == stage.epochs * stage.steps
    for step in path:
        expected = {name: DECAY * m + (1 - DECAY) * step[name].double() for name, m in expected.items()}
    assert "average" not in state.nets
    for name, values in network(state).state_dict().items():
        torch.testing.assert_close(values.double(), expected[name], rtol=1e-4, atol=1e-6)
        moved = not torch.equal(values, path[-1][name])
        assert moved or name == "head.weights.0"  # the old classes' weights are frozen


def test_the_average_is_written_by_every_checkpoint() -> None:
    """It changes, though nothing in it trains."""
    from daydream.storage.state import Ledger

    experiment = tiny_experiment(parts={"ema": DECAY})
    state: State = experiment.fresh_state()
    base = experiment.stages(experiment.stream.task(0))[0]
    assert base.after_step is None
    state = begun(state, base)
    drive(experiment, state, 0, experiment.stages(experiment.stream.task(0))[1])
    increment = experiment.stages(experiment.stream.task(1))[0]
    state = begun(state, increment)
    ledger = Ledger()
    ledger.note(state)
    assert ledger.unchanged(state, increment.train_mode) == {"net.old"}
