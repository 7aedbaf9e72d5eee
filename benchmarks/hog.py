"""Histograms of oriented gradients (Dalal and Triggs 2005): what one computed of a picture before there were networks.

Grey values of 64 x 64 pixels, cells of 8 x 8, nine unsigned orientations, each gradient shared between the two nearest;
blocks of 2 x 2 cells at unit length, clipped at 0.2, at unit length again: 1,764 numbers a picture.

Shapes: N pictures, H x W pixels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

SIDE, CELL, ORIENTATIONS, CLIP = 64, 8, 9, 0.2
GREY = (0.299, 0.587, 0.114)
CHUNK = 500


def hog(pixels: Tensor) -> Tensor:
    """Return features [N, 1764] of pictures [N, 3, H, W], uint8."""
    return torch.cat([_hog(part) for part in pixels.split(CHUNK)])


def _hog(pixels: Tensor) -> Tensor:
    grey = (pixels.float() * torch.tensor(GREY).view(3, 1, 1)).sum(1, keepdim=True)
    if grey.shape[2:] != (SIDE, SIDE):
        grey = F.interpolate(grey, (SIDE, SIDE), mode="bilinear", antialias=True)
    padded = F.pad(grey, (1, 1, 1, 1), mode="replicate")
    across = padded[:, 0, 1:-1, 2:] - padded[:, 0, 1:-1, :-2]
    down = padded[:, 0, 2:, 1:-1] - padded[:, 0, :-2, 1:-1]
    length = torch.hypot(across, down)
    place = torch.atan2(down, across) / torch.pi % 1 * ORIENTATIONS
    lower = place.floor()
    share = place - lower
    first, second = lower.long() % ORIENTATIONS, (lower.long() + 1) % ORIENTATIONS
    votes = torch.zeros(len(grey), ORIENTATIONS, SIDE, SIDE)
    votes.scatter_add_(1, first[:, None], (length * (1 - share))[:, None])
    votes.scatter_add_(1, second[:, None], (length * share)[:, None])
    cells = F.avg_pool2d(votes, CELL)
    blocks = F.unfold(cells, 2).transpose(1, 2)
    return F.normalize(F.normalize(blocks, dim=2).clamp(max=CLIP), dim=2).flatten(1)
