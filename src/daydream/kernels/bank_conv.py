"""GPU kernels of a bank's convolutions: samples of any classes forward, and the gradients of all classes side by side.

A group of samples is convolved by the weights of its class where they lie; torch would have them gathered first.

Of all classes side by side, grouped convolutions forward are torch's: fast. Backward, torch's took up to five times as
long. Here the gradient for the input is a grouped convolution forward, with the weights turned; that for the weights
is, for each class, a product of matrices, [N, P] of the gradient by [P, taps x K] of the maps as each tap sees them.

Maps lie in memory as pixels x channels (channels last), weights as C x N x taps x K. Shapes: P pixels of a batch of
maps of h x w, C classes, each of K channels read and N written.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from daydream.kernels.launches import blank, pixels, power


class Tile(NamedTuple):
    """The most of a product of matrices that a program takes: pixels at a time, rows and columns of the result."""

    pixels: int
    rows: int
    columns: int


class Share(NamedTuple):
    """The most of a group's convolution that a program takes: pixels, channels read at a time, channels written."""

    pixels: int
    read: int
    written: int


# Other tiles are not measured. Compiled for an H200 a program of `weigh` takes 96 KB of shared memory and up to 118
# registers for each of its 256 threads, so that two share a multiprocessor; 50 classes of 128 channels and 9 taps are
# 450 programs.
WEIGH = Tile(64, 128, 128)
CONVOLVE = Share(128, 64, 64)
STAGES = 3  # tiles on their way from memory
TURN = 64  # channels, either way, of a program of `turn`


@triton.jit
def convolve(
    x_ptr,  # maps [P, G, K]
    w_ptr,  # weights [C, N, taps, K]
    which_ptr,  # the class of each group [G]
    y_ptr,  # maps [P, G, N]
    P,
    G,
    H: tl.constexpr,
    W: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    SIZE: tl.constexpr,  # taps in a row
    BP: tl.constexpr,
    BK: tl.constexpr,
    BN: tl.constexpr,
):
    """Write BP pixels and BN channels of a group's convolution by the weights of its class."""
    taps: tl.constexpr = SIZE * SIZE
    parts: tl.constexpr = (K + BK - 1) // BK  # of the channels read
    own = tl.program_id(2)
    pixel = tl.program_id(0) * BP + tl.arange(0, BP)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    y = pixel // W % H
    x = pixel % W
    maps = x_ptr + pixel.to(tl.int64) * (G * K) + own * K
    weights = w_ptr + tl.load(which_ptr + own) * (N * taps * K) + n[None, :] * (taps * K)
    acc = tl.zeros([BP, BN], dtype=tl.float32)
    for step in range(taps * parts):
        tap = step // parts
        dy = tap // SIZE - SIZE // 2
        dx = tap % SIZE - SIZE // 2
        channel = step % parts * BK + k
        seen = (pixel < P) & (y + dy >= 0) & (y + dy < H) & (x + dx >= 0) & (x + dx < W)
        v = tl.load(
            maps[:, None] + ((dy * W + dx) * (G * K) + channel)[None, :],
            mask=seen[:, None] & (channel < K)[None, :],
            other=0.0,
        )
        w = tl.load(weights + (tap * K + channel)[:, None], mask=(channel < K)[:, None] & (n < N)[None, :], other=0.0)
        acc = tl.dot(v, w, acc, input_precision="ieee")
    at = pixel.to(tl.int64)[:, None] * (G * N) + own * N + n[None, :]
    tl.store(y_ptr + at, acc.to(y_ptr.dtype.element_ty), mask=(pixel < P)[:, None] & (n < N)[None, :])


def of_classes(x: Tensor, weight: Tensor, which: Tensor) -> Tensor:
    """Convolve maps [B, G * K, h, w] by weights [C, N, size, size, K] of their type: group g by those of `which[g]`."""
    groups, (written, size, _, read) = len(which), weight.shape[1:]
    x = x.contiguous(memory_format=torch.channels_last)
    y = blank(x, groups * written)
    share = Share(CONVOLVE.pixels, min(CONVOLVE.read, power(read)), min(CONVOLVE.written, power(written)))
    convolve[(triton.cdiv(pixels(x), share.pixels), triton.cdiv(written, share.written), groups)](
        x,
        weight,
        which.contiguous(),
        y,
        pixels(x),
        groups,
        H=x.shape[2],
        W=x.shape[3],
        K=read,
        N=written,
        SIZE=size,
        BP=share.pixels,
        BK=share.read,
        BN=share.written,
        num_warps=4,
        num_stages=STAGES,
    )
    return y


@triton.jit
def weigh(
    x_ptr,  # maps the convolution read [P, C, K]
    g_ptr,  # gradient of what it wrote [P, C, N]
    out_ptr,  # gradient for the weights [C, N, taps, K]
    P,
    C,
    H: tl.constexpr,
    W: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    SIZE: tl.constexpr,  # taps in a row
    BP: tl.constexpr,
    BN: tl.constexpr,
    BT: tl.constexpr,
):
    """Write, of a class, the sums over pixels of g[pixel, n] x[pixel + tap, k] for BN n and BT of all (tap, k)."""
    columns: tl.constexpr = SIZE * SIZE * K
    own = tl.program_id(2)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    column = tl.program_id(0) * BT + tl.arange(0, BT)
    tap = column // K
    dy = tap // SIZE - SIZE // 2
    dx = tap % SIZE - SIZE // 2
    row = tl.arange(0, BP)
    at_x = (row[:, None] + (dy * W + dx)[None, :]) * (C * K) + (own * K + column % K)[None, :]
    at_g = row[:, None] * (C * N) + (own * N + n)[None, :]
    far = tl.cast(C, tl.int64)  # all maps of a large bank have more numbers than an int32 counts
    acc = tl.zeros([BN, BT], dtype=tl.float32)
    for start in range(0, P, BP):
        inside = start + row < P
        # Where a tile is made of whole maps, what a tap sees of them is the same in every tile.
        pixel = row if BP % (H * W) == 0 else start + row
        y = (pixel // W % H)[:, None] + dy[None, :]
        x = (pixel % W)[:, None] + dx[None, :]
        seen = (y >= 0) & (y < H) & (x >= 0) & (x < W) & (column < columns)[None, :]
        v = tl.load(x_ptr + start * far * K + at_x, mask=seen & inside[:, None], other=0.0)
        g = tl.load(g_ptr + start * far * N + at_g, mask=inside[:, None] & (n < N)[None, :], other=0.0)
        acc = tl.dot(tl.trans(g), v, acc, input_precision="ieee")
    at = own.to(tl.int64) * N * columns + n[:, None] * columns + column[None, :]
    tl.store(out_ptr + at, acc, mask=(n < N)[:, None] & (column < columns)[None, :])


@triton.jit
def turn(
    w_ptr,  # weights [C, N, taps, K]
    out_ptr,  # the same [C, K, taps, N], taps in reverse
    TAPS: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    B: tl.constexpr,
):
    """Write the weights of the convolution that a gradient for the input is: B x B channels of a tap a program."""
    tap = tl.program_id(0) % TAPS
    k = tl.program_id(0) // TAPS * B + tl.arange(0, B)
    n = tl.program_id(1) * B + tl.arange(0, B)
    base = tl.program_id(2).to(tl.int64) * N * TAPS * K
    there = (n < N)[:, None] & (k < K)[None, :]
    w = tl.load(w_ptr + base + (n[:, None] * TAPS + tap) * K + k[None, :], mask=there, other=0.0)
    at = (k[:, None] * TAPS + TAPS - 1 - tap) * N + n[None, :]
    tl.store(out_ptr + base + at, tl.trans(w), mask=tl.trans(there))


def weighed(x: Tensor, g: Tensor, size: int, classes: int) -> Tensor:
    """Return the gradient [C, N, size, size, K], float32, for the weights of a convolution of x."""
    read, written = x.shape[1] // classes, g.shape[1] // classes
    out = torch.empty(classes, written, size, size, read, device=x.device)
    columns = size * size * read
    rows_each, columns_each = min(WEIGH.rows, power(written)), min(WEIGH.columns, power(columns))
    weigh[(triton.cdiv(columns, columns_each), triton.cdiv(written, rows_each), classes)](
        x,
        g,
        out,
        pixels(x),
        classes,
        H=x.shape[2],
        W=x.shape[3],
        K=read,
        N=written,
        SIZE=size,
        BP=WEIGH.pixels,
        BN=rows_each,
        BT=columns_each,
        num_warps=8 if rows_each * columns_each > 64 * 128 else 4,
        num_stages=STAGES,
    )
    return out


def turned(weight: Tensor) -> Tensor:
    """Return weights [C, N, size, size, K] as [C, K, size, size, N], rows and columns of taps in reverse."""
    classes, written, size, _, read = weight.shape
    out = weight.new_empty(classes, read, size, size, written)
    grid = (size * size * triton.cdiv(read, TURN), triton.cdiv(written, TURN), classes)
    turn[grid](weight, out, TAPS=size * size, K=read, N=written, B=TURN, num_warps=4)
    return out


def grouped(x: Tensor, weight: Tensor) -> Tensor:
    """Convolve maps [B, C * K, h, w] by weights [C, N, size, size, K], class by class."""
    flat = weight.flatten(0, 1).permute(0, 3, 1, 2)
    return F.conv2d(x, flat, padding=weight.shape[2] // 2, groups=len(weight))


class Convolved(torch.autograd.Function):
    """Grouped convolution forward, and back by the kernels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        cast = weight.permute(0, 1, 3, 4, 2).to(x.dtype).contiguous()
        ctx.save_for_backward(x, cast)
        return grouped(x, cast)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        g = g.contiguous(memory_format=torch.channels_last)
        wants_x, wants_weight = ctx.needs_input_grad
        dx = grouped(g, turned(weight)) if wants_x else None
        # As the weights lie on a GPU: nothing turns or casts it any more.
        dw = weighed(x, g, weight.shape[2], len(weight)).permute(0, 1, 4, 2, 3) if wants_weight else None
        return dx, dw


def convolved(x: Tensor, weight: Tensor) -> Tensor:
    """Convolve maps [B, C * in, h, w] by weights [C, out, in, size, size], class by class, in autocast's type."""
    x = x.to(torch.get_autocast_dtype(x.device.type)).contiguous(memory_format=torch.channels_last)
    y: Tensor = Convolved.apply(x, weight)
    return y
