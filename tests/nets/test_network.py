"""The network: two halves that make the same features wherever it is cut, and copies of it."""

import pytest
import torch
from torch import nn

from daydream.errors import UserError
from daydream.nets.heads import CosineHead
from daydream.nets.network import STAGES, Network, in_mode, mean_weight_norm
from daydream.nets.resnet import BACKBONES


def random_network(backbone: str = "resnet10", head: str = "cosine", cut: str = "stage3") -> Network:
    torch.manual_seed(3)
    net = Network(backbone, head, (3, 2), cut)
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias, 0, 0.3)
            assert part.running_mean is not None
            nn.init.normal_(part.running_mean, 0, 0.3)
    return net


X = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
@pytest.mark.parametrize(
    ("backbone", "shapes"),
    [
        ("resnet32", [(16, 32), (32, 16), (64, 8), (64, 8)]),
        ("resnet10", [(16, 32), (32, 16), (64, 8), (64, 8)]),
        ("resnet18", [(64, 8), (128, 4), (256, 2), (512, 1)]),
        ("resnet18-small", [(64, 32), (128, 16), (256, 8), (512, 4)]),
    ],
)
def test_maps_are_those_of_four_stages_and_the_last_pools_to_the_features(
    backbone: str, shapes: list[tuple[int, int]]
) -> None:
    net = random_network(backbone).eval()
    maps = net.maps(X)
    assert [tuple(m.shape) for m in maps] == [(2, width, side, side) for width, side in shapes]
    assert all((m < 0).any() for m in maps), "a map was rectified"
    torch.testing.assert_close(maps[-1].mean((2, 3)), net.features(X))
    assert net.head.dim == shapes[-1][0]
    assert tuple(BACKBONES[backbone]().channels) == tuple(width for width, _ in shapes)


@torch.no_grad()
def test_features_do_not_depend_on_the_cut() -> None:
    whole = random_network().eval()
    features, maps = whole.features(X), whole.maps(X)
    weights = {name.split(".", 1)[1]: value for name, value in whole.state_dict().items() if "head" not in name}
    for i, cut in enumerate(STAGES[:-1]):
        net = Network("resnet10", "cosine", (3, 2), cut).eval()
        for half in (net.lower, net.upper):
            half.load_state_dict({name: weights[name] for name in half.state_dict()})
        assert torch.equal(net.features(X), features)
        assert torch.equal(net.lower(X), maps[i])
        assert net.map_channels == maps[i].shape[1]
        assert all(torch.equal(a, b) for a, b in zip(net.maps(X), maps, strict=True))


@torch.no_grad()
def test_scores_are_the_heads_of_the_features() -> None:
    net = random_network().eval()
    assert torch.equal(net(X), net.head(net.features(X)))
    assert net(X).shape == (2, 5)


@torch.no_grad()
def test_a_frozen_copy_is_equal_apart_and_does_not_train() -> None:
    net = random_network()
    net.train()
    twin = net.frozen_copy()
    assert net.training
    assert not any(module.training for module in twin.modules())
    assert not any(p.requires_grad for p in twin.parameters())
    assert all(p.requires_grad for p in net.parameters())
    assert torch.equal(twin(X), net.eval()(X))
    before = twin(X)
    for parameter in net.parameters():
        parameter.add_(1.0)
    assert torch.equal(twin(X), before)


@pytest.mark.parametrize("head", ["linear", "cosine", "proxy"])
@torch.no_grad()
def test_config_rebuilds_the_network(head: str) -> None:
    net = random_network(head=head, cut="stage2").eval()
    net.head.grow(4)
    twin = Network(**net.config())
    assert twin.config() == net.config() == {"backbone": "resnet10", "head": head, "sizes": (3, 2, 4), "cut": "stage2"}
    twin.load_state_dict(dict(net.state_dict()))  # a plain dict, as read from a file
    assert torch.equal(twin.eval()(X), net(X))


def test_convolutions_are_channels_last() -> None:
    weights = [m.weight for m in random_network().modules() if isinstance(m, nn.Conv2d)]
    assert all(w.is_contiguous(memory_format=torch.channels_last) for w in weights)


def test_an_unknown_backbone_names_the_nearest() -> None:
    with pytest.raises(
        UserError, match=r"'resnet23'; did you mean 'resnet32'\? \(known: efficientnet-lite0, .*resnet10, "
    ):
        Network("resnet23", "cosine")


@pytest.mark.parametrize("cut", ["stage4", "stage9", "stem"])
def test_a_cut_that_leaves_no_upper_half_is_refused(cut: str) -> None:
    with pytest.raises(UserError, match=f"--cut {cut} .* stage1, stage2, stage3"):
        Network("resnet10", "cosine", (), cut)


def leave_badly(net: nn.Module) -> None:
    with in_mode(net, True):
        assert net.training
        raise ValueError("inside")


def test_in_mode_gives_the_mode_back() -> None:
    net = nn.Sequential(nn.BatchNorm2d(2)).eval()
    with in_mode(net, True):
        assert net[0].training
    assert not net[0].training
    with pytest.raises(ValueError, match="inside"):
        leave_badly(net)
    assert not net[0].training


def test_mean_weight_norm_is_over_all_blocks() -> None:
    head = CosineHead(4)
    head.grow(3)
    head.grow(2)
    norms = [sum(v**2 for v in w) ** 0.5 for block in head.weights for c in block.tolist() for w in c]
    assert float(mean_weight_norm(head)) == pytest.approx(sum(norms) / 5, rel=1e-6)
    assert not mean_weight_norm(head).requires_grad
