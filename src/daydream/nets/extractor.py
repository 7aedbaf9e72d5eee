"""Extractors side by side: networks whose features are laid end to end, under the one head of the newest.

In a state, those that came before are named `past.0`, `past.1`, …, oldest first, and the newest is `net`. A checkpoint
writes each past one once, as it never changes again. Features are in the order of age.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from daydream.nets.heads import HEADS, Head
from daydream.nets.network import Network

PAST = "past.{}"


class Extractor(Network):
    """A network whose head reads `inputs` features, those of the extractors before it and then its own."""

    def __init__(
        self, backbone: str, head: str, sizes: tuple[int, ...] = (), cut: str = "stage3", inputs: int | None = None
    ) -> None:
        super().__init__(backbone, head, (), cut)
        if inputs is not None:
            self.head = HEADS[head](inputs)
        for size in sizes:
            self.head.grow(size)

    def config(self) -> dict[str, Any]:
        return {**super().config(), "inputs": self.head.dim}

    def alone(self) -> "Extractor":
        """Return an equal extractor in evaluation mode that has no classes and whose weights do not train."""
        twin = type(self)(**{**self.config(), "sizes": (), "inputs": None})
        return cast(Extractor, with_weights_of(twin, self).eval().requires_grad_(False))


def with_weights_of(net: Network, other: Network) -> Network:
    """Give a network the weights and statistics of another's backbone, on its device."""
    net.to(next(other.parameters()).device)
    net.lower.load_state_dict(other.lower.state_dict())
    net.upper.load_state_dict(other.upper.state_dict())
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
