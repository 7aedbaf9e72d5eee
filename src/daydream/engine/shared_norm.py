"""Batch norm over a batch that several processes share: its statistics are those of the whole batch.

Shapes: x [B, C, ...], a process's share of the batch; statistics [C].
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from daydream.engine.distributed import together


class SharedNorm(TorchFunctionMode):
    """While it is on, every batch norm in train mode, whatever module calls it, is that of the whole batch."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.batch_norm:
            return batch_norm(self.share, *args, **(kwargs or {}))
        if func is torch.var_mean:  # of the batch's own images, for its guests
            return moments(self.share, args[0])[::-1]
        return func(*args, **(kwargs or {}))


class Summed(torch.autograd.Function):
    """The sum of a tensor over processes; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return _summed(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _summed(gradients[0])


def _summed(values: Tensor) -> Tensor:
    values = values.clone(memory_format=torch.contiguous_format)
    with together():
        dist.all_reduce(values)
    return values


def moments(share: float, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return m = sum_r s_r m_r over processes and v = sum_r s_r mean_r(x^2) - m^2 [C]: those of the whole batch.

    m_r are means over a process's samples, of which it has the share s_r.
    """
    values, dims = x.float(), [0, *range(2, x.ndim)]
    found: Tensor = Summed.apply(share * torch.stack([values.mean(dims), values.square().mean(dims)]))
    return found[0], (found[1] - found[0].square()).clamp(min=0)


def batch_norm(
    share: float,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """y = (x - m) / sqrt(v + eps) * weight + bias, as torch's, but in train mode with m and v of the whole batch."""
    if not training:
        return F.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    mean, var = moments(share, x)
    if running_mean is not None and running_var is not None:
        count = x.numel() / x.shape[1] / share
        with torch.no_grad():
            running_mean.lerp_(mean, momentum)
            running_var.lerp_(var * (count / (count - 1)), momentum)
    scale = (var + eps).rsqrt() if weight is None else (var + eps).rsqrt() * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    wide = (1, -1, *(1 for _ in x.shape[2:]))
    return (x.float() * scale.view(wide) + shift.view(wide)).to(x.dtype)
