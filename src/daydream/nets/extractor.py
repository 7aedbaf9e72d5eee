"""Extractors side by side: networks whose features are laid end to end, under the one head of the newest.

In a state, those that came before are named `past.0`, `past.1`, …, oldest first, and the newest is `net`. A checkpoint
writes each past one once, as it never changes again. Features are in the order of age.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from daydream.nets import pruning
from daydream.nets.heads import HEADS, Head
from daydream.nets.network import Network
from daydream.nets.resnet import to_channels_last

PAST = "past.{}"


class Extractor(Network):
    """A network whose head reads `inputs` features, those of the extractors before it and then its own.

    Its blocks may have gates on their inner channels (`gated`), or only so many of them (`inner`, block by block).
    """

    def __init__(
        self,
        backbone: str,
        head: str,
        sizes: tuple[int, ...] = (),
        cut: str = "stage3",
        inputs: int | None = None,
        inner: tuple[int, ...] = (),
        gated: bool = False,
    ) -> None:
        super().__init__(backbone, head, (), cut)
        if inputs is not None:
            self.head = HEADS[head](inputs)
        for size in sizes:
            self.head.grow(size)
        self.inner, self.gated = tuple(inner), gated
        if inner or gated:
            pruning.slim(self, inner, gated)
            to_channels_last(self)

    def config(self) -> dict[str, Any]:
        return {**super().config(), "inputs": self.head.dim, "inner": self.inner, "gated": self.gated}

    def alone(self) -> "Extractor":
        """Return an equal extractor in evaluation mode that has no classes and whose weights do not train."""
        return frozen(with_weights_of(type(self)(**{**self.config(), "sizes": (), "inputs": None}), self))

    def ungated(self) -> "Extractor":
        """Return the extractor with no gates, as if all were open, and no classes; its weights do not train."""
        backbone, head, cut = self.kinds
        return frozen(with_weights_of(type(self)(backbone, head, (), cut), self))

    def pruned(self) -> "Extractor":
        """Return the network with the channels of closed gates taken out, its head as it is."""
        assert self.gated
        inner = tuple(int(block.open().sum()) for block in pruning.slim_blocks(self))
        net = type(self)(**{**self.config(), "inner": inner, "gated": False})
        for ours, theirs in ((net.lower.stem, self.lower.stem), (net.head, self.head)):
            cast(nn.Module, ours).load_state_dict(cast(nn.Module, theirs).state_dict())
        pruning.take_out(self, net)
        return net.to(next(self.parameters()).device).eval()


def frozen(net: Extractor) -> Extractor:
    net.eval().requires_grad_(False)
    return net


def with_weights_of(net: Extractor, other: Network) -> Extractor:
    """Give a network the weights and statistics of another's backbone, on its device; gates stay the network's own."""
    net.to(next(other.parameters()).device)
    for ours, theirs in ((net.lower, other.lower), (net.upper, other.upper)):
        own = ours.state_dict()
        shared = {name: value for name, value in theirs.state_dict().items() if name in own}
        ours.load_state_dict({**own, **shared})
        assert all(name.endswith(".gate") for name in own.keys() ^ theirs.state_dict().keys()), "blocks do not fit"
    return net


class Joined(nn.Module):
    """Extractors side by side, the newest of which has the head over all features: what predicts, and is exported."""

    def __init__(self, extractors: Sequence[Network]) -> None:
        super().__init__()
        self.extractors = nn.ModuleList(extractors)
        assert self.head.dim == sum(net.width for net in extractors), "the head does not fit the extractors"

    @property
    def newest(self) -> Network:
        return cast(Network, self.extractors[-1])

    @property
    def head(self) -> Head:
        return self.newest.head

    @classmethod
    def of_configs(cls, extractors: Sequence[Mapping[str, Any]]) -> "Joined":
        """Build the like of one again, of its `config()` as it is or as JSON holds it."""
        plain: list[dict[str, Any]]
        plain = [{k: tuple(v) if isinstance(v, list) else v for k, v in config.items()} for config in extractors]
        return cls([Extractor(**config) for config in plain])

    def config(self) -> dict[str, Any]:
        return {"extractors": tuple(cast(Network, net).config() for net in self.extractors)}

    def features(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] -> z [B, sum of widths]."""
        return torch.cat([cast(Network, net).features(x) for net in self.extractors], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] -> scores [B, C]."""
        scores: Tensor = self.head(self.features(x))
        return scores


def newest(nets: Mapping[str, nn.Module]) -> Extractor:
    """Return the extractor that trains."""
    return cast(Extractor, nets["net"])


def past(nets: Mapping[str, nn.Module]) -> list[Network]:
    """Return the extractors before the newest, oldest first."""
    count = sum(name.startswith(PAST.format("")) for name in nets)
    return [cast(Network, nets[PAST.format(place)]) for place in range(count)]


def whole(nets: Mapping[str, nn.Module]) -> Network | Joined:
    """Return what predicts: the network, or, where extractors stand beside it, all of them as one."""
    net, before = cast(Network, nets["net"]), past(nets)
    return Joined([*before, net]) if before else net
