"""Gates and what is left without the closed channels: gradients, shares, and equal answers before and after."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from daydream.nets import pruning
from daydream.nets.extractor import Extractor
from daydream.nets.resnet import BACKBONES, Block, parameter_count
from daydream.stages.losses import weight_share


def gated(backbone: str = "resnet10", shut: float = 0.4) -> Extractor:
    """Build a gated network in which no part is silent and a share of the gates is shut."""
    torch.manual_seed(0)
    net = Extractor(backbone, "plain", (3, 2), gated=True)
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 1.0)
            nn.init.normal_(part.bias, 0, 0.3)
            assert part.running_mean is not None
            nn.init.normal_(part.running_mean, 0, 0.3)
    for gate in pruning.gates(net):
        gate.data = torch.where(torch.rand(len(gate)) < shut, -1.0, 1.0)
    return net.eval()


def test_gates_begin_open() -> None:
    for gate in pruning.gates(Extractor("resnet32", "plain", gated=True)):
        assert bool((gate > 0).all())
        assert bool((gate < 2).all())


@pytest.mark.parametrize("s", [0.0025, 1.0, 7.0])
def test_the_gradient_is_compensated(s: float) -> None:
    gate, weight = (4 * torch.rand(9, dtype=torch.float64) - 2).requires_grad_(), torch.rand(9, dtype=torch.float64)
    sharpness = torch.tensor(s, dtype=torch.float64)
    mask = pruning.Compensated.apply(gate, sharpness)
    [found] = torch.autograd.grad((weight * mask).sum(), gate)
    plain = (sharpness * gate).sigmoid()
    assert torch.equal(mask, plain)
    [raw] = torch.autograd.grad((weight * plain).sum(), gate)
    for e, g, r in zip(gate.tolist(), found.tolist(), raw.tolist(), strict=True):
        one, sharp = 1 / (1 + math.exp(-e)), 1 / (1 + math.exp(-s * e))
        assert g == pytest.approx(r * one * (1 - one) / (s * sharp * (1 - sharp)), rel=1e-9)


def test_no_gradient_is_lost_where_sigmoids_underflow() -> None:
    gate = torch.tensor([1.0, -1.0, 6.0], requires_grad=True)
    [found] = torch.autograd.grad(pruning.Compensated.apply(gate, torch.tensor(400.0)).sum(), gate)
    opening = gate.detach().sigmoid()
    assert torch.equal(found, opening * (1 - opening))


@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_share_is_that_of_the_weights_left(backbone: str) -> None:
    net = gated(backbone)
    slim = net.pruned()

    def convolved(of: nn.Module) -> int:
        return sum(m.weight.numel() for m in of.modules() if isinstance(m, nn.Conv2d))

    assert float(weight_share(pruning.layers(net))) == pytest.approx(convolved(slim) / convolved(net), rel=1e-5)
    for gate in pruning.gates(net):
        gate.data.fill_(1.0)
    assert float(weight_share(pruning.layers(net))) == pytest.approx(1.0)


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("shut", [0.0, 0.4, 1.0])
def test_without_its_closed_channels_a_network_answers_the_same(backbone: str, shut: float, tmp_path: Path) -> None:
    net, x = gated(backbone, shut), torch.randn(3, 3, 32, 32)
    slim = net.pruned()
    save_file({k: v.contiguous() for k, v in slim.state_dict().items()}, tmp_path / "slim.safetensors")
    config = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(json.dumps(slim.config())).items()}
    again = Extractor(**config).eval()
    again.load_state_dict(load_file(tmp_path / "slim.safetensors"))
    with torch.no_grad():
        expected = net(x)
        assert float(expected.std()) > 0.01
        torch.testing.assert_close(slim(x), expected, rtol=1e-5, atol=1e-5)
        assert torch.equal(again(x), slim(x))
    assert parameter_count(slim) < parameter_count(net)


def test_a_mask_multiplies_the_inner_channels_in_a_pass_alone() -> None:
    net, x = gated(), torch.randn(2, 3, 16, 16)
    for gate in pruning.gates(net):
        gate.data.uniform_(-2, 2)
    block = pruning.slim_blocks(net)[0]
    assert isinstance(block.gate, Tensor)
    h = torch.randn(2, block.conv1.in_channels, 8, 8)
    with torch.no_grad():
        hard = net(x)
        with pruning.half_open(net, torch.tensor(1.5)):
            soft = block(h)
            y = torch.relu(block.norm1(block.conv1(h))) * torch.sigmoid(1.5 * block.gate)[:, None, None]
            torch.testing.assert_close(soft, block.norm2(block.conv2(y)) + h)
            assert not torch.allclose(net(x), hard)
        assert torch.equal(net(x), hard)


def test_kernels_made_for_blocks_do_not_take_these() -> None:
    """They would skip the mask and say nothing."""
    assert not any(isinstance(module, Block) for net in (gated(), gated().pruned()) for module in net.modules())


def test_without_gates_it_is_the_plain_extractor() -> None:
    net, x = gated(shut=0.0), torch.randn(2, 3, 16, 16)
    plain = net.ungated()
    assert plain.head.sizes == ()
    assert not pruning.slim_blocks(plain)
    assert not any(parameter.requires_grad for parameter in plain.parameters())
    with torch.no_grad():
        torch.testing.assert_close(plain.features(x), net.features(x))
