"""Write a run's network as one file for inference: lower, upper and head, and nothing else.

The file is safetensors: weights, and in its metadata all that is needed to use them (network, class names, image size,
mean and deviation). No generator, no exemplar, no optimiser goes into it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from daydream.data.augment import Prepare
from daydream.errors import UserError
from daydream.export.onnx import export_onnx, export_state_dict
from daydream.methods.method import Method
from daydream.nets.extractor import Extractor, Joined
from daydream.nets.network import Network
from daydream.settings import mismatch, require
from daydream.stages.stage import State
from daydream.storage.checkpoint_files import naming_damage
from daydream.storage.state import check_networks

FORMAT = "daydream-network-2"
KINDS: dict[str, Callable[..., Network | Joined]] = {
    "Network": Network,
    "Extractor": Extractor,
    "Joined": Joined.of_configs,
}
"""Builders of the networks a file may hold, by class name."""


class Exported(TypedDict):
    """The words of an exported file."""

    kind: NotRequired[str]
    network: dict[str, Any]
    class_names: list[str]
    size: int
    mean: list[float]
    std: list[float]
    temperature: float
    canvas: int | None


@dataclass(frozen=True)
class Classifier:
    """A network with all that is needed to use it elsewhere."""

    network: Network | Joined
    prepare: Prepare
    class_names: tuple[str, ...]
    temperature: float = 1.0
    """Probabilities are softmax(scores / temperature)."""
    canvas: int | None = None
    """What a picture's short side is scaled to before its centre is cropped; by default the network's size."""

    @torch.no_grad()
    def scores(self, images: Tensor) -> Tensor:
        """Return scores [B, C] for uint8 images [B, 3, H, W] of at least the network's size (centre-cropped to it)."""
        scores: Tensor = self.network(self.prepare(images))
        return scores

    def write_safetensors(self, path: Path) -> None:
        """Write weights and what surrounds them, for `load_exported` or any reader of safetensors."""
        about = {
            "kind": type(self.network).__name__,
            "network": self.network.config(),
            "class_names": self.class_names,
            "size": self.prepare.size,
            "mean": self.prepare.mean,
            "std": self.prepare.std,
            "temperature": self.temperature,
            "canvas": self.canvas,
        }
        export_state_dict(self.network, path, {"format": FORMAT, "about": json.dumps(about)})

    def write_onnx(self, path: Path) -> None:
        """Write the network as an ONNX graph, what surrounds it in the metadata."""
        look = self.prepare
        export_onnx(self.network, path, look.size, look.mean, look.std, self.class_names, self.temperature, self.canvas)


def of_state(
    method: Method[Any], state: State, names: tuple[str, ...], temperature: float = 1.0, canvas: int | None = None
) -> Classifier:
    """Return the classifier in a state, if its method can be written as network and head alone."""
    net = method.exported(state)
    return Classifier(net, method.setup.prepare, names[: net.head.num_classes], temperature, canvas)


def load_exported(path: Path) -> Classifier:
    """Read an exported network back."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise UserError(f"{path} is no exported network but a folder or a device")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read as an exported network: {error}") from error
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} is no network written by `daydream export`")
    with naming_damage(path):
        about = json.loads(metadata["about"])
        kind = about.get("kind", "Network")
        require(kind in KINDS, f"it holds a network of kind '{kind}'; this daydream knows {', '.join(KINDS)}")
        require(not (wrong := mismatch(about, Exported, "")), wrong)
        config = about["network"]
        check_networks({"net": {"kind": kind, "config": config}}, {"net.net": weights}, KINDS)
        net = KINDS[kind](**{k: tuple(v) if isinstance(v, list) else v for k, v in config.items()})
        net.load_state_dict(weights)
        prepare = Prepare(tuple(about["mean"]), tuple(about["std"]), about["size"])
        names = tuple(about["class_names"])
        return Classifier(net.eval().requires_grad_(False), prepare, names, about["temperature"], about["canvas"])
