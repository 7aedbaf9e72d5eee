"""Backbones of timm's: the logic with a stand-in for timm, and the real ones where timm imports."""

import sys
import types
from typing import Any

import pytest
import torch
from timm_here import real_timm
from torch import Tensor, nn

from daydream.errors import UserError
from daydream.nets.network import STAGES, Network, check_backbone, check_image_size
from daydream.nets.timm_backbone import architecture, timm_backbone

WIDTHS = (4, 6, 8, 10)
X = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def block(width_in: int, width_out: int, padding: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(width_in, width_out, 3, stride=2, padding=padding, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(width_out), nn.ReLU(inplace=True))


class Info:
    """What timm tells of the maps of a network."""

    def __init__(self, modules: list[str]) -> None:
        self.modules = modules

    def channels(self) -> list[int]:
        return list(WIDTHS)

    def module_name(self) -> list[str]:
        return self.modules


class Rows(nn.ModuleDict):
    """As timm's FeatureListNet: layers in a row, the names of those whose output is a map, and some after them."""

    def __init__(self, padding: int = 1) -> None:
        super().__init__()
        self["conv1"] = nn.Conv2d(3, 3, 3, padding=1)
        for i, (width_in, width_out) in enumerate(zip((3, *WIDTHS), WIDTHS, strict=False), 1):
            self[f"layer{i}"] = block(width_in, width_out, padding)
            self[f"act{i}"] = nn.ReLU6(inplace=True)
        self.return_layers = {f"layer{i}": str(i - 5) for i in (1, 2, 3)} | {"act4": "-1"}
        self.feature_info = Info(list(self.return_layers))

    def forward(self, x: Tensor) -> list[Tensor]:
        found = []
        for name, layer in self.items():
            x = layer(x)
            if name in self.return_layers:
                found.append(x)
        return found


class Blocks(nn.Module):
    """As timm's EfficientNets: a stem, and a sequence of blocks of which some end a level."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_stem = nn.Conv2d(3, 5, 3, padding=1)
        self.blocks = nn.Sequential(block(5, 5), *(block(a, b) for a, b in zip((5, *WIDTHS), WIDTHS, strict=False)))
        self.feature_info = Info([f"blocks.{i}" for i in (1, 2, 3, 4)])

    def forward(self, x: Tensor) -> list[Tensor]:
        found = []
        x = self.conv_stem(x)
        for layer in self.blocks:
            x = layer(x)
            found.append(x)
        return found[1:]


class Shortcut(Rows):
    """Layers in a row by their names, but not by what it computes."""

    def forward(self, x: Tensor) -> list[Tensor]:
        *others, last = super().forward(x)
        return [*others, last + last.mean()]


class ChannelsLast(Rows):
    def __init__(self) -> None:
        super().__init__()
        self["layer1"].append(Permute())


class Permute(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1)


class Hooked(nn.Module):
    """As timm's other feature networks: the maps are taken from inside a body."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Blocks()
        self.feature_info = Info([f"body.blocks.{i}" for i in (1, 2, 3, 4)])

    def forward(self, x: Tensor) -> Any:
        return self.body(x)


KINDS: dict[str, Any] = {
    "rows": Rows,
    "blocks": Blocks,
    "unpadded": lambda: Rows(padding=0),
    "shortcut": Shortcut,
    "channels_last": ChannelsLast,
    "hooked": Hooked,
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Put a stand-in in timm's place; return what it is asked to build."""
    calls: list[dict[str, Any]] = []

    def create_model(name: str, **wanted: Any) -> nn.Module:
        calls.append({"name": name, **wanted})
        if name == "flat":
            raise RuntimeError("features_only not implemented\nfor flat models.")
        if wanted["pretrained"] and name != "rows":
            raise OSError("no weights to be had")
        with torch.random.fork_rng():
            torch.manual_seed(len(calls))  # each one made has weights of its own
            made: nn.Module = KINDS[name]()
        if wanted["pretrained"]:
            nn.init.constant_(made["conv1"].bias, 7.0)  # type: ignore[index]
        return made

    stand_in: Any = types.ModuleType("timm")
    stand_in.__version__ = "1.0"
    stand_in.is_model = lambda name: name in [*KINDS, "flat"]
    stand_in.list_models = lambda: [*KINDS, "flat"]
    stand_in.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", stand_in)
    return calls


@torch.no_grad()
@pytest.mark.parametrize("kind", ["rows", "blocks"])
@pytest.mark.parametrize("cut", STAGES[:-1])
def test_the_halves_make_the_maps_of_the_whole(asked: list[dict[str, Any]], kind: str, cut: str) -> None:
    net = Network(f"timm:{kind}", "cosine", (3, 2), cut).eval()
    whole = KINDS[kind]().eval()
    whole.load_state_dict(dict(zip(whole.state_dict(), net.state_dict().values(), strict=False)))
    expected = whole(X)
    if kind == "rows":  # the stand-in's in-place layers rectify its maps after the fact; these cannot lie above 6
        expected = [h.clamp(max=6) for h in expected]
    at = STAGES.index(cut)
    maps = net.maps(X)
    assert [h.shape[1] for h in maps] == list(WIDTHS)
    assert [h.shape[2] for h in maps] == ([16, 8, 4, 2] if kind == "rows" else [8, 4, 2, 1])
    for ours, theirs in zip(maps, expected, strict=True):
        torch.testing.assert_close(ours.clamp(max=6) if kind == "rows" else ours, theirs)
    assert torch.equal(net.lower(X), maps[at])
    assert torch.equal(net.upper(net.lower(X)), maps[-1].mean((2, 3)))
    assert net.map_channels == WIDTHS[at]
    assert net.head.dim == WIDTHS[-1]
    assert net(X).shape == (2, 5)
    assert asked == [{"name": kind, "pretrained": False, "features_only": True, "out_indices": (-4, -3, -2, -1)}]


@torch.no_grad()
def test_no_layer_changes_a_map_in_place(asked: list[dict[str, Any]]) -> None:
    net = Network("timm:rows", "linear", (2,), "stage2").eval()
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.constant_(part.weight, 50.0)
    held = net.lower(X)
    before = held.clone()
    assert before.max() > 6  # what the next layer, a ReLU6, would clip
    net.upper(held)
    assert torch.equal(held, before)


def test_it_trains_from_end_to_end(asked: list[dict[str, Any]]) -> None:
    net = Network("timm:blocks", "linear", (3,), "stage1").train()
    net(X).sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in net.parameters())


@torch.no_grad()
def test_config_rebuilds_the_network_without_fetching_weights_again(asked: list[dict[str, Any]]) -> None:
    net = Network("timm:rows+pretrained", "proxy", (3,), "stage2").eval()
    assert (net.lower.stage1.conv1.bias == 7).all()
    assert net.config() == {"backbone": "timm:rows", "head": "proxy", "sizes": (3,), "cut": "stage2"}
    twin = Network(**net.config())
    twin.load_state_dict(dict(net.state_dict()))
    assert torch.equal(twin.eval()(X), net(X))
    assert torch.equal(net.frozen_copy()(X), net(X))
    assert [call["pretrained"] for call in asked] == [True, False, False]


@pytest.mark.parametrize("kind", ["shortcut", "channels_last", "hooked"])
def test_a_network_that_is_no_row_of_layers_is_refused(asked: list[dict[str, Any]], kind: str) -> None:
    with pytest.raises(UserError, match=f"timm:{kind} cannot be cut into stages.* such as timm:resnet18"):
        timm_backbone(f"timm:{kind}")


def test_what_timm_cannot_build_is_one_line(asked: list[dict[str, Any]]) -> None:
    with pytest.raises(UserError, match=r"build timm:flat with four maps \(features_only not .* for flat models\.\)$"):
        timm_backbone("timm:flat")
    with pytest.raises(UserError, match=r"no weights to be had\); without its published weights: timm:blocks$"):
        timm_backbone("timm:blocks+pretrained")


def test_an_unknown_name_or_cut_is_refused(asked: list[dict[str, Any]]) -> None:
    check_backbone("timm:rows+pretrained", "stage1")
    with pytest.raises(UserError, match=r"has no network 'row'; did you mean rows\?$"):
        check_backbone("timm:row+pretrained", "stage1")
    with pytest.raises(UserError, match="--cut stage4 "):
        check_backbone("timm:rows", "stage4")
    with pytest.raises(UserError, match="timm:NAME"):
        check_backbone("resnet", "stage1")
    assert asked == []


def test_images_that_are_too_small(asked: list[dict[str, Any]]) -> None:
    check_image_size("resnet18", 8)
    check_image_size("timm:rows+pretrained", 8)
    check_image_size("timm:unpadded", 31)
    with pytest.raises(UserError, match="images of 30 x 30 pixels are too small for backbone timm:unpadded"):
        check_image_size("timm:unpadded", 30)
    with pytest.raises(UserError, match="no weights to be had"):
        check_image_size("timm:blocks+pretrained", 32)


def test_without_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match=r"timm:resnet18 needs the package timm: pip install 'daydream\[timm\]'"):
        check_backbone("timm:resnet18", "stage3")


def test_a_timm_that_does_not_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms\\ndoes not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(UserError, match=r"does not import here \(operator torchvision::nms does not exist\); install"):
        check_backbone("timm:resnet18", "stage3")


def test_only_timms_names_say_where_weights_come_from() -> None:
    assert architecture("timm:resnet18.a1_in1k+pretrained") == "timm:resnet18.a1_in1k"
    assert architecture("resnet32") == "resnet32"


@torch.no_grad()
@pytest.mark.parametrize("name", ["resnet18", "efficientnet_b0", "mobilenetv3_small_050", "convnext_atto"])
def test_a_network_of_timms_own(name: str) -> None:
    timm = real_timm()
    net = Network(f"timm:{name}", "linear", (3,), "stage2").eval()
    whole = timm.create_model(name, features_only=True, out_indices=(-4, -3, -2, -1)).eval()
    weights = [v for k, v in net.state_dict().items() if not k.startswith("head")]
    whole.load_state_dict(dict(zip(whole.state_dict(), weights, strict=True)))
    x = torch.randn(2, 3, 64, 64)
    for ours, theirs in zip(net.maps(x), whole(x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    assert net.map_channels == whole.feature_info.channels()[1]
    assert net(x).shape == (2, 3)
    twin = Network(**net.config())
    twin.load_state_dict(dict(net.state_dict()))
    torch.testing.assert_close(twin.eval()(x), net(x))


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "hrnet_w18_small"])
def test_a_network_of_timms_that_cannot_be_cut(name: str) -> None:
    real_timm()
    with pytest.raises(UserError, match="cannot be cut into stages"):
        timm_backbone(f"timm:{name}")
