"""GPU kernels of a bank's batch norms: relu(norm(x)) and relu(norm(x) + side) of all classes, one pass there, one back.

A bank of 50 classes has 6,400 channels in each batch norm. Here a program takes some channels and passes over their
pixels twice: for the statistics, then, while they are still in the GPU's cache, to write. Back likewise, for the sums
that a batch norm's gradient is made of.

Maps lie in memory as pixels x channels (channels last). Shapes: P pixels of a batch of maps, G groups of K channels,
C = G K; norms hold [classes, K], statistics and sums in float32.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from daydream.kernels.launches import Tile, pixels
from daydream.kernels.stage_kernels import EPSILON, MOMENTUM

# Other tiles are not measured. 32 channels of bf16 are 64 bytes of a pixel, 50 classes of 128 channels 200 programs;
# compiled for an H200 they take at most 112 registers, so that two programs share a multiprocessor and all run at once.
TILE = Tile(128, 32, 8)
STAGES = 2  # 2: the next tile is on its way from memory while one is worked on


@triton.jit
def rectify(
    x_ptr,  # maps read [P, C]
    side_ptr,  # SIDE: maps added after the norm
    y_ptr,  # maps written
    mean_ptr,  # running mean, running variance, weight and bias [classes, K]
    var_ptr,
    weight_ptr,
    bias_ptr,
    which_ptr,  # WHICH: the class of each group [G]; otherwise group g is of class g
    used_ptr,  # TRAIN: mean and 1 / deviation [2, C], for the pass back
    P,
    C,
    K,
    TRAIN: tl.constexpr,
    TRACK: tl.constexpr,  # let the running statistics follow
    SIDE: tl.constexpr,
    WHICH: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write relu((x - mean) weight / deviation + bias), with a side relu(... + side): BC channels a program."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    there = c < C
    own = c
    if WHICH:
        own = tl.load(which_ptr + c // K, mask=there, other=0).to(tl.int32) * K + c % K
    row = tl.arange(0, BM)[:, None]
    at = row * C + c[None, :]
    far = tl.cast(C, tl.int64)  # all maps of a large bank have more numbers than an int32 counts
    if TRAIN:
        # Differences from the first pixel: sums of squares of numbers far from zero would cancel.
        first = tl.load(x_ptr + c, mask=there, other=0.0).to(tl.float32)
        one = tl.zeros([BM, BC], dtype=tl.float32)
        two = tl.zeros([BM, BC], dtype=tl.float32)
        for start in tl.range(0, P, BM, num_stages=STAGES):
            seen = (start + row < P) & there[None, :]
            v = tl.load(x_ptr + start * far + at, mask=seen, other=0.0).to(tl.float32)
            v = tl.where(seen, v - first[None, :], 0.0)
            one += v
            two += v * v
        off = tl.sum(one, axis=0) / P
        mean = first + off
        var = tl.maximum(tl.sum(two, axis=0) / P - off * off, 0.0)
        if TRACK:
            old_mean = tl.load(mean_ptr + own, mask=there, other=0.0)
            old_var = tl.load(var_ptr + own, mask=there, other=0.0)
            tl.store(mean_ptr + own, old_mean + MOMENTUM * (mean - old_mean), mask=there)
            tl.store(var_ptr + own, old_var + MOMENTUM * (var * (P / (P - 1.0)) - old_var), mask=there)
    else:
        mean = tl.load(mean_ptr + own, mask=there, other=0.0)
        var = tl.load(var_ptr + own, mask=there, other=0.0)
    deviation = tl.rsqrt(var + EPSILON)
    if TRAIN:
        tl.store(used_ptr + c, mean, mask=there)
        tl.store(used_ptr + C + c, deviation, mask=there)
    scale = tl.load(weight_ptr + own, mask=there, other=0.0) * deviation
    bias = tl.load(bias_ptr + own, mask=there, other=0.0)
    for start in tl.range(0, P, BM, num_stages=STAGES):
        seen = (start + row < P) & there[None, :]
        v = tl.load(x_ptr + start * far + at, mask=seen, other=0.0).to(tl.float32)
        v = (v - mean[None, :]) * scale[None, :] + bias[None, :]
        if SIDE:
            v += tl.load(side_ptr + start * far + at, mask=seen, other=0.0).to(tl.float32)
        v = tl.where(v < 0, 0.0, v)  # what is not a number stays none, and is found out
        tl.store(y_ptr + start * far + at, v.to(y_ptr.dtype.element_ty), mask=seen)


@triton.jit
def rectify_back(
    g_ptr,  # gradient of what was written [P, C]
    x_ptr,
    y_ptr,  # SIDE: what was written
    dx_ptr,
    dside_ptr,  # SIDE: gradient for the side
    weight_ptr,
    bias_ptr,
    used_ptr,  # mean and 1 / deviation [2, C]
    out_ptr,  # gradients for weight and bias [2, C]
    P,
    C,
    SIDE: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write the gradients of `rectify` in train mode. With n = (x - mean) / deviation and g past the ReLU:

    dweight = sum g n, dbias = sum g, dside = g, dx = weight / deviation (g - dbias / P - n dweight / P).
    """
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    there = c < C
    row = tl.arange(0, BM)[:, None]
    at = row * C + c[None, :]
    far = tl.cast(C, tl.int64)
    mean = tl.load(used_ptr + c, mask=there, other=0.0)
    deviation = tl.load(used_ptr + C + c, mask=there, other=0.0)
    scale = tl.load(weight_ptr + c, mask=there, other=0.0) * deviation
    bias = tl.load(bias_ptr + c, mask=there, other=0.0)
    one = tl.zeros([BM, BC], dtype=tl.float32)
    two = tl.zeros([BM, BC], dtype=tl.float32)
    for start in tl.range(0, P, BM, num_stages=STAGES):
        seen = (start + row < P) & there[None, :]
        g = tl.load(g_ptr + start * far + at, mask=seen, other=0.0).to(tl.float32)
        v = tl.load(x_ptr + start * far + at, mask=seen, other=0.0).to(tl.float32) - mean[None, :]
        if SIDE:
            written = tl.load(y_ptr + start * far + at, mask=seen, other=0.0).to(tl.float32)
            g = tl.where(written <= 0, 0.0, g)
            tl.store(dside_ptr + start * far + at, g.to(dside_ptr.dtype.element_ty), mask=seen)
        else:
            g = tl.where(v * scale[None, :] + bias[None, :] <= 0, 0.0, g)
        one += g
        two += g * v
    for_bias = tl.sum(one, axis=0)
    for_weight = tl.sum(two, axis=0) * deviation
    tl.store(out_ptr + c, for_weight, mask=there)
    tl.store(out_ptr + C + c, for_bias, mask=there)
    shift = for_bias / P
    slope = for_weight * deviation / P
    if SIDE:
        tl.debug_barrier()  # other threads of the program read what was written above
    for start in tl.range(0, P, BM, num_stages=STAGES):
        seen = (start + row < P) & there[None, :]
        v = tl.load(x_ptr + start * far + at, mask=seen, other=0.0).to(tl.float32) - mean[None, :]
        if SIDE:
            g = tl.load(dside_ptr + start * far + at, mask=seen, other=0.0).to(tl.float32)
        else:
            g = tl.load(g_ptr + start * far + at, mask=seen, other=0.0).to(tl.float32)
            g = tl.where(v * scale[None, :] + bias[None, :] <= 0, 0.0, g)
        v = (g - shift[None, :] - v * slope[None, :]) * scale[None, :]
        tl.store(dx_ptr + start * far + at, v.to(dx_ptr.dtype.element_ty), mask=seen)


class Norm(NamedTuple):
    """What a batch norm of a bank holds, each [classes, K]."""

    mean: Tensor
    var: Tensor
    weight: Tensor
    bias: Tensor


def forward(
    x: Tensor, side: Tensor | None, norm: Norm, which: Tensor | None, training: bool, track: bool
) -> tuple[Tensor, Tensor]:
    """Return relu(norm(x)) or relu(norm(x) + side), and in training mean and 1 / deviation [2, C] of the batch."""
    total, channels = pixels(x), x.shape[1]
    assert total > 1 or not training, "one value per channel has no variance"
    y = torch.empty_like(x)
    used = torch.empty(2, channels if training else 0, device=x.device)
    rectify[(-(-channels // TILE.channels),)](
        x,
        x if side is None else side,
        y,
        *norm,
        x if which is None else which.contiguous(),
        used,
        total,
        channels,
        norm.weight.shape[1],
        TRAIN=training,
        TRACK=track,
        SIDE=side is not None,
        WHICH=which is not None,
        BM=TILE.pixels,
        BC=TILE.channels,
        STAGES=STAGES,
        num_warps=TILE.warps,
    )
    return y, used


class Rectified(torch.autograd.Function):
    """relu(norm(x)) or relu(norm(x) + side) in train mode."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, side: Tensor | None, track: bool, *norm: Tensor) -> Tensor:
        held = Norm(*norm)
        y, used = forward(x, side, held, None, training=True, track=track)
        ctx.save_for_backward(x, None if side is None else y, held.weight, held.bias, used)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, y, weight, bias, used = ctx.saved_tensors
        g = g.contiguous(memory_format=torch.channels_last)
        channels = x.shape[1]
        dx, dside = torch.empty_like(x), None if y is None else torch.empty_like(x)
        out = torch.empty(2, *weight.shape, device=x.device)
        rectify_back[(-(-channels // TILE.channels),)](
            g,
            x,
            x if y is None else y,
            dx,
            dx if dside is None else dside,
            weight,
            bias,
            used,
            out,
            pixels(x),
            channels,
            SIDE=y is not None,
            BM=TILE.pixels,
            BC=TILE.channels,
            STAGES=STAGES,
            num_warps=TILE.warps,
        )
        return dx, dside, None, None, None, out[0], out[1]


def rectified(x: Tensor, side: Tensor | None, norm: Norm, which: Tensor | None, training: bool, track: bool) -> Tensor:
    """Return relu(norm(x)) or relu(norm(x) + side) of maps [N, G * K, h, w], channels last.

    In training by the maps' own statistics, which the running ones follow with `track`, and with a gradient. Otherwise
    by the running statistics of the classes `which` [G], or of all classes in order, and without one.
    """
    x = x.contiguous(memory_format=torch.channels_last)
    if side is not None:
        side = side.to(x.dtype).contiguous(memory_format=torch.channels_last)
    if training:
        assert which is None, "a bank trains all of its classes side by side"
        y: Tensor = Rectified.apply(x, side, track, *norm)
        return y
    return forward(x, side, norm, which, training=False, track=False)[0]
