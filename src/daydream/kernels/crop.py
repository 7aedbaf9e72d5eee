"""Crop, mirror, jitter and normalise a batch in one GPU kernel: what `CropFlip` does in some twenty."""

import torch
import triton
import triton.language as tl
from torch import Tensor

PIXELS = 256  # of a program


@triton.jit
def crop_flip_kernel(
    images_ptr,  # [B, 3, H, W] uint8
    offset_ptr,  # [B, 2]
    flip_ptr,  # [B]
    brightness_ptr,  # [B]
    shift_ptr,  # [3]
    scale_ptr,  # [3]
    out_ptr,  # [B, H, W, 3] float32
    total,
    H: tl.constexpr,
    W: tl.constexpr,
    PAD: tl.constexpr,
    BM: tl.constexpr,
):
    """Write (min(255, max(0, b v)) + shift) scale of the pixels v that a crop shows, 0 beyond the image."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, 4)
    there = rows < total
    image = rows // (H * W)
    y = rows // W % H + tl.load(offset_ptr + 2 * image, mask=there, other=0).to(tl.int32) - PAD
    x = rows % W
    flip = tl.load(flip_ptr + image, mask=there, other=0)
    x = tl.where(flip != 0, W - 1 - x, x) + tl.load(offset_ptr + 2 * image + 1, mask=there, other=0).to(tl.int32) - PAD
    inside = there & (y >= 0) & (y < H) & (x >= 0) & (x < W)
    colour = (c < 3)[None, :]
    at = (image * (3 * H * W) + y * W + x)[:, None] + (c * (H * W))[None, :]
    v = tl.load(images_ptr + at, mask=inside[:, None] & colour, other=0).to(tl.float32)
    v = v * tl.load(brightness_ptr + image, mask=there, other=0.0)[:, None]
    v = tl.minimum(tl.maximum(v, 0.0), 255.0)
    shift = tl.load(shift_ptr + c, mask=c < 3, other=0.0)
    scale = tl.load(scale_ptr + c, mask=c < 3, other=0.0)
    v = (v + shift[None, :]) * scale[None, :]
    tl.store(out_ptr + rows[:, None] * 3 + c[None, :], v, mask=there[:, None] & colour)


def crop_flip(
    images: Tensor, offset: Tensor, flip: Tensor, brightness: Tensor, shift: Tensor, scale: Tensor, pad: int
) -> Tensor:
    """Return augmented images [B, 3, H, W] float, channels last, of images [B, 3, H, W] uint8."""
    images = images.contiguous()
    b, _, h, w = images.shape
    out = torch.empty_like(images, dtype=torch.float32, memory_format=torch.channels_last)
    crop_flip_kernel[(-(-b * h * w // PIXELS),)](
        images, offset, flip, brightness, shift, scale, out, b * h * w, H=h, W=w, PAD=pad, BM=PIXELS, num_warps=4
    )
    return out
