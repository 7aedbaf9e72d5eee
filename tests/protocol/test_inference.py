"""A function over an image set: what comes out, and, on a device, in how few shapes the images go in."""

from collections.abc import Iterator

import pytest
import torch
from claimed_device import claimed_device
from torch import Tensor

from daydream.data.augment import Prepare
from daydream.data.images import ImageSet, Resident
from daydream.protocol import inference
from daydream.protocol.inference import batch_size, over_images, over_rows, portion

PREPARE = Prepare((0.5,) * 3, (0.25,) * 3, 4)
WEIGHTS = torch.linspace(-1, 1, 48).view(3, 4, 4)


def pictures(count: int) -> ImageSet:
    pixels = torch.randint(0, 256, (count, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(count))
    return ImageSet(Resident(pixels), torch.zeros(count, dtype=torch.int64), ("any",))


class Seen:
    """Weighs images, and notes how many came at once and whether cuDNN may try out its kernels."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.tuned: set[bool] = set()

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.sizes.append(len(x))
        self.tuned.add(torch.backends.cudnn.benchmark)
        return (x * WEIGHTS.to(x.device)).sum((1, 2, 3)), x.amax((2, 3))


@pytest.fixture
def tuning() -> Iterator[None]:
    """Let cuDNN try out its kernels, as a run on a GPU does."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    yield
    torch.backends.cudnn.benchmark = before


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize(
    ("count", "on_device", "on_cpu"),
    [(3, [4], [3]), (16, [16], [8, 8]), (32, [32], [8] * 4), (70, [32] * 3, [8] * 8 + [6])],
)
def test_every_image_is_judged_by_itself_in_batches_of_few_shapes(
    count: int, on_device: list[int], on_cpu: list[int], mirror: bool, monkeypatch: pytest.MonkeyPatch, tuning: None
) -> None:
    monkeypatch.setattr(inference, "BATCH", 32)
    images, here, there = pictures(count), Seen(), Seen()
    expected = over_images(here, images, PREPARE, mirror)
    whole = PREPARE(images.pixels.fetch(torch.arange(count)))
    torch.testing.assert_close(expected, Seen()(whole.flip(3) if mirror else whole))
    with claimed_device() as device:
        found = over_images(there, images.to(device), PREPARE, mirror)
        torch.testing.assert_close(tuple(part.cpu() for part in found), expected)
    assert here.sizes == on_cpu
    assert there.sizes == on_device
    assert there.tuned == {count > 32}  # a single batch is not worth the trying
    assert torch.backends.cudnn.benchmark


def test_rows_that_belong_together_stay_together(tuning: None) -> None:
    a, b = torch.randn(11, 2), torch.arange(11)
    sizes: list[int] = []

    def call(a: Tensor, b: Tensor) -> Tensor:
        sizes.append(len(a))
        assert not torch.backends.cudnn.benchmark
        return a * b[:, None]

    expected = a * b[:, None]
    assert torch.equal(over_rows(call, a, b, most=4), expected)
    with claimed_device() as device:
        assert torch.equal(over_rows(call, a.to(device), b.to(device), most=4).cpu(), expected)
    assert sizes == [4, 4, 3, 4, 4, 4]
    assert torch.backends.cudnn.benchmark


def test_a_batch_is_the_next_power_of_two() -> None:
    assert [portion(count, 512) for count in (0, 1, 2, 3, 5, 180, 256, 257, 5000)] == [
        1,
        1,
        2,
        4,
        8,
        256,
        256,
        512,
        512,
    ]


@pytest.mark.parametrize(
    ("side", "on_cpu", "on_device"), [(16, 128, 512), (32, 128, 512), (64, 32, 512), (96, 8, 128), (224, 8, 32)]
)
def test_of_large_images_fewer_pass_at_once(side: int, on_cpu: int, on_device: int) -> None:
    images = pictures(1000)
    assert batch_size(images, side) == on_cpu
    with claimed_device() as device:
        assert batch_size(images.to(device), side) == on_device
