"""A training stage whose network has gates: a sparsity loss shuts them, masks grow sharper within each epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from daydream.nets import pruning
from daydream.stages.losses import weight_share
from daydream.stages.stage import Batch, Clock, Group, Stage, State

FARTHEST = 6.0  # how far a gate may lie from 0 (HAT's code)


def gated(stage: Stage, *, sparsity: float, keep: float, sharpness: float, gate_lr: float) -> Stage:
    """Return a stage that also trains the gates of `net`, at `gate_lr` times its rate and without weight decay.

    L_S, `sparsity` times the share of weights that the masks leave, is added to its losses. Its sign turns while the
    gates that stand open keep less than `keep`.
    """

    def trains(state: State) -> Sequence[Group]:
        gates = pruning.gates(state.nets["net"])
        own = {id(gate) for gate in gates}
        rest = [replace(g, tensors=[t for t in g.tensors if id(t) not in own]) for g in stage.trains(state)]
        return [*rest, Group(gates, factor=gate_lr, weight_decay=0.0)]

    def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
        net = state.nets["net"]
        way = (weight_share(pruning.layers(net)) - keep).sign().detach()
        with pruning.half_open(net, batch.scalars["sharpness"]):
            share = weight_share(pruning.layers(net))
            return {**stage.losses(state, batch), "sparsity": sparsity * way * share}

    def after_step(state: State) -> None:
        for gate in pruning.gates(state.nets["net"]):
            gate.clamp_(-FARTHEST, FARTHEST)

    scalars = {"sharpness": lambda clock: sharpness_at(clock, sharpness)}
    return replace(stage, trains=trains, losses=losses, after_step=after_step, scalars=scalars)


def sharpness_at(clock: Clock, most: float) -> float:
    """Return s = 1 / s_max + (s_max - 1 / s_max) (b - 1) / (B - 1) in step b of an epoch's B; s_max if B is 1."""
    share = clock.step / (clock.steps - 1) if clock.steps > 1 else 1.0
    return 1 / most + (most - 1 / most) * share
