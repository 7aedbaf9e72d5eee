"""Strong augmentation: one of fourteen operations on every image (TrivialAugment Wide, ICCV 2021, arXiv 2103.10158).

The operation and its strength, one of 31 levels, are drawn evenly; nothing is tuned. It comes after crop and mirror, on
whole grey levels, as in the paper's code; what an operation leaves empty is black.

No image waits for another: the operations fall into three groups, and a batch passes each group once, in which every
image has parameters of its own, those of no effect where its operation is of another group.

- where a pixel comes from: an affine map of places, the nearest pixel taken;
- what a grey level becomes: a table of 256 entries for each image and channel;
- how far a pixel is from another version of the image, grey or smoothed.

Shapes: S steps, B images of h x w pixels, in float but whole numbers from 0 to 255.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream.data.augment import Augment, Draws, Prepare

GEOMETRIC = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")
ENHANCING = ("brightness", "colour", "contrast", "sharpness")
OPERATIONS = ("identity", *GEOMETRIC, *ENHANCING, "posterize", "solarize", "autocontrast", "equalize")
LEVELS = 30
STRONGEST = {
    **dict.fromkeys(("shear_x", "shear_y"), 0.99),
    **dict.fromkeys(("translate_x", "translate_y"), 32.0),
    "rotate": 135.0,
    **dict.fromkeys(ENHANCING, 0.99),
    "posterize": 6.0,
    "solarize": 255.0,
}
"""What the highest level is, in the units of the operation: those with a sign take either."""
SIGNED = frozenset((*GEOMETRIC, *ENHANCING))
NUMBER = {name: place for place, name in enumerate(OPERATIONS)}


@dataclass(frozen=True)
class Strong:
    """Another augmentation, and then one random operation."""

    weak: Augment

    @property
    def prepare(self) -> Prepare:
        return self.weak.prepare

    def draw(self, generator: torch.Generator, steps: int, batch: int) -> Draws:
        operation = torch.randint(len(OPERATIONS), (steps, batch), generator=generator)
        level = torch.randint(LEVELS + 1, (steps, batch), generator=generator)
        sign = 2 * torch.randint(2, (steps, batch), generator=generator) - 1
        top = torch.tensor([STRONGEST.get(name, 0.0) for name in OPERATIONS])[operation]
        signed = torch.tensor([name in SIGNED for name in OPERATIONS])[operation]
        amount = top * level / LEVELS * torch.where(signed, sign, 1)
        own = {"operation": operation, "amount": amount}
        return {**self.weak.draw(generator, steps, batch), **own}

    def pixels(self, images: Tensor, draws: Draws) -> Tensor:
        return operated(self.weak.pixels(images, draws).floor(), draws["operation"], draws["amount"])

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        pixels = self.pixels(images, draws).contiguous(memory_format=torch.channels_last)
        return self.prepare.normalise(pixels)


def operated(pixels: Tensor, operation: Tensor, amount: Tensor) -> Tensor:
    """Return images [B, 3, h, w] after the operation [B] of each, by its amount [B]."""
    chosen = {name: operation == number for name, number in NUMBER.items()}
    return enhanced(mapped(moved(pixels, chosen, amount), chosen, amount), chosen, amount)


def moved(pixels: Tensor, chosen: dict[str, Tensor], amount: Tensor) -> Tensor:
    """Return images [B, 3, h, w] whose pixels come from elsewhere: shears, translations, rotations."""
    height, width = pixels.shape[2:]
    by = {name: torch.where(chosen[name], amount, 0.0) for name in GEOMETRIC}
    angle = by["rotate"].deg2rad()
    cos, sin = angle.cos(), angle.sin()
    y = torch.arange(height, device=pixels.device)[None, :, None] + 0.5
    x = torch.arange(width, device=pixels.device)[None, None, :] + 0.5
    across, down = x - width / 2, y - height / 2

    def each(values: Tensor) -> Tensor:
        return values[:, None, None]

    # Rotation is about the middle, a shear about the corner, as Pillow does them.
    from_x = each(cos) * across - each(sin) * down + width / 2 + each(by["shear_x"]) * y + each(by["translate_x"])
    from_y = each(sin) * across + each(cos) * down + height / 2 + each(by["shear_y"]) * x + each(by["translate_y"])
    column, row = from_x.floor().long(), from_y.floor().long()
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    place = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).flatten(1)
    found = pixels.flatten(2).gather(2, place[:, None].expand(-1, 3, -1)).view_as(pixels)
    return torch.where(inside[:, None], found, 0.0)


def mapped(pixels: Tensor, chosen: dict[str, Tensor], amount: Tensor) -> Tensor:
    """Return images [B, 3, h, w] whose grey levels went through a table of their operation's."""
    level = torch.arange(256.0, device=pixels.device).expand(len(pixels), 3, -1)

    def each(values: Tensor) -> Tensor:
        return values[:, None, None]

    factor = each(1 + amount)
    middle = each((grey(pixels).mean(dim=(1, 2), dtype=torch.float64) + 0.5).floor().float())
    grain = each(torch.exp2(amount.round()))
    tables = {
        "brightness": (factor * level).clamp(0, 255).floor(),
        "contrast": (middle + factor * (level - middle)).clamp(0, 255).floor(),
        "posterize": (level / grain).floor() * grain,
        "solarize": torch.where(level < each(255 - amount), level, 255 - level),
        "autocontrast": stretched(pixels, level),
        "equalize": equalized(pixels),
    }
    table = level
    for name, own in tables.items():
        table = torch.where(each(chosen[name]), own, table)
    return table.gather(2, pixels.flatten(2).long()).view_as(pixels)


def enhanced(pixels: Tensor, chosen: dict[str, Tensor], amount: Tensor) -> Tensor:
    """Return images [B, 3, h, w] nearer to, or further from, their grey or their smoothed version."""

    def each(values: Tensor) -> Tensor:
        return values[:, None, None, None]

    other = torch.where(each(chosen["colour"]), grey(pixels)[:, None], pixels)
    other = torch.where(each(chosen["sharpness"]), smoothed(pixels), other)
    return (other + each(1 + amount) * (pixels - other)).clamp(0, 255).floor()


def grey(pixels: Tensor) -> Tensor:
    """Return the brightness [B, h, w] of pixels, as Pillow has it: (19595 R + 38470 G + 7471 B + 2^15) / 2^16."""
    red, green, blue = pixels.unbind(1)
    return ((19595 * red + 38470 * green + 7471 * blue + 2**15) / 2**16).floor()


def smoothed(pixels: Tensor) -> Tensor:
    """Return images whose inner pixels are means of their neighbours and five times themselves."""
    height, width = pixels.shape[2:]
    inner = pixels[:, :, 1:-1, 1:-1]
    total = 4 * inner
    for down in range(3):
        for across in range(3):
            total = total + pixels[:, :, down : height - 2 + down, across : width - 2 + across]
    # What is added at the edge is zero, so that its pixels stay.
    return pixels + F.pad((total / 13 + 0.5).floor() - inner, (1, 1, 1, 1))


def stretched(pixels: Tensor, level: Tensor) -> Tensor:
    """Return the tables [B, 3, 256] that stretch every channel to all grey levels."""
    low, high = pixels.amin(dim=(2, 3))[..., None], pixels.amax(dim=(2, 3))[..., None]
    stretch = ((level - low) * 255 / (high - low).clamp(min=1)).floor().clamp(0, 255)
    return torch.where(high > low, stretch, level)


def equalized(pixels: Tensor) -> Tensor:
    """Return the tables [B, 3, 256] that spread every channel's grey levels evenly."""
    flat = pixels.flatten(2)
    counts = torch.zeros(*flat.shape[:2], 256, device=pixels.device)
    counts = counts.scatter_add(2, flat.long(), torch.ones_like(flat))
    last = counts.gather(2, flat.amax(dim=2, keepdim=True).long())
    step = ((flat.shape[2] - last) / 255).floor()
    below = counts.cumsum(2) - counts
    table = ((below + (step / 2).floor()) / step.clamp(min=1)).floor().clamp(0, 255)
    return torch.where(step > 0, table, torch.arange(256.0, device=pixels.device))
