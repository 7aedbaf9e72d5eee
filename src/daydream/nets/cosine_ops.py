"""Short passes over rows of features: each a kernel on a GPU, where torch would take three to nine.

Shapes: x [..., D]; cosines [B, C P] of C classes with P proxies each.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream.fast import by_kernels


def unit(x: Tensor) -> Tensor:
    """Return x / |x| along the last dimension; by kernels in float32, or under autocast in autocast's type."""
    if not by_kernels(x):
        return F.normalize(x, dim=-1)
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else torch.float32
    y: Tensor = Unit.apply(x, dtype)
    return y


def cosine(x: Tensor, y: Tensor) -> Tensor:
    """Return cos(x, y) of each row."""
    return cosine_of_units(x, y) if by_kernels(x) else F.cosine_similarity(x, y, dim=-1)


def cosine_of_units(x: Tensor, y: Tensor) -> Tensor:
    """Return cos(x, y) of each row as the product of rows of length 1, by kernels, in float32 under autocast too."""
    cosines: Tensor = (Unit.apply(x, torch.float32) * Unit.apply(y, torch.float32)).sum(-1)
    return cosines


def nearest_proxies(cosines: Tensor, proxies: int, scale: float) -> Tensor:
    """Return score_c = sum_p softmax_p(s_c) s_cp [B, C] of s_cp = scale (cos_cp - 1)."""
    if not by_kernels(cosines):
        s: Tensor = scale * (cosines - 1).unflatten(1, (-1, proxies))
        return (s.softmax(2) * s).sum(2)
    scores: Tensor = Nearest.apply(cosines, proxies, scale)
    return scores


class Unit(torch.autograd.Function):
    """Rows of length 1, by kernels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
        from daydream.kernels import row_kernels

        ctx.save_for_backward(x)
        with torch.cuda.device_of(x):
            return row_kernels.unit(x, dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        from daydream.kernels import row_kernels

        (x,) = ctx.saved_tensors
        with torch.cuda.device_of(x):
            return row_kernels.unit_back(x, g), None


class Nearest(torch.autograd.Function):
    """Scores of classes by their proxies, by kernels."""

    @staticmethod
    def forward(ctx: Any, cosines: Tensor, proxies: int, scale: float) -> Tensor:
        from daydream.kernels import row_kernels

        ctx.save_for_backward(cosines)
        ctx.proxies, ctx.scale = proxies, scale
        with torch.cuda.device_of(cosines):
            return row_kernels.nearest(cosines, proxies, scale)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        from daydream.kernels import row_kernels

        (cosines,) = ctx.saved_tensors
        with torch.cuda.device_of(cosines):
            return row_kernels.nearest_back(cosines, g, ctx.proxies, ctx.scale), None, None
