"""Blending: after an increment the network becomes a mixture of itself and of the network before the increment.

w <- A w + (1 - A) w_previous, as in weight interpolation (Kozal et al., 2024, arXiv 2404.04002; without its alignment
of permuted neurons, since an increment starts from the network before it) and in continual model averaging (Marouf et
al., ECCV 2024, arXiv 2312.08977; without its Fisher weights).

All that both networks have is blended: backbone, batch-norm statistics, scales of the head, weights of old classes
(where a method freezes those, blending leaves them as they are). Weights of new classes have no counterpart and stay.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from daydream.methods.method import network
from daydream.nets.network import Network
from daydream.stages.stage import Stage, State


@dataclass(frozen=True)
class Blending:
    """Blends the network an increment's training leaves with the one before it."""

    share: float
    """A, of the trained network."""

    def blended(self, stage: Stage) -> Stage:
        """Return a stage that ends by blending `net` with the network from before the stage."""

        def begin(state: State) -> None:
            state.nets["previous"] = network(state).frozen_copy()
            if stage.begin is not None:
                stage.begin(state)

        def finish(state: State) -> None:
            if stage.finish is not None:
                stage.finish(state)
            previous = state.nets.pop("previous")
            assert isinstance(previous, Network)
            state.tensors["blend"] = torch.tensor([self.share, moved(network(state), previous)], dtype=torch.float64)
            blend(network(state), previous, self.share)

        def report(state: State) -> Mapping[str, float]:
            share, distance = state.tensors["blend"].tolist()
            return {**(stage.report(state) if stage.report else {}), "blend": share, "moved": round(distance, 4)}

        return replace(stage, begin=begin, finish=finish, report=report)


@torch.no_grad()
def moved(net: nn.Module, previous: nn.Module) -> float:
    """|w - w_previous| / |w_previous| of the parameters both have: between networks far apart a mixture is none."""
    before, now = dict(previous.named_parameters()), dict(net.named_parameters())
    shared = [name for name in before if name in now]
    distance = torch.stack([(now[name] - before[name]).double().square().sum() for name in shared]).sum()
    length = torch.stack([before[name].double().square().sum() for name in shared]).sum()
    return float((distance / length).sqrt())


@torch.no_grad()
def blend(net: nn.Module, previous: nn.Module, share: float) -> None:
    """w <- A w + (1 - A) w_previous, for every weight and statistic that both have."""
    before = previous.state_dict()
    for name, values in net.state_dict().items():
        if name in before and values.is_floating_point():
            values.lerp_(before[name], 1 - share)
