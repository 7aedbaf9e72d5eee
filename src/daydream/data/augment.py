"""Augmentation as batched tensor code on the device, with its random numbers drawn beforehand.

An augmentation has two halves: `draw` makes an epoch's random numbers at once, on the CPU, from a named generator;
`__call__` is a pure function of images and one step's numbers. Nothing random happens inside a training step, so a step
can be captured as a CUDA graph and a resumed epoch sees the very numbers it would have seen.

Shapes: S steps, B images in a batch, 3 channels, H x W pixels stored, h x w pixels seen by the network.
"""

import functools
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream.fast import by_kernels

Draws = dict[str, Tensor]
BRIGHTNESS = 63 / 255  # the jitter of PODNet and of the paper's released code


@dataclass(frozen=True)
class Prepare:
    """Turn stored images into what a network sees at test time: centre crop to `size`, scale, normalise."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    size: int
    """The network's image side; a larger stored image is centre-cropped to it."""

    def __call__(self, images: Tensor) -> Tensor:
        """[B, 3, H, W] uint8 -> [B, 3, h, w] float, channels last."""
        return self.normalise(self.crop(images).float().contiguous(memory_format=torch.channels_last))

    def crop(self, images: Tensor) -> Tensor:
        """Return the centre [B, 3, h, w] of images [B, 3, H, W]."""
        top, left = (images.shape[2] - self.size) // 2, (images.shape[3] - self.size) // 2
        return images[:, :, top : top + self.size, left : left + self.size]

    def normalise(self, pixels: Tensor) -> Tensor:
        """Map float pixels in [0, 255] to zero mean and unit deviation per channel."""
        shift, scale = _shift_and_scale(self.mean, self.std, pixels.device)
        return (pixels + shift) * scale


@functools.lru_cache
def _shift_and_scale(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Keep the constants on the device: inside a captured step nothing may be copied there."""
    shift = torch.tensor(mean, device=device).mul(-255).view(1, 3, 1, 1)
    return shift, torch.tensor(std, device=device).mul(255).reciprocal().view(1, 3, 1, 1)


class Augment(Protocol):
    """A training augmentation that ends in normalised images."""

    @property
    def prepare(self) -> Prepare: ...

    def draw(self, generator: torch.Generator, steps: int, batch: int) -> Draws:
        """Return an epoch's random numbers, each [S, B, ...], on the CPU."""
        ...

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """[B, 3, H, W] uint8 and one step's numbers, each [B, ...] -> [B, 3, h, w] float."""
        ...

    def pixels(self, images: Tensor, draws: Draws) -> Tensor:
        """Return the images before they are normalised: floats in [0, 255]."""
        ...


@dataclass(frozen=True)
class Plain:
    """No augmentation: prepare the images as at test time."""

    prepare: Prepare

    def draw(self, generator: torch.Generator, steps: int, batch: int) -> Draws:
        return {}

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        return self.prepare(images)

    def pixels(self, images: Tensor, draws: Draws) -> Tensor:
        return self.prepare.crop(images).float()


@dataclass(frozen=True)
class CropFlip:
    """Crop after zero padding by an eighth of the side (4 pixels of 32), mirror, jitter the brightness."""

    prepare: Prepare

    def draw(self, generator: torch.Generator, steps: int, batch: int) -> Draws:
        reach = 2 * (self.prepare.size // 8) + 1
        return {
            "offset": torch.randint(0, reach, (steps, batch, 2), generator=generator),
            "flip": torch.rand(steps, batch, generator=generator) < 0.5,
            "brightness": 1 + BRIGHTNESS * (2 * torch.rand(steps, batch, generator=generator) - 1),
        }

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        if by_kernels(images):
            from daydream.kernels.crop import crop_flip

            constants, pad = (
                _shift_and_scale(self.prepare.mean, self.prepare.std, images.device),
                self.prepare.size // 8,
            )
            return crop_flip(images, draws["offset"], draws["flip"], draws["brightness"], *constants, pad)
        return self.prepare.normalise(self.pixels(images, draws))

    def pixels(self, images: Tensor, draws: Draws) -> Tensor:
        size, pad = images.shape[2], self.prepare.size // 8
        line = torch.arange(size, device=images.device)
        rows = draws["offset"][:, :1] + line - pad
        cols = draws["offset"][:, 1:] + torch.where(draws["flip"][:, None], size - 1 - line, line) - pad
        inside = ((rows >= 0) & (rows < size))[:, :, None] & ((cols >= 0) & (cols < size))[:, None, :]
        which = torch.arange(len(images), device=images.device)[:, None, None]
        # Indices around a slice put the channel last, so the permuted result is already channels-last in memory.
        pixels = images[which, :, rows.clamp(0, size - 1)[:, :, None], cols.clamp(0, size - 1)[:, None, :]]
        pixels = torch.where(inside[..., None], pixels, 0).permute(0, 3, 1, 2)
        return (pixels * draws["brightness"].view(-1, 1, 1, 1)).clamp(0, 255)


@dataclass(frozen=True)
class ResizedCrop:
    """Crop a random box (8% to 100% of the area, aspect 3/4 to 4/3) to the network's size, mirror, jitter."""

    prepare: Prepare

    def draw(self, generator: torch.Generator, steps: int, batch: int) -> Draws:
        def uniform(low: float, high: float) -> Tensor:
            return low + (high - low) * torch.rand(steps, batch, generator=generator)

        area, aspect = uniform(0.08, 1.0), uniform(-1, 1).mul(torch.tensor(4 / 3).log()).exp()
        extent = torch.stack([(area * aspect).sqrt(), (area / aspect).sqrt()], dim=-1).clamp(max=1.0)  # width, height
        centre = (1 - extent) * (2 * torch.rand(steps, batch, 2, generator=generator) - 1)
        return {
            "extent": extent,
            "centre": centre,
            "flip": torch.rand(steps, batch, generator=generator) < 0.5,
            "brightness": uniform(1 - BRIGHTNESS, 1 + BRIGHTNESS),
        }

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        return self.prepare.normalise(self.pixels(images, draws))

    def pixels(self, images: Tensor, draws: Draws) -> Tensor:
        sign = torch.where(draws["flip"], -1.0, 1.0)
        theta = torch.zeros(len(images), 2, 3, device=images.device)
        theta[:, 0, 0] = draws["extent"][:, 0] * sign
        theta[:, 1, 1] = draws["extent"][:, 1]
        theta[:, :, 2] = draws["centre"]
        grid = F.affine_grid(theta, [len(images), 3, self.prepare.size, self.prepare.size], align_corners=False)
        stored = images.float().contiguous(memory_format=torch.channels_last)
        pixels = F.grid_sample(stored, grid, padding_mode="reflection", align_corners=False)
        pixels = pixels.contiguous(memory_format=torch.channels_last)  # sampled pixels come channels first
        return (pixels * draws["brightness"].view(-1, 1, 1, 1)).clamp(0, 255)


AUGMENTATIONS: dict[str, type[CropFlip] | type[ResizedCrop]] = {"cifar": CropFlip, "imagenet": ResizedCrop}
