"""An exponential average of the weights over an increment's steps takes the place of the last weights.

Averaged along a training, weights lie in a flatter place than where it ends (Izmailov et al., UAI 2018, arXiv
1803.05407); the exponential form is Polyak averaging with a window, as in mean teachers (Tarvainen and Valpola, NeurIPS
2017, arXiv 1703.01780). The average begins at the network as the stage begins.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from daydream.methods.method import network
from daydream.stages.stage import Stage, State


def averaged(stage: Stage, decay: float) -> Stage:
    """Return a stage that leaves, of `net`, the average over its steps."""

    def begin(state: State) -> None:
        if stage.begin is not None:
            stage.begin(state)
        state.nets["average"] = network(state).frozen_copy()

    def after_step(state: State) -> None:
        if stage.after_step is not None:
            stage.after_step(state)
        follow(state.nets["average"], state.nets["net"], decay)

    def finish(state: State) -> None:
        follow(state.nets["net"], state.nets.pop("average"), 0.0)
        if stage.finish is not None:
            stage.finish(state)

    # Named among the networks in train mode so that a checkpoint inside the stage writes it again; nothing passes it.
    train_mode = stage.train_mode | {"average"}
    return replace(stage, begin=begin, after_step=after_step, finish=finish, train_mode=train_mode)


@torch.no_grad()
def follow(average: nn.Module, net: nn.Module, decay: float) -> None:
    """m <- d m + (1 - d) w, for the weights and the batch-norm statistics."""
    torch._foreach_lerp_(floating(average), floating(net), 1 - decay)


def floating(net: nn.Module) -> list[Tensor]:
    return [values for values in net.state_dict().values() if values.is_floating_point()]
