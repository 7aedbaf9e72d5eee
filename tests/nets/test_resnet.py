"""The backbones: their size, their blocks against loops, and where a ReLU is and is not."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from daydream.nets.resnet import BACKBONES, Block, Subsample, batch_norm, parameter_count, pooled, stage


def randomised(module: nn.Module, seed: int = 0) -> nn.Module:
    """Give every weight and running statistic a random value, so that no part of a block is silent."""
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            for tensor in (part.weight, part.running_var):
                assert tensor is not None
                tensor.data.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
            for tensor in (part.bias, part.running_mean):
                assert tensor is not None
                tensor.data.copy_(0.3 * torch.randn(tensor.shape, generator=generator))
    return module.eval()


def parts(name: str) -> nn.Module:
    made = BACKBONES[name]()
    return nn.Sequential(made.stem, *made.stages)


def conv_norm(channels_in: int, channels_out: int, kernel: int = 3) -> int:
    """Weights of a convolution without bias and of the batch norm behind it."""
    return channels_in * channels_out * kernel**2 + 2 * channels_out


def plain_block(channels_in: int, channels_out: int) -> int:
    return conv_norm(channels_in, channels_out) + conv_norm(channels_out, channels_out)


def test_resnet32_has_the_parameters_of_its_description() -> None:
    by_hand = conv_norm(3, 16) + 5 * plain_block(16, 16)
    by_hand += plain_block(16, 32) + 4 * plain_block(32, 32)
    by_hand += plain_block(32, 64) + 3 * plain_block(64, 64)
    by_hand += plain_block(64, 64)
    assert parameter_count(parts("resnet32")) == by_hand
    assert round(by_hand / 1e6, 2) == 0.46


@pytest.mark.parametrize(("name", "kernel"), [("resnet18", 7), ("resnet18-small", 3)])
def test_resnet18_has_the_parameters_of_its_description(name: str, kernel: int) -> None:
    by_hand = conv_norm(3, 64, kernel) + 4 * conv_norm(64, 64)
    for width in (128, 256, 512):
        by_hand += plain_block(width // 2, width) + conv_norm(width // 2, width, 1) + plain_block(width, width)
    assert parameter_count(parts(name)) == by_hand
    assert round(by_hand / 1e6, 1) == 11.2


def test_resnet10_has_one_block_per_stage() -> None:
    by_hand = conv_norm(3, 16) + sum(plain_block(a, b) for a, b in [(16, 16), (16, 32), (32, 64), (64, 64)])
    assert parameter_count(parts("resnet10")) == by_hand


@pytest.mark.parametrize("name", BACKBONES)
def test_the_last_norm_of_each_block_starts_at_zero_and_no_other(name: str) -> None:
    blocks = [m for m in parts(name).modules() if isinstance(m, Block)]
    last = {id(block.norm2) for block in blocks}
    norms = [m for m in parts(name).modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(blocks) == {"resnet32": 15, "resnet10": 4}.get(name, 8)
    assert len(last) == len(blocks)
    assert all((block.norm2.weight == 0).all() and (block.norm2.bias == 0).all() for block in blocks)
    assert all((block.norm1.weight == 1).all() for block in blocks)
    assert sum(bool((norm.weight == 0).all()) for norm in norms) == len(blocks)


def test_a_block_starts_as_its_shortcut() -> None:
    x = torch.randn(2, 16, 4, 4)
    assert torch.equal(Block(16, 16, 1, rectify=False, project=False)(x), x)


def test_the_free_shortcut_takes_every_second_pixel_and_adds_zero_channels() -> None:
    x = torch.randn(2, 3, 7, 8, dtype=torch.float64)
    expected = torch.zeros(2, 8, 4, 4, dtype=torch.float64)
    for b in range(2):
        for c in range(3):
            for i in range(4):
                for j in range(4):
                    expected[b, c, i, j] = x[b, c, 2 * i, 2 * j]
    assert torch.equal(Subsample(2, 5)(x), expected)


def convolved(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Convolve with padding 1 by loops over the output's pixels."""
    padded = F.pad(x, (1, 1, 1, 1))
    side = (x.shape[2] - 1) // stride + 1
    out = torch.empty(len(x), len(weight), side, side, dtype=x.dtype)
    for i in range(side):
        for j in range(side):
            window = padded[:, :, stride * i : stride * i + 3, stride * j : stride * j + 3]
            out[:, :, i, j] = (window[:, None] * weight[None]).sum((2, 3, 4))
    return out


def normed(x: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    columns = [v.view(1, -1, 1, 1) for v in (norm.running_mean, norm.running_var, norm.weight, norm.bias)]
    mean, var, gamma, beta = columns
    return (x - mean) / (var + norm.eps).sqrt() * gamma + beta


@pytest.mark.parametrize("rectify", [False, True])
@pytest.mark.parametrize(("channels_out", "stride"), [(3, 1), (5, 2)])
def test_a_block_is_its_equation(rectify: bool, channels_out: int, stride: int) -> None:
    block = randomised(Block(3, channels_out, stride, rectify=rectify, project=False)).double()
    assert isinstance(block, Block)
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    start = x.clamp(min=0) if rectify else x
    hidden = normed(convolved(start, block.conv1.weight, stride), block.norm1).clamp(min=0)
    expected = normed(convolved(hidden, block.conv2.weight, 1), block.norm2)
    expected[:, :3] += start[:, :, ::stride, ::stride]
    torch.testing.assert_close(block(x), expected)


def test_resnet32_rectifies_no_sum() -> None:
    made = BACKBONES["resnet32"]()
    randomised(nn.Sequential(made.stem, *made.stages))
    x = made.stem(torch.randn(2, 3, 16, 16))
    assert (x >= 0).all()
    for part in made.stages:
        assert isinstance(part, nn.Sequential)
        for block in part:
            assert isinstance(block, Block)
            assert not block.rectify
            x = block(x)
            assert (x < 0).any()


@torch.no_grad()
@pytest.mark.parametrize("name", ["resnet18", "resnet18-small"])
def test_resnet18_equals_a_post_activation_resnet18_with_the_same_weights(name: str) -> None:
    made = BACKBONES[name]()
    whole = randomised(nn.Sequential(made.stem, *made.stages))
    x = torch.randn(2, 3, 32, 32)

    stem = made.stem
    assert isinstance(stem, nn.Sequential)
    stride = 2 if name == "resnet18" else 1
    y = F.conv2d(x, stem[0].weight, stride=stride, padding=3 if name == "resnet18" else 1)
    y = normed(y, stem[1]).relu()
    if name == "resnet18":
        y = F.max_pool2d(y, 3, 2, 1)
    before_relu = y
    for index, part in enumerate(made.stages):
        for number, block in enumerate(part.children()):
            assert isinstance(block, Block)
            first = number == 0 and index > 0
            out = normed(F.conv2d(y, block.conv1.weight, stride=2 if first else 1, padding=1), block.norm1).relu()
            out = normed(F.conv2d(out, block.conv2.weight, padding=1), block.norm2)
            if first:
                assert isinstance(block.shortcut, nn.Sequential)
                y = normed(F.conv2d(y, block.shortcut[0].weight, stride=2), block.shortcut[1])
            before_relu = out + y
            y = before_relu.relu()
        seen = made.stages[index]
        assert isinstance(seen, nn.Sequential)
    torch.testing.assert_close(whole(x), before_relu, rtol=1e-3, atol=1e-3)
    assert (before_relu < 0).any()


def test_only_the_first_block_of_a_stage_changes_the_shape() -> None:
    made = stage(4, 8, blocks=3, stride=2, rectify=False, project=True)
    strides = [block.conv1.stride for block in made]
    assert strides == [(2, 2), (1, 1), (1, 1)]
    assert [isinstance(block.shortcut, nn.Identity) for block in made] == [False, True, True]


def test_pooled_averages_pixels() -> None:
    maps = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    expected = torch.tensor([[sum(maps[b, c].flatten().tolist()) / 20 for c in range(3)] for b in range(2)])
    torch.testing.assert_close(pooled(maps), expected.double(), check_dtype=False, rtol=1e-6, atol=1e-6)


def test_a_norm_loads_weights_read_from_a_file() -> None:
    """A plain dict has no version number: torch then adds the counter that these norms do not have."""
    norm = randomised(batch_norm(4))
    weights = {name: value.clone() for name, value in norm.state_dict().items()}
    assert set(weights) == {"weight", "bias", "running_mean", "running_var"}
    fresh = batch_norm(4)
    fresh.load_state_dict(dict(weights))
    assert all(torch.equal(fresh.state_dict()[name], value) for name, value in weights.items())
    with pytest.raises(RuntimeError, match="Missing key"):
        fresh.load_state_dict({"weight": weights["weight"]})
