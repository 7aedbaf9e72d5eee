"""Augmentation, a batch at once, against one image at a time."""

import math

import pytest
import torch
from torch import Tensor

from daydream.data.augment import AUGMENTATIONS, BRIGHTNESS, CropFlip, Draws, Plain, Prepare, ResizedCrop

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def images(count: int = 6, side: int = 16, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, side, side), generator=generator, dtype=torch.uint8)


def step(draws: Draws, index: int) -> Draws:
    return {name: values[index] for name, values in draws.items()}


def normalised(pixels: Tensor) -> Tensor:
    """[3, h, w] in [0, 255], channel by channel."""
    return torch.stack([(pixels[c].double() / 255 - MEAN[c]) / STD[c] for c in range(3)]).float()


def cropped_by_loop(image: Tensor, top: int, left: int, flip: bool, brightness: float, pad: int) -> Tensor:
    side = image.shape[1]
    padded = torch.zeros(3, side + 2 * pad, side + 2 * pad)
    padded[:, pad : pad + side, pad : pad + side] = image
    crop = padded[:, top : top + side, left : left + side]
    if flip:
        crop = torch.stack([crop[:, :, side - 1 - x] for x in range(side)], dim=2)
    return normalised((crop * brightness).clamp(0, 255))


def test_the_kernel_crops_and_flips_as_the_tensor_code_does() -> None:
    pytest.importorskip("triton", reason="needs triton")
    from daydream.data.augment import _shift_and_scale
    from daydream.kernels.crop import crop_flip

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # without a GPU in Triton's interpreter
    augment, stored = CropFlip(Prepare(MEAN, STD, 16)), images(5, 16)
    draws = step(augment.draw(torch.Generator().manual_seed(1), 1, 5), 0)
    given = [draws[name].to(device) for name in ("offset", "flip", "brightness")]
    found = crop_flip(stored.to(device), *given, *_shift_and_scale(MEAN, STD, device), pad=2)
    torch.testing.assert_close(found.cpu(), augment(stored, draws))
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("side", [16, 32])
def test_crop_and_flip_is_the_loops(side: int) -> None:
    augment = CropFlip(Prepare(MEAN, STD, side))
    stored = images(12, side)
    for index in range(2):
        draws = step(augment.draw(torch.Generator().manual_seed(3), 2, 12), index)
        found = augment(stored, draws)
        assert found.is_contiguous(memory_format=torch.channels_last)
        assert found.dtype == torch.float32
        for i in range(12):
            (top, left), flip = draws["offset"][i].tolist(), bool(draws["flip"][i])
            expected = cropped_by_loop(stored[i], top, left, flip, float(draws["brightness"][i]), side // 8)
            torch.testing.assert_close(found[i], expected, rtol=1e-5, atol=1e-5)


def test_brightness_saturates_at_white() -> None:
    augment = CropFlip(Prepare(MEAN, STD, 8))
    white = torch.full((1, 3, 8, 8), 250, dtype=torch.uint8)
    draws = {"offset": torch.ones(1, 2).long(), "flip": torch.tensor([False]), "brightness": torch.tensor([1.2])}
    assert torch.equal(augment(white, draws), Prepare(MEAN, STD, 8)(torch.full_like(white, 255)))


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_draws_are_per_image_and_follow_the_generator(name: str) -> None:
    augment = AUGMENTATIONS[name](Prepare(MEAN, STD, 32))
    draws = augment.draw(torch.Generator().manual_seed(1), 50, 40)
    again = augment.draw(torch.Generator().manual_seed(1), 50, 40)
    other = augment.draw(torch.Generator().manual_seed(2), 50, 40)
    for key, values in draws.items():
        assert values.shape[:2] == (50, 40)
        assert torch.equal(values, again[key])
        assert not torch.equal(values, other[key])
        assert values.flatten(0, 1).unique(dim=0).shape[0] > 1
    assert 0.45 < float(draws["flip"].float().mean()) < 0.55
    low, high = float(draws["brightness"].min()), float(draws["brightness"].max())
    assert 1 - 63 / 255 <= low < 1 - 0.98 * BRIGHTNESS
    assert 1 + 0.98 * BRIGHTNESS < high <= 1 + 63 / 255


@pytest.mark.parametrize(("side", "offsets"), [(32, 9), (64, 17)])
def test_every_offset_of_the_padded_image_is_drawn(side: int, offsets: int) -> None:
    offset = CropFlip(Prepare(MEAN, STD, side)).draw(torch.Generator().manual_seed(1), 50, 40)["offset"]
    assert [sorted(offset[..., axis].unique().tolist()) for axis in (0, 1)] == [list(range(offsets))] * 2


def test_drawn_boxes_lie_inside_and_have_the_promised_area_and_aspect() -> None:
    draws = ResizedCrop(Prepare(MEAN, STD, 32)).draw(torch.Generator().manual_seed(1), 50, 80)
    extent, centre = draws["extent"].double(), draws["centre"].double()
    assert (centre.abs() + extent <= 1 + 1e-6).all()
    area, aspect = extent.prod(-1), extent[..., 0] / extent[..., 1]
    assert 0.08 - 1e-6 <= float(area.min()) < 0.1
    assert 0.95 < float(area.max()) <= 1
    assert 3 / 4 - 1e-6 <= float(aspect.min()) < 0.77
    assert 1.31 < float(aspect.max()) <= 4 / 3 + 1e-6
    assert (centre[..., 0] > 0).any()
    assert (centre[..., 0] < 0).any()


def whole(count: int, **changes: Tensor) -> Draws:
    return {
        "extent": torch.ones(count, 2),
        "centre": torch.zeros(count, 2),
        "flip": torch.zeros(count, dtype=torch.bool),
        "brightness": torch.ones(count),
        **changes,
    }


def test_the_whole_box_at_the_same_size_is_the_image() -> None:
    prepare = Prepare(MEAN, STD, 16)
    found = ResizedCrop(prepare)(images(), whole(6))
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, prepare(images()), rtol=1e-4, atol=1e-4)


def test_the_whole_box_mirrored_is_the_mirror_image() -> None:
    prepare = Prepare(MEAN, STD, 16)
    flip = torch.tensor([True, False, True, True, False, False])
    found = ResizedCrop(prepare)(images(), whole(6, flip=flip))
    expected = torch.stack([image.flip(2) if f else image for image, f in zip(images(), flip, strict=True)])
    torch.testing.assert_close(found, prepare(expected), rtol=1e-4, atol=1e-4)


def test_a_quarter_of_the_image_at_half_the_size_is_cut_out() -> None:
    """Box [0, 8) x [8, 16) of 16 pixels: width before height in the draws."""
    centre = torch.tensor([[-0.5, 0.5]]).repeat(6, 1)
    found = ResizedCrop(Prepare(MEAN, STD, 8))(images(), whole(6, extent=torch.full((6, 2), 0.5), centre=centre))
    expected = Prepare(MEAN, STD, 8)(images()[:, :, 8:16, 0:8])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_box_is_resampled_as_the_loop_does() -> None:
    """Bilinear sampling at pixel centres, one output pixel at a time."""
    augment = ResizedCrop(Prepare(MEAN, STD, 8))
    stored = images(4, 12)
    draws = step(augment.draw(torch.Generator().manual_seed(8), 1, 4), 0)
    found = augment(stored, draws)
    for i in range(4):
        (width, height), (x0, y0) = draws["extent"][i].tolist(), draws["centre"][i].tolist()
        expected = torch.empty(3, 8, 8)
        for row in range(8):
            for col in range(8):
                shown = 7 - col if draws["flip"][i] else col
                x = ((x0 + width * ((2 * shown + 1) / 8 - 1)) + 1) * 6 - 0.5
                y = ((y0 + height * ((2 * row + 1) / 8 - 1)) + 1) * 6 - 0.5
                value = torch.zeros(3)
                for yy in (math.floor(y), math.floor(y) + 1):
                    for xx in (math.floor(x), math.floor(x) + 1):
                        weight = (1 - abs(x - xx)) * (1 - abs(y - yy))
                        value += weight * stored[i, :, min(max(yy, 0), 11), min(max(xx, 0), 11)]
                expected[:, row, col] = value
        expected = normalised((expected * float(draws["brightness"][i])).clamp(0, 255))
        torch.testing.assert_close(found[i], expected, rtol=1e-3, atol=1e-3)


def test_prepare_crops_the_centre_and_normalises() -> None:
    prepare = Prepare(MEAN, STD, 10)
    stored = images(3, 15)
    found = prepare(stored)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert found.shape == (3, 3, 10, 10)
    for i in range(3):
        torch.testing.assert_close(found[i], normalised(stored[i, :, 2:12, 2:12]), rtol=1e-5, atol=1e-5)


def test_no_augmentation_is_the_preparation() -> None:
    plain = Plain(Prepare(MEAN, STD, 16))
    assert plain.draw(torch.Generator(), 3, 6) == {}
    assert torch.equal(plain(images(), {}), plain.prepare(images()))
