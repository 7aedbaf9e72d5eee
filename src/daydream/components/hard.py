"""Hard counterparts: an exemplar's map, moved to where the current network is less sure of its class.

A generator's counterparts are learnt by heart within an increment (their loss falls to nothing), so they stop teaching.
These are made anew in every step against the network as it is, without a generator (after CCFA, AAAI 2024, and MRFA,
ICML 2024, which move features and inputs): with h the exemplar's map, g the gradient of its cross-entropy to h, and a
share r ~ U(0, 1) drawn for each counterpart,

    h' = h + REACH r |h| g / |g|.

A control: it answers whether counterparts that no increment can learn by heart would pay. They did not clear the bar of
equal weights (docs/notebook/controls.md), so no recipe has them.

Shapes: B exemplars in a batch, n counterparts of each, c x h x w maps.
"""

from types import MappingProxyType

import torch
from torch import Tensor

from daydream.components.imagination import Imagination
from daydream.components.pile import FromPile
from daydream.nets.network import Company, Network, in_mode
from daydream.nets.side_streams import Beside, InLine
from daydream.stages.stage import Samples, State

REACH = 0.5
"""How far a map moves at most, as a share of its length."""


def draw_reach(generator: torch.Generator, steps: int, size: int) -> Tensor:
    """Draw how far each counterpart moves, as a share of the most [steps, size]."""
    return torch.rand(steps, size, generator=generator)


class HardCounterparts(Imagination):
    """Counterparts moved up the current network's loss, in place of generators'."""

    generates = False
    noise = MappingProxyType({"reach": draw_reach})
    closing = FromPile.closing

    def company(self, state: State, net: Network, exemplars: Samples, pile: Samples) -> Company:
        """Return what passes along with a batch: moved maps [B * n] of its exemplars [B]."""

        def made() -> tuple[Tensor, Beside]:
            with in_mode(net, training=False):
                with torch.no_grad():
                    maps = net.lower(exemplars.images)
                uphill = self.uphill(state, net, maps, exemplars.labels)
            moves = pile.fields["reach"].view(len(maps), -1, 1, 1, 1) * (REACH * uphill)[:, None]
            return (maps[:, None] + moves).flatten(0, 1), InLine()

        return Company(maps=made)

    def uphill(self, state: State, net: Network, maps: Tensor, labels: Tensor) -> Tensor:
        """Return for each map [B, c, h, w] a move of its own length up the network's loss."""
        with torch.enable_grad():
            at = maps.detach().requires_grad_()
            loss = self.method.classification(state, net.upper(at), labels)
            [slope] = torch.autograd.grad(loss, at)
        length = maps.flatten(1).norm(dim=1) / slope.flatten(1).norm(dim=1).clamp(min=1e-12)
        move: Tensor = length.view(-1, 1, 1, 1) * slope
        return move
