"""Batch norm with guests, against sums over samples and pixels in float64."""

import copy

import pytest
import torch
from torch import Tensor, nn

from daydream.nets.network import Company, Network
from daydream.nets.norm import Norm
from daydream.nets.side_streams import beside
from daydream.nets.timm_backbone import _with_guests

HOSTS, GUESTS, CHANNELS, SIDE = 4, 3, 5, 2


def made(hosts: int | None) -> Norm:
    torch.manual_seed(0)
    norm = Norm(CHANNELS).double()
    for values in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
        nn.init.uniform_(values, 0.5, 1.5)
    norm.hosts = hosts
    return norm


def by_hand(norm: Norm, x: Tensor) -> Tensor:
    """Normalise each channel by the mean and variance of the hosts' pixels."""
    channels = []
    for c in range(CHANNELS):
        pixels = [x[i, c, j, k] for i in range(HOSTS) for j in range(SIDE) for k in range(SIDE)]
        mean = sum(pixels, start=x.new_zeros(())) / len(pixels)
        var = sum(((p - mean) ** 2 for p in pixels), start=x.new_zeros(())) / len(pixels)
        channels.append((x[:, c] - mean) / (var + norm.eps).sqrt() * norm.weight[c] + norm.bias[c])
    return torch.stack(channels, dim=1)


def test_guests_are_normalised_by_the_hosts_statistics_forward_and_back() -> None:
    norm = made(HOSTS)
    x = torch.randn(HOSTS + GUESTS, CHANNELS, SIDE, SIDE, dtype=torch.float64, requires_grad=True)
    g = torch.randn_like(x)
    inputs = (x, norm.weight, norm.bias)
    wanted, found = by_hand(norm, x), norm(x)
    torch.testing.assert_close(found, wanted)
    for mine, theirs in zip(torch.autograd.grad(found, inputs, g), torch.autograd.grad(wanted, inputs, g), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_guests_do_not_enter_the_running_statistics() -> None:
    x = torch.randn(HOSTS + GUESTS, CHANNELS, SIDE, SIDE, dtype=torch.float64)
    with_guests, without = made(HOSTS), made(None)
    with_guests(x)
    without(x[:HOSTS])
    assert torch.equal(with_guests.running_mean, without.running_mean)
    assert torch.equal(with_guests.running_var, without.running_var)


def test_in_evaluation_mode_there_are_no_hosts() -> None:
    x = torch.randn(HOSTS + GUESTS, CHANNELS, SIDE, SIDE, dtype=torch.float64)
    assert torch.equal(made(HOSTS).eval()(x), made(None).eval()(x))


def test_larger_weights_change_nothing_for_guests_either() -> None:
    """What evaluation mode lacks: a loss on guests alone has no gradient along the weights before a batch norm."""
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(3, CHANNELS, 3, bias=False).double(), made(HOSTS)
    norm.eps = 1e-12
    x = torch.randn(HOSTS + GUESTS, 3, 6, 6, dtype=torch.float64)

    def along(training: bool) -> float:
        norm.train(training)
        norm.hosts = HOSTS
        loss = norm(conv(x))[HOSTS:].square().sum()
        (g,) = torch.autograd.grad(loss, conv.weight)
        return float(((g * conv.weight).sum().abs() / (g.norm() * conv.weight.norm())).detach())

    assert along(training=True) < 1e-8
    assert along(training=False) > 0.1


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_a_network_gives_the_same_with_company(training: bool) -> None:
    torch.manual_seed(0)
    net = Network("resnet10", "proxy", (4,)).double().train(training)
    x, v = torch.randn(2, 6, 3, 8, 8, dtype=torch.float64)
    maps = net.lower.eval()(torch.randn(5, 3, 8, 8, dtype=torch.float64)).detach()
    net.lower.train(training)
    before = copy.deepcopy(net.state_dict())
    for call in (lambda: [net.features(x)], lambda: net.maps(x)):
        net.load_state_dict(before)
        alone, after = call(), copy.deepcopy(net.state_dict())
        net.load_state_dict(before)
        company = Company(images=v, maps=lambda: (maps, beside(maps.device, "imagining")))
        with net.joined_by(company):
            found = call()
        for mine, theirs in zip(found, alone, strict=True):
            torch.testing.assert_close(mine, theirs)
        for name, values in net.state_dict().items():  # the running statistics too
            torch.testing.assert_close(values, after[name])
        assert company.features is not None
        assert company.features.shape == (len(maps) + len(v), 64)
        if not training:
            torch.testing.assert_close(company.features, torch.cat([net.upper(maps), net.features(v)]))


def test_company_passes_once() -> None:
    net = Network("resnet10", "proxy", (4,))
    company = Company(images=torch.randn(3, 3, 8, 8))
    with net.joined_by(company):
        net.features(torch.randn(2, 3, 8, 8))
        first = company.features
        net.features(torch.randn(2, 3, 8, 8))
    assert first is not None
    assert company.features is first
    assert net.company is None


class Acting(nn.BatchNorm2d):
    """A batch norm that also drops and rectifies, as timm's."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(self.drop(super().forward(x)))
        return y


def test_a_norm_that_rectifies_has_guests_too() -> None:
    torch.manual_seed(0)
    plain = Acting(4).double()
    nn.init.uniform_(plain.weight)
    nn.init.uniform_(plain.bias, -1)
    norm = copy.deepcopy(plain)
    norm.__class__ = _with_guests(Acting)
    x = 3 + torch.randn(5, 4, 2, 2, dtype=torch.float64)
    norm.hosts = 3
    found, hosts = norm(x), plain(x[:3])
    torch.testing.assert_close(found[:3], hosts)
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(norm, name), getattr(plain, name))
    for c in range(4):
        real = x[:3, c]
        y = (x[3:, c] - real.mean()) / (real.var(correction=0) + norm.eps).sqrt() * norm.weight[c] + norm.bias[c]
        torch.testing.assert_close(found[3:, c], y.clamp(min=0))
    assert (found[3:] == 0).any()
