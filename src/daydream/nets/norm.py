"""Batch norm with guests: samples that pass with a batch and are normalised as it is, but do not enter its statistics.

In evaluation mode they would be normalised by the running statistics, which the weights do not move: then making the
weights larger pays, step after step, and passes in train and in evaluation mode drift apart
(docs/notebook/batch-norm.md).

Shapes: x [B + guests, C, ...]; statistics [C].
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Hosting:
    """What lets guests pass: in train mode the first `hosts` of a batch make the statistics, or without it all."""

    hosts: int | None = None


class Norm(Hosting, nn.BatchNorm2d):
    """Batch norm of maps."""

    running_mean: Tensor
    running_var: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.hosts is None or not self.training else hosted(self, x, self.hosts)


def hosted(norm: nn.BatchNorm2d, x: Tensor, hosts: int) -> Tensor:
    """y = (x - m) / sqrt(v + eps) * weight + bias, for all of x, with mean m and variance v of its first `hosts`.

    The gradient goes through m and v, as in any batch norm in train mode: that of the guests too.
    """
    real, guests = x.split([hosts, len(x) - hosts])
    momentum = norm.momentum
    assert momentum is not None
    y = F.batch_norm(real, norm.running_mean, norm.running_var, norm.weight, norm.bias, True, momentum, norm.eps)
    # Where processes share a batch, engine/shared_norm.py answers both this and batch_norm for the whole of it.
    var, mean = torch.var_mean(real.float(), [0, *range(2, x.ndim)], correction=0)
    wide = (1, -1, *(1 for _ in x.shape[2:]))
    scale = norm.weight * (var + norm.eps).rsqrt()
    z = guests * scale.view(wide) + (norm.bias - mean * scale).view(wide)
    return torch.cat([y, z.to(y.dtype)])
