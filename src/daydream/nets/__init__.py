"""Networks: backbones cut in two halves, heads that grow, and the bank of generators."""

from daydream.nets.generators import GeneratorBank
from daydream.nets.heads import HEADS, Head
from daydream.nets.network import Company, Network, check_backbone, in_mode
from daydream.nets.resnet import BACKBONES, parameter_count

__all__ = [
    "BACKBONES",
    "HEADS",
    "Company",
    "GeneratorBank",
    "Head",
    "Network",
    "check_backbone",
    "in_mode",
    "parameter_count",
]  # fmt: skip
