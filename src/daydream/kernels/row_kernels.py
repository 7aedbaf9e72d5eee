"""GPU kernels of `nets/cosine_ops.py`: rows of length 1, and scores by proxies, forward and back."""

import torch
import triton
import triton.language as tl
from torch import Tensor

LEAST = tl.constexpr(1e-8)  # in place of a shorter length, as for torch's cosines
VALUES = 2048  # of a program


@triton.jit
def unit_kernel(x_ptr, y_ptr, rows, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr):
    """Write x / |x| of BM rows [D]."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, DP)
    there = (row < rows)[:, None] & (d < D)[None, :]
    at = row[:, None] * D + d[None, :]
    x = tl.load(x_ptr + at, mask=there, other=0.0).to(tl.float32)
    length = tl.maximum(tl.sqrt(tl.sum(x * x, axis=1)), LEAST)
    tl.store(y_ptr + at, (x / length[:, None]).to(y_ptr.dtype.element_ty), mask=there)


@triton.jit
def unit_back_kernel(x_ptr, g_ptr, y_ptr, rows, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr):
    """Write (g - u (u g)) / |x| of BM rows, with u = x / |x|."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, DP)
    there = (row < rows)[:, None] & (d < D)[None, :]
    at = row[:, None] * D + d[None, :]
    x = tl.load(x_ptr + at, mask=there, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + at, mask=there, other=0.0).to(tl.float32)
    length = tl.maximum(tl.sqrt(tl.sum(x * x, axis=1)), LEAST)
    u = x / length[:, None]
    y = (g - u * tl.sum(u * g, axis=1)[:, None]) / length[:, None]
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=there)


@triton.jit
def similarities(cos_ptr, row, rows, SCALE: tl.constexpr, P: tl.constexpr, PP: tl.constexpr):
    """Return where proxies of rows lie, which there are, s = SCALE (cos - 1) and its softmax."""
    p = tl.arange(0, PP)
    there = (row < rows)[:, None] & (p < P)[None, :]
    at = row[:, None] * P + p[None, :]
    s = SCALE * (tl.load(cos_ptr + at, mask=there, other=0.0).to(tl.float32) - 1.0)
    s = tl.where((p < P)[None, :], s, float("-inf"))
    e = tl.exp(s - tl.max(s, axis=1)[:, None])
    weight = e / tl.sum(e, axis=1)[:, None]
    return at, there, tl.where((p < P)[None, :], s, 0.0), weight


@triton.jit
def nearest_kernel(cos_ptr, y_ptr, rows, SCALE: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, BM: tl.constexpr):
    """Write sum_p softmax_p(s) s of BM rows [P], one for each sample and class."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    _, _, s, weight = similarities(cos_ptr, row, rows, SCALE, P, PP)
    tl.store(y_ptr + row, tl.sum(weight * s, axis=1), mask=row < rows)


@triton.jit
def nearest_back_kernel(
    cos_ptr, g_ptr, y_ptr, rows, SCALE: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, BM: tl.constexpr
):
    """Write SCALE w_p (1 + s_p - sum_q w_q s_q) g of BM rows, with w = softmax(s)."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    at, there, s, weight = similarities(cos_ptr, row, rows, SCALE, P, PP)
    g = tl.load(g_ptr + row, mask=row < rows, other=0.0).to(tl.float32)
    y = SCALE * weight * (1.0 + s - tl.sum(weight * s, axis=1)[:, None]) * g[:, None]
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=there)


def portions(values: Tensor, width: int) -> tuple[int, int, tuple[int]]:
    """Return how many rows of a width a tensor has, how many a program takes, and the number of programs."""
    rows = values.numel() // width
    each = max(1, VALUES // triton.next_power_of_2(width))
    return rows, each, (-(-rows // each),)


def unit(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x / |x| along the last dimension."""
    x = x.contiguous()
    y, d = torch.empty_like(x, dtype=dtype), x.shape[-1]
    rows, each, grid = portions(x, d)
    unit_kernel[grid](x, y, rows, D=d, DP=triton.next_power_of_2(d), BM=each, num_warps=4)
    return y


def unit_back(x: Tensor, g: Tensor) -> Tensor:
    """Return the gradient for x, from that of `unit`."""
    x, g = x.contiguous(), g.contiguous()
    y, d = torch.empty_like(x), x.shape[-1]
    rows, each, grid = portions(x, d)
    unit_back_kernel[grid](x, g, y, rows, D=d, DP=triton.next_power_of_2(d), BM=each, num_warps=4)
    return y


def nearest(cosines: Tensor, proxies: int, scale: float) -> Tensor:
    """Return the scores [B, C] of cosines [B, C P]."""
    cosines = cosines.contiguous()
    rows, each, grid = portions(cosines, proxies)
    y = torch.empty(len(cosines), cosines.shape[1] // proxies, device=cosines.device)
    padded = triton.next_power_of_2(proxies)
    nearest_kernel[grid](cosines, y, rows, SCALE=scale, P=proxies, PP=padded, BM=each, num_warps=4)
    return y


def nearest_back(cosines: Tensor, g: Tensor, proxies: int, scale: float) -> Tensor:
    """Return the gradient for cosines, from that of `nearest`."""
    cosines, g = cosines.contiguous(), g.contiguous()
    rows, each, grid = portions(cosines, proxies)
    y, padded = torch.empty_like(cosines), triton.next_power_of_2(proxies)
    nearest_back_kernel[grid](cosines, g, y, rows, SCALE=scale, P=proxies, PP=padded, BM=each, num_warps=4)
    return y
