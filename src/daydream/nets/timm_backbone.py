"""Backbones of the package timm: `timm:NAME`, or `timm:NAME+pretrained` to start from its published weights.

timm's networks with `features_only` end in a pyramid of maps. Where their layers run one after the other, the layers up
to each of the last four maps are our four stages. A map is what timm calls it: after a ReLU in most networks, where the
maps of our own backbones are before one.
"""

import difflib
from typing import Any

import torch
from torch import Tensor, nn

from daydream.errors import UserError
from daydream.nets.norm import Hosting, Norm, hosted
from daydream.nets.resnet import Backbone

PREFIX = "timm:"
PRETRAINED = "+pretrained"
LAST_MAPS = (-4, -3, -2, -1)
PROBE = 128  # pixels: enough for networks that do not pad, and quick


def architecture(backbone: str) -> str:
    """Return a backbone's name without its starting weights: all that is needed to load other weights into it."""
    return backbone.removesuffix(PRETRAINED) if backbone.startswith(PREFIX) else backbone


def check_timm(backbone: str) -> None:
    """Raise the user's mistake if timm does not import, or has no such network."""
    timm, name = imported(backbone), architecture(backbone).removeprefix(PREFIX)
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UserError(f"backbone {backbone}: timm {timm.__version__} has no network '{name}'{hint}")


def check_timm_image_size(backbone: str, size: int) -> None:
    """Raise the user's mistake if the network does not take images of this size, or leaves a map without a pixel.

    Published weights are fetched too: that they cannot be had is then known before anything is written.
    """
    stages = nn.Sequential(*timm_backbone(backbone).stages)
    try:
        empty = not all(h.numel() for h in _maps(stages, torch.zeros(1, 3, size, size)))
        reason = "a map has no pixel left"
    except Exception as error:  # which one depends on the layer that fails
        empty, reason = True, line(error)
    if empty:
        raise UserError(f"images of {size} x {size} pixels are too small for backbone {backbone} ({reason})")


def timm_backbone(backbone: str) -> Backbone:
    """Build a network of timm's and divide it into our stages; the first holds timm's stem."""
    check_timm(backbone)
    net, name = _features(backbone), architecture(backbone)
    for module in net.modules():
        if getattr(module, "inplace", False):
            module.inplace = False  # a later layer must not change a map that a method still compares
        if isinstance(module, nn.BatchNorm2d):
            module.__class__ = _with_guests(type(module))
    channels = tuple(net.feature_info.channels())
    try:
        stages = _stages(net)
        fits = _same_maps(net, stages, channels)
    except Exception as error:  # a network of another kind can fail at anything
        raise UserError(_uncuttable(name)) from error
    if not fits:
        raise UserError(_uncuttable(name))
    return Backbone(nn.Identity(), stages, channels)


def _with_guests(kind: type[nn.BatchNorm2d]) -> type[nn.BatchNorm2d]:
    """Return our batch norm in place of torch's; timm's own kind also drops and rectifies."""
    if kind is nn.BatchNorm2d:
        return Norm

    class ActingNorm(Hosting, kind):  # type: ignore[valid-type, misc]
        def forward(self, x: Tensor) -> Tensor:
            if self.hosts is None or not self.training:
                return super().forward(x)  # type: ignore[no-any-return]
            y: Tensor = self.act(self.drop(hosted(self, x, self.hosts)))
            return y

    return ActingNorm


def imported(backbone: str) -> Any:
    """Return timm, or raise the user's mistake if it does not import."""
    try:
        import timm
    except Exception as error:  # torchvision, which timm imports, raises a RuntimeError beside a foreign torch
        if isinstance(error, ModuleNotFoundError) and error.name == "timm":
            raise UserError(f"backbone {backbone} needs the package timm: pip install 'daydream[timm]'") from error
        raise UserError(
            f"backbone {backbone} needs the package timm, which does not import here ({line(error)}); "
            f"install the torchvision made for torch {torch.__version__}"
        ) from error
    return timm


def _features(backbone: str) -> Any:
    """Build timm's network for the last four maps of its pyramid."""
    name, pretrained = architecture(backbone).removeprefix(PREFIX), backbone.endswith(PRETRAINED)
    timm = imported(backbone)
    try:
        return timm.create_model(name, pretrained=pretrained, features_only=True, out_indices=LAST_MAPS)
    except Exception as error:  # no weights, no network, no four maps: each kind of model says it in its own way
        hint = f"; without its published weights: {architecture(backbone)}" if pretrained else ""
        raise UserError(f"timm cannot build {backbone} with four maps ({line(error)}){hint}") from error


def _stages(net: Any) -> list[nn.Module]:
    """Divide a network's layers, in the order they run, after each layer whose output is a map."""
    if hasattr(net, "return_layers"):  # timm's FeatureListNet, which has laid its layers in a row
        layers, ends = list(net.named_children()), list(net.return_layers)
    else:  # the EfficientNets and MobileNets, whose blocks are one level down
        layers, ends = _row(net), net.feature_info.module_name()
    places = [[name for name, _ in layers].index(end) + 1 for end in ends]
    stages: list[nn.Module] = []
    for start, stop in zip([0, *places], places, strict=False):
        stage = nn.Sequential()
        for name, layer in layers[start:stop]:
            stage.add_module(name.replace(".", "_"), layer)
        stages.append(stage)
    return stages


def _row(net: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return a network's children, and in place of a sequence its own children, by their dotted names."""
    found: list[tuple[str, nn.Module]] = []
    for name, child in net.named_children():
        inner = child.named_children() if isinstance(child, nn.Sequential) else []
        found += [(f"{name}.{part}", layer) for part, layer in inner] or [(name, child)]
    return found


@torch.no_grad()
def _same_maps(net: nn.Module, stages: list[nn.Module], channels: tuple[int, ...]) -> bool:
    """Tell whether the stages in a row make the very maps the whole network makes, channels first."""
    x = torch.linspace(-1, 1, 3 * PROBE**2).view(1, 3, PROBE, PROBE)
    net.eval()
    whole = net(x)
    ours = _maps(nn.Sequential(*stages), x)
    net.train()
    shaped = [isinstance(h, Tensor) and h.dim() == 4 and h.shape[1] == c for h, c in zip(ours, channels, strict=True)]
    return all(shaped) and all(torch.equal(a, b) for a, b in zip(ours, whole, strict=True))


@torch.no_grad()
def _maps(stages: nn.Sequential, x: Tensor) -> list[Tensor]:
    """Return the map after each stage, in evaluation mode."""
    stages.eval()
    maps = []
    for stage in stages:
        x = stage(x)
        maps.append(x)
    return maps


def _uncuttable(name: str) -> str:
    return (
        f"backbone {name} cannot be cut into stages: its layers do not run one after the other, or its maps are not "
        "[channels, height, width] at every image size; take a convolutional network such as timm:resnet18, or let "
        "`daydream learn` keep it frozen, without --method"
    )


def line(error: Exception) -> str:
    """Return what an error says, as one line."""
    return " ".join(str(error).split()) or type(error).__name__
