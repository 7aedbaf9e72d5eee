"""The kernels of `stage_kernels.py` as functions of maps: their sizes, their tiles, and what they leave out.

Shapes: maps [B, C, h, w], channels last; P = B h w pixels, K channels read, N written.
"""

import functools
import threading
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor, nn

from daydream.kernels import stage_kernels


class Tile(NamedTuple):
    """How a kernel divides its work: pixels and channels a program, and warps."""

    pixels: int
    channels: int
    warps: int


class Chunks(NamedTuple):
    """How the gradient for weights divides its work: chunks of pixels, pixels and taps at a time, and warps."""

    chunks: int
    pixels: int
    taps: int
    warps: int


class AllTaps(NamedTuple):
    """How the gradient for all taps by one product takes its work: pixels at a time, and a program's warps."""

    pixels: int
    warps: int


# Measured on an H200 at batch 128 and 240, alone and beside other runs (docs/notebook/training-step.md).
TILES = {16: Tile(256, 16, 2), 32: Tile(256, 32, 4), 64: Tile(128, 64, 4)}  # by channels written
WEIGHTS = {16: Chunks(128, 64, 4, 4), 32: Chunks(64, 64, 2, 4), 64: Chunks(32, 32, 1, 4)}  # by channels read
ALL_TAPS = {16: AllTaps(128, 4), 32: AllTaps(64, 4)}  # by channels, with stride 1; with 64 the product is too wide
ROWS = 64  # pixels of a program that passes over maps


dry = threading.local()
"""While `dry.compiles` is set, kernels of this thread are compiled and not run."""


@functools.cache
def overlaps(device: torch.device) -> bool:
    """Say whether a kernel can be launched while the one before it still runs: since Hopper, by Tritons that can."""
    return (
        device.type == "cuda"
        and torch.version.hip is None
        and hasattr(tl.extra.cuda, "gdc_wait")
        and torch.cuda.get_device_capability(device) >= (9, 0)
    )


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **constants: Any) -> None:
    """Run a kernel, or only see to it that it is compiled. Its first argument is a tensor."""
    early = overlaps(args[0].device)
    options = {**constants, "EARLY": early, **({"launch_pdl": True} if early else {})}
    if getattr(dry, "compiles", False):
        kernel.warmup(*args, grid=grid, **options)
    else:
        kernel[grid](*args, **options)


def power(count: int) -> int:
    """Return the next power of two, at least 16: what a matrix product on the GPU takes."""
    return max(16, 1 << (count - 1).bit_length())


def pixels(maps: Tensor, count: int | None = None) -> int:
    """Count the pixels of maps, or of the first `count` of them."""
    return (len(maps) if count is None else count) * maps.shape[2] * maps.shape[3]


def geometry(read: Tensor, written: Tensor) -> dict[str, int]:
    """Name the sizes of the maps a convolution reads and writes, as its kernels do."""
    (k, ih, iw), (n, oh, ow) = read.shape[1:], written.shape[1:]
    return {"IH": ih, "IW": iw, "K": k, "KP": power(k), "OH": oh, "OW": ow, "N": n}


def shortcut_of(maps: Tensor) -> dict[str, int]:
    """Name the sizes of a shortcut's maps, as the kernels do."""
    return dict(zip(("SC", "SH", "SW"), maps.shape[1:], strict=True))


def blank(like: Tensor, channels: int, stride: int = 1, dtype: torch.dtype | None = None) -> Tensor:
    """Return empty maps with other channels and every `stride`-th pixel."""
    b, _, h, w = like.shape
    shape = (b, channels, -(-h // stride), -(-w // stride))
    return torch.empty(shape, dtype=dtype or like.dtype, device=like.device, memory_format=torch.channels_last)


class Pass(NamedTuple):
    """One pass forward: what a layer left for the pass back."""

    x: Tensor
    """What its convolution read."""
    a: Tensor
    """The convolution's output."""
    norm: Tensor
    """Scale, shift, mean, 1 / deviation [4, C] of its batch norm."""


def convolve(
    x: Tensor,
    weight: Tensor,
    y: Tensor,
    *,
    stride: int = 1,
    back: bool = False,
    norm: nn.BatchNorm2d | None = None,
    side: Tensor | None = None,
    relu: bool = False,
    owner: Tensor | None = None,
    gate: Tensor | None = None,
    sums: Tensor | None = None,
    counted: int | None = None,
) -> None:
    """Run `stage_kernels.convolve` from maps x to maps y; add to `sums` where they are given.

    `side` are a shortcut's maps; `owner` the maps that a gradient belongs to, through the ReLU of `gate`; the first
    `counted` maps of y enter sums of y and y^2.
    """
    n = y.shape[1]
    tile = TILES[power(n)]
    total = pixels(y)
    blocks = -(-total // tile.pixels)
    many = 9 * weight.shape[1]
    mode = 0
    if side is not None:
        mode = 1 if side.shape[2] == y.shape[2] else 3 if back else 2
    stored = (norm.running_mean, norm.running_var, norm.weight, norm.bias) if norm is not None else (x, x, x, x)
    launch(
        stage_kernels.convolve,
        (blocks, power(n) // tile.channels),
        x,
        weight,
        y,
        x if side is None else side,
        *stored,
        x if owner is None else owner,
        x if gate is None else gate,
        x if sums is None else sums,
        total,
        pixels(y, counted),
        **geometry(x, y),
        NP=power(n),
        SK=many if back else 1,
        SN=1 if back else many,
        ST=weight.shape[1],
        STRIDE=stride,
        BACK=back,
        NORM=norm is not None,
        SIDE=mode,
        **shortcut_of(x if side is None else side),
        RELU=relu,
        MASK=gate is not None,
        SUMS=0 if sums is None else 2 if back else 1,
        BM=tile.pixels,
        BN=tile.channels,
        num_warps=tile.warps,
    )


def no_sums(count: int, channels: int, device: torch.device) -> Tensor:
    """Return `count` times sums [2 SLOTS + 1, C] that nothing has been added to yet."""
    return torch.zeros(count, 2 * stage_kernels.SLOTS.value + 1, channels, dtype=torch.int64, device=device)


def normalise(sums: Tensor | None, a: Tensor, norm: nn.BatchNorm2d, hosts: int) -> Tensor:
    """Return scale, shift, mean and 1 / deviation [4, C] by sums over the first `hosts` of a, or as they are stored."""
    channels = a.shape[1]
    out = torch.empty(4, channels, device=a.device)
    launch(
        stage_kernels.normalise,
        (1,),
        a if sums is None else sums,
        norm.running_mean,
        norm.running_var,
        norm.weight,
        norm.bias,
        out,
        pixels(a, hosts),
        C=channels,
        STORED=sums is None,
        num_warps=1,
    )
    return out


def normalise_back(sums: Tensor, passed: Pass, stored: bool, hosts: int) -> Tensor:
    """Return p, q, r and the gradients for weight and bias [5, C]."""
    channels = passed.a.shape[1]
    out = torch.empty(5, channels, device=sums.device)
    launch(
        stage_kernels.normalise_back,
        (1,),
        sums,
        passed.norm,
        out,
        pixels(passed.a, hosts),
        C=channels,
        STORED=stored,
        num_warps=1,
    )
    return out


def finish(a: Tensor, norm: Tensor, side: Tensor | None, relu: bool) -> Tensor:
    """Return scale a + shift, plus a shortcut, or rectified."""
    y = torch.empty_like(a)
    launch(
        stage_kernels.finish,
        (-(-pixels(a) // ROWS),),
        a,
        norm,
        a if side is None else side,
        y,
        pixels(a),
        OH=a.shape[2],
        OW=a.shape[3],
        N=a.shape[1],
        SIDE=0 if side is None else 1 if side.shape[2] == a.shape[2] else 2,
        **shortcut_of(a if side is None else side),
        RELU=relu,
        BM=ROWS,
        num_warps=4,
    )
    return y


def receive(g: Tensor, passed: Pass, relu: bool, sums: Tensor) -> Tensor:
    """Return a gradient from outside, past the ReLU if there is one, and add it to sums."""
    through = torch.empty_like(g) if relu else g
    launch(
        stage_kernels.receive,
        (-(-pixels(g) // (2 * ROWS)),),
        g,
        passed.a,
        passed.norm,
        through,
        sums,
        pixels(g),
        N=g.shape[1],
        MASK=relu,
        BM=2 * ROWS,
        num_warps=4,
    )
    return through


def differ(g: Tensor, passed: Pass, back: Tensor, hosts: int) -> Tensor:
    """Return p g + q a + r, and p g beyond the first `hosts` maps."""
    y, rows = torch.empty_like(g), ROWS
    total, grid = pixels(g), (-(-pixels(g) // rows),)
    launch(
        stage_kernels.differ, grid, g, passed.a, back, y, total, pixels(g, hosts), N=g.shape[1], BM=rows, num_warps=4
    )
    return y


def weigh(x: Tensor, g: Tensor, stride: int, out: Tensor) -> None:
    """Write the gradient for the weights of a convolution of x into `out` [chunks, out x 9 x in], to be added up."""
    if stride == 1 and x.shape == g.shape and x.shape[1] in ALL_TAPS:
        weigh_all(x, g, out)
        return
    plan = plan_of(x)
    launch(
        stage_kernels.weigh,
        (len(out), -(-9 // plan.taps)),
        x,
        g,
        out,
        pixels(g),
        out.stride(0),
        CHUNK=chunk_of(g, out, plan.pixels),
        **geometry(x, g),
        STRIDE=stride,
        TAPS=plan.taps,
        BM=plan.pixels,
        num_warps=plan.warps,
    )


def weigh_all(x: Tensor, g: Tensor, out: Tensor) -> None:
    """Do what `weigh` does with all taps in one product: with stride 1, as many channels read as written, and few."""
    _, channels, height, width = x.shape
    plan = ALL_TAPS[channels]
    launch(
        stage_kernels.weigh_all,
        (len(out),),
        x,
        g,
        out,
        pixels(g),
        out.stride(0),
        CHUNK=chunk_of(g, out, plan.pixels),
        H=height,
        W=width,
        K=channels,
        N=channels,
        BM=plan.pixels,
        num_warps=plan.warps,
    )


def chunk_of(g: Tensor, out: Tensor, each: int) -> int:
    """Return the pixels of each of the chunks that `out` has rows for, a multiple of `each`."""
    return -(-pixels(g) // (len(out) * each)) * each


def plan_of(x: Tensor) -> Chunks:
    return WEIGHTS[power(x.shape[1])]
