"""Networks of timm's as they are, for their features alone: vision transformers, and what else has no maps to cut.

`timm:NAME+pretrained` has the published weights of timm's network NAME, `hf-hub:OWNER/NAME` those of a model for timm
on the Hugging Face Hub. Both come by timm: from its local cache where they are there, else from the network.

In a backbone of four stages the whole network is the last, and its features [B, D] are a map of one pixel. Nothing can
be imagined from that or trained, so only the exact learner asks for it, by a name that no one else accepts:
`frozen:NAME`.
"""

import contextlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from daydream.errors import UserError
from daydream.nets.resnet import Backbone
from daydream.nets.timm_backbone import PREFIX, PRETRAINED, check_timm, imported, line

HUB = "hf-hub:"
FROZEN = "frozen:"
COLOURS = 3


@dataclass(frozen=True)
class Look:
    """How a network's pictures were prepared when it was trained, and what is to be said of its weights."""

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    licence: str


class Whole(nn.Module):
    """A network without its classifier; its features [B, D] are a map [B, D, 1, 1]."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.net(x)
        return z[:, :, None, None]


def is_timm(backbone: str) -> bool:
    """Say whether a backbone is one of timm's, or of the Hub's."""
    return backbone.startswith((PREFIX, HUB))


def frozen(backbone: str) -> Backbone:
    """Build `frozen:timm:NAME`, `frozen:timm:NAME+pretrained` or `frozen:hf-hub:OWNER/NAME`."""
    net = _built(backbone.removeprefix(FROZEN))
    whole = nn.Sequential(Whole(net))
    return Backbone(
        nn.Identity(), [nn.Identity(), nn.Identity(), nn.Identity(), whole], (COLOURS,) * 3 + (net.num_features,)
    )


def frozen_architecture(backbone: str, made: Backbone | None = None) -> str:
    """Return the name by which a network is built without its published weights; a model of the Hub says it itself."""
    name = backbone.removesuffix(PRETRAINED)
    if not name.startswith(FROZEN + HUB):
        return name
    assert made is not None
    return f"{FROZEN}{PREFIX}{_config(made.stages[-1])['architecture']}"


def look_of(stage: nn.Module) -> Look:
    """Return how the network in a last stage wants its pictures."""
    config = _config(stage)
    mean, std = ((float(a), float(b), float(c)) for a, b, c in (config["mean"], config["std"]))
    return Look(int(config["input_size"][-1]), mean, std, str(config.get("license") or "not stated"))


def licence_of(backbone: str) -> str:
    """Return the licence of a network's published weights, or where it is stated."""
    if backbone.startswith(HUB):
        return "on its page of the Hugging Face Hub"
    if not (backbone.startswith(PREFIX) and backbone.endswith(PRETRAINED)):
        return ""
    with contextlib.suppress(Exception):  # a file brings its weights: that timm does not say is no mistake
        name = backbone.removeprefix(PREFIX).removesuffix(PRETRAINED)
        return str(imported(backbone).get_pretrained_cfg(name).license or "not stated")
    return ""


def check_side(backbone: str, net: nn.Module, side: int) -> None:
    """Raise the user's mistake if a network does not take pictures of this size."""
    try:
        with torch.no_grad():
            net(torch.zeros(1, COLOURS, side, side))
    except Exception as error:  # which one depends on the layer that fails
        raise UserError(f"backbone {backbone} does not take pictures of {side} pixels ({line(error)})") from error


def _built(backbone: str) -> Any:
    timm, published = imported(backbone), backbone.startswith(HUB) or backbone.endswith(PRETRAINED)
    if backbone.startswith(PREFIX):
        check_timm(backbone)
    name = backbone.removeprefix(PREFIX).removesuffix(PRETRAINED)
    try:
        return timm.create_model(name, pretrained=published, num_classes=0)
    except Exception as error:  # no weights, no network, no such model: each says it in its own way
        if not published:
            raise UserError(f"timm cannot build {backbone} ({line(error)})") from error
        raise UserError(
            f"the weights of {backbone} are not in the local cache of the Hugging Face Hub, and cannot be fetched here "
            f"({line(error)[:200]}); they are on any machine that has run this command online, in ~/.cache/huggingface"
        ) from error


def _config(stage: nn.Module) -> dict[str, Any]:
    whole: Any = next(stage.children())
    found: dict[str, Any] = whole.net.pretrained_cfg
    return found
