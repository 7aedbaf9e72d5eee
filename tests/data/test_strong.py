"""Strong augmentation, a batch at once, against Pillow's operations on one image at a time."""

from collections.abc import Callable

import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from daydream.data.augment import CropFlip, Plain, Prepare, ResizedCrop
from daydream.data.strong import ENHANCING, GEOMETRIC, LEVELS, NUMBER, OPERATIONS, SIGNED, STRONGEST, Strong, operated

PREPARE = Prepare((0.5, 0.4, 0.3), (0.2, 0.25, 0.3), 32)


def pictures(count: int = 6, side: int = 32) -> Tensor:
    """Return smooth pictures, noise, a dark one, and one of a single colour: [B, 3, side, side], uint8."""
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(count, 3, 5, 5, generator=generator)
    found = torch.nn.functional.interpolate(coarse, (side, side), mode="bicubic").mul(255).clamp(0, 255)
    found[1] = torch.randint(0, 256, (3, side, side), generator=generator).float()
    found[2] = found[2] / 4 + 10
    found[3] = 77
    return found.to(torch.uint8)


def affine(*numbers: float) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, numbers)


def by_pillow(name: str, amount: float) -> Callable[[Image.Image], Image.Image]:
    """Return what Pillow does for an operation."""
    enhancers = dict(zip(ENHANCING, ("Brightness", "Color", "Contrast", "Sharpness"), strict=True))
    if name in enhancers:
        return lambda image: getattr(ImageEnhance, enhancers[name])(image).enhance(1 + amount)
    return {
        "identity": lambda image: image,
        "shear_x": affine(1, amount, 0, 0, 1, 0),
        "shear_y": affine(1, 0, 0, amount, 1, 0),
        "translate_x": affine(1, 0, amount, 0, 1, 0),
        "translate_y": affine(1, 0, 0, 0, 1, amount),
        "rotate": lambda image: image.rotate(amount),
        "posterize": lambda image: ImageOps.posterize(image, 8 - round(amount)),
        "solarize": lambda image: ImageOps.solarize(image, 255 - amount),
        "autocontrast": ImageOps.autocontrast,
        "equalize": ImageOps.equalize,
    }[name]


def amounts(name: str) -> list[float]:
    top = STRONGEST.get(name, 0.0)
    found = [top * level / LEVELS for level in (0, 7, 16, 30)]
    return [*found, *(-amount for amount in found)] if name in SIGNED else found


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_pillows(name: str) -> None:
    stored = pictures()
    for amount in amounts(name):
        found = operated(
            stored.float(), torch.full((len(stored),), NUMBER[name]), torch.full((len(stored),), float(amount))
        )
        changed = False
        for image, ours in zip(stored, found, strict=True):
            theirs = by_pillow(name, amount)(Image.fromarray(image.permute(1, 2, 0).numpy()))
            expected = torch.frombuffer(bytearray(theirs.tobytes()), dtype=torch.uint8).view(32, 32, 3).permute(2, 0, 1)
            changed = changed or not torch.equal(expected, image)
            apart = (ours - expected.float()).abs()
            # A place between two pixels, and a product that is a whole number, may be rounded to either side.
            assert float((apart > 0).float().mean()) < 0.03, (name, amount)
            assert name in GEOMETRIC or float(apart.max()) <= 1, (name, amount)
        assert changed == (name != "identity" and (amount != 0 or name in ("solarize", "autocontrast", "equalize")))


def test_each_image_of_a_batch_has_its_own_operation() -> None:
    stored = pictures(len(OPERATIONS))
    amount = torch.tensor([STRONGEST.get(name, 0.0) * 0.5 for name in OPERATIONS])
    together = operated(stored.float(), torch.arange(len(OPERATIONS)), amount)
    for number in range(len(OPERATIONS)):
        alone = operated(stored[number][None].float(), torch.tensor([number]), amount[number][None])
        assert torch.equal(together[number], alone[0])


def test_operations_levels_and_signs_are_drawn_evenly() -> None:
    draws = Strong(Plain(PREPARE)).draw(torch.Generator().manual_seed(1), 100, 280)
    counts = torch.bincount(draws["operation"].flatten(), minlength=len(OPERATIONS))
    assert float((counts / 28_000 - 1 / 14).abs().max()) < 0.006
    rotations = draws["amount"][draws["operation"] == NUMBER["rotate"]]
    assert len(rotations.unique()) == 2 * LEVELS + 1
    assert (float(rotations.min()), float(rotations.max())) == (-135, 135)
    assert float(draws["amount"][draws["operation"] == NUMBER["solarize"]].min()) >= 0


@pytest.mark.parametrize("weak", [Plain(PREPARE), CropFlip(PREPARE), ResizedCrop(PREPARE)])
def test_it_comes_after_crop_and_mirror_and_ends_in_normalised_images(weak: CropFlip) -> None:
    stored, strong = pictures(), Strong(weak)
    draws = {name: values[0] for name, values in strong.draw(torch.Generator().manual_seed(1), 1, len(stored)).items()}
    found = strong(stored, draws)
    expected = operated(weak.pixels(stored, draws).floor(), draws["operation"], draws["amount"])
    torch.testing.assert_close(found, PREPARE.normalise(expected))
    assert found.is_contiguous(memory_format=torch.channels_last)
    nothing = {**draws, "operation": torch.zeros_like(draws["operation"])}
    torch.testing.assert_close(strong(stored, nothing), weak(stored, draws), rtol=0, atol=1.01 / (255 * 0.2))
