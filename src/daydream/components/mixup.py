"""MixUp replay: imagination with its generators replaced by pixel MixUp (the row "MixUp" of the paper's Table 1).

The paper defines it in one sentence: the feature generator is replaced by MixUp. What it leaves open, we settle so: a
counterpart is x~ = mu x_m + (1 - mu) x_u with mu ~ Beta(alpha, alpha), alpha = 1, of an exemplar and of an unlabelled
image mined as for a generator; it keeps the exemplar's label, since the other has none; it trains the whole network,
and batch norm treats it as it does imagined counterparts: by the statistics of the batch's own images, which it does
not enter.

Shapes: B exemplars in a batch, n counterparts of each.
"""

from types import MappingProxyType

import torch
from torch import Tensor

from daydream.components.imagination import Imagination
from daydream.components.pile import FromPile
from daydream.nets.network import Company, Network
from daydream.stages.stage import Samples, State

ALPHA = 1.0


def draw_share(generator: torch.Generator, steps: int, size: int) -> Tensor:
    """Draw the exemplars' shares mu ~ Beta(alpha, alpha) [steps, size]."""
    a, b = torch._standard_gamma(torch.full((2, steps, size), ALPHA), generator=generator)
    found: Tensor = a / (a + b)
    return found


class PixelMixup(Imagination):
    """Adds pixel mixtures of exemplars and unlabelled images to the stages that replay exemplars."""

    noise = MappingProxyType({"share": draw_share})
    generates = False
    closing = FromPile.closing  # there is no generator to train

    def company(self, state: State, net: Network, exemplars: Samples, pile: Samples) -> Company:
        """Return what passes along with a batch: mixtures [B * n] of its exemplars [B] and a pile [B * n]."""
        u = pile.images.unflatten(0, (len(exemplars.images), -1))
        mu = pile.fields["share"].view(*u.shape[:2], 1, 1, 1)
        return Company(images=(mu * exemplars.images[:, None] + (1 - mu) * u).flatten(0, 1))
