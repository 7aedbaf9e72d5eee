"""MixUp replay: imagination with its generators replaced by pixel MixUp (the row "MixUp" of the paper's Table 1).

The paper defines it in one sentence: the feature generator is replaced by MixUp. What it leaves open, we settle so: a
counterpart is x~ = mu x_m + (1 - mu) x_u with mu ~ Beta(alpha, alpha), alpha = 1, of an exemplar and of an unlabelled
image mined as for a generator; it keeps the exemplar's label, since the other has none; it trains the whole network,
and batch norm treats it as it does imagined counterparts: by the statistics of the batch's own images, which it does
not enter.

Shapes: B exemplars in a batch, n counterparts of each.
"""

from typing import Any

import torch
from torch import Tensor

from daydream.components.imagination import Imagination, ImaginationSettings
from daydream.components.pile import FromPile
from daydream.data.images import ImageSet
from daydream.methods.method import Method
from daydream.nets.network import Company, Network
from daydream.stages.stage import Samples, State


class PixelMixup(Imagination):
    """Adds pixel mixtures of exemplars and unlabelled images to the stages that replay exemplars."""

    def __init__(self, settings: ImaginationSettings, method: Method[Any], pile: ImageSet) -> None:
        super().__init__(settings, method, pile)
        alpha = settings.mixup_alpha

        def share(generator: torch.Generator, steps: int, size: int) -> Tensor:
            a, b = torch._standard_gamma(torch.full((2, steps, size), alpha), generator=generator)
            found: Tensor = a / (a + b)
            return found

        self.noise = {"share": share}

    closing = FromPile.closing  # there is no generator to train

    def company(self, state: State, net: Network, exemplars: Samples, pile: Samples) -> Company:
        """Return what passes along with a batch: mixtures [B * n] of its exemplars [B] and a pile [B * n]."""
        u = pile.images.unflatten(0, (len(exemplars.images), -1))
        mu = pile.fields["share"].view(*u.shape[:2], 1, 1, 1)
        return Company(images=(mu * exemplars.images[:, None] + (1 - mu) * u).flatten(0, 1))


def imagination_of(settings: ImaginationSettings, method: Method[Any], pile: ImageSet) -> Imagination:
    """Return the component that makes a method's counterparts in its own way: by generators, or by mixing pixels."""
    kind = PixelMixup if method.imagines == "pixels" else Imagination
    return kind(settings, method, pile)
