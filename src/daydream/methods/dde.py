"""DDE: "Distilling Causal Effect of Data in Class-Incremental Learning" (CVPR 2021): UCIR, with two effects set right.

Colliding effect: each image is classified together with its nearest new images by the old network's features, whose
answers carry no gradient. Momentum effect: the direction h in which a phase moved all features is taken out of the
scores. Numbers are those of the released code, whose form on UCIR this is; that on PODNet, which the paper's best row
is of, was never released.

With z^, w^ and h^ of length 1, the scores sigma cos(z, w) - alpha cos(z, h) sigma h^.w^ are those of class weights
w^ - alpha (h^.w^) h^, not scaled again: the removal costs nothing, and an exported network has it in its weights.

Different from the released code: neighbours are found once per increment, on images that are not augmented (there in
every epoch, on that epoch's augmentations), and are augmented each by itself; they pass by batch norm's running
statistics and leave them alone (there they enter them). h averages in the momentum of SGD itself. Left out: the variant
that learns two numbers on a balanced memory in place of alpha.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream.methods.method import Prediction, by_both, joined, memory_names, network
from daydream.methods.unified import Unified, UnifiedSettings
from daydream.nets.cosine_ops import unit
from daydream.nets.heads import CosineHead
from daydream.nets.network import Network, in_mode
from daydream.protocol.inference import over_rows
from daydream.protocol.stream import Task
from daydream.settings import require, setting
from daydream.stages.losses import joint_cross_entropy
from daydream.stages.stage import Batch, Batches, Draw, Stage, State

MOMENTUM = 0.9  # of the mean feature, as of the optimiser (paper, section 3.2)


@dataclass(frozen=True, kw_only=True)
class DDESettings(UnifiedSettings):
    """Settings of DDE; the common ones are UCIR's."""

    neighbours: int = setting(
        10, "nearest new images each image is classified together with, as far as there are; 0 is none (released code)"
    )
    momentum_effect: float = setting(
        0.5, "share of the momentum effect that is removed from the scores, alpha; 0 is none (released code)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.neighbours >= 0, f"--neighbours {self.neighbours} must not be negative")
        require(self.momentum_effect >= 0, f"--momentum-effect {self.momentum_effect} must not be negative")


class DDE(Unified[DDESettings]):
    """UCIR's terms, the cross-entropy being of an image and its neighbours; scores without the momentum effect."""

    Settings = DDESettings
    refuses = MappingProxyType({"rotations all": "a turned image has no neighbours; --rotations base does fit"})

    def increment(self, task: Task) -> Stage:
        stage = super().increment(task)
        count = min(self.settings.neighbours, len(task.train) - 1)

        def begin(state: State) -> None:
            assert stage.begin is not None
            stage.begin(state)
            z = [self.features(state, images) for images in (task.train, state.memory.as_set(memory_names(task)))]
            state.tensors["momentum"] = torch.zeros(z[0].shape[1], device=state.device)
            if count:
                state.tensors["neighbours"] = nearest(torch.cat(z), len(task.train), count)

        def streams(state: State) -> Mapping[str, Batches]:
            given = stage.streams(state)
            if not count:
                return given
            size = count * sum(own.size for own in given.values())
            draw = beside_them(state.tensors["neighbours"].cpu(), len(task.train))
            return {**given, "neighbours": replace(given["new"], size=size, draw=draw)}

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            images, labels = joined(batch, "new", "old")
            z, z_old = by_both(state, lambda net: net.features(images))
            state.tensors["momentum"].mul_(MOMENTUM).add_(z.detach().float().mean(0))
            if count:
                ce = joint_cross_entropy(network(state).head(z), self.answers(state, batch, count), labels)
            else:
                ce = self.classification(state, z, labels)
            return {"ce": ce, **self.holding(task, state, z, z_old, labels)}

        # h is of all samples of a step: several processes each do the whole of it.
        return replace(stage, begin=begin, streams=streams, losses=losses, split=False)

    @torch.no_grad()
    def answers(self, state: State, batch: Batch, count: int) -> Tensor:
        """Return the scores [B, K, C] of the neighbours of a batch's images."""
        net = network(state)
        with in_mode(net, training=False):
            scores: Tensor = net(batch["neighbours"].images).unflatten(0, (-1, count))
        return scores

    def select(self, task: Task) -> Stage:
        stage = super().select(task)

        def begin(state: State) -> None:
            state.tensors.pop("neighbours", None)  # of no use once the increment is learnt
            assert stage.begin is not None
            stage.begin(state)

        return replace(stage, begin=begin)

    def predict(self, state: State, images: Tensor) -> Prediction:
        weight = self.folded(state)
        if weight is None:
            return super().predict(state, images)
        z = network(state).features(images)
        return Prediction(z, cast(CosineHead, network(state).head).scale * (unit(z) @ weight.T))

    def folded(self, state: State) -> Tensor | None:
        """Return the class weights [C, D] without the momentum effect; None where there is none to remove."""
        h, alpha = state.tensors.get("momentum"), self.settings.momentum_effect
        if h is None or not alpha:
            return None
        weight = unit(network(state).head.weight().squeeze(1))
        require(h.shape == weight.shape[1:], "the momentum effect kept beside the network does not fit it")
        return without(weight, h, alpha)

    @torch.no_grad()
    def exported(self, state: State) -> Network:
        net, weight = network(state), self.folded(state)
        if weight is None:
            return net
        twin = Network(**{**net.config(), "head": "folded-cosine"})
        twin.load_state_dict(net.state_dict())
        for block, values in zip(twin.head.weights, weight.split(net.head.sizes), strict=True):
            block.copy_(values[:, None])
        return twin.to(weight.device).eval().requires_grad_(False)


def without(weight: Tensor, h: Tensor, share: float) -> Tensor:
    """w - share (h^.w) h^ with h^ = h / |h| (0 where h is): weights [C, D] with less of a direction [D]."""
    h = F.normalize(h, dim=0)
    return weight - share * (weight.float() @ h)[:, None] * h


def nearest(z: Tensor, num_new: int, count: int) -> Tensor:
    """Return, for features z [N, D] of length 1 after scaling, the `count` nearest among the first `num_new` [N, K].

    None is its own neighbour. |a - b|^2 = 2 - 2 a.b: the nearest have the largest cosines.
    """
    z = F.normalize(z.float(), dim=1)
    new = torch.arange(num_new, device=z.device)

    def of(rows: Tensor, places: Tensor) -> Tensor:
        return (rows @ z[:num_new].T).masked_fill(places[:, None] == new, -torch.inf).topk(count).indices

    return over_rows(of, z, torch.arange(len(z), device=z.device), most=1024)


def beside_them(table: Tensor, num_new: int) -> Draw:
    """Return a `draw` of the neighbours of what was drawn for `new` and `old`, those of an image side by side."""

    def draw(generator: torch.Generator, steps: int, before: Mapping[str, Tensor]) -> Tensor:
        return table[torch.cat([before["new"], before["old"] + num_new], dim=1)].flatten(1)

    return draw
