"""Write a run's network as one file for inference: lower, upper and head, and nothing else.

The file is safetensors: weights, and in its metadata all that is needed to use them (network, class names, image size,
mean and deviation). No generator, no exemplar, no optimiser goes into it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from daydream import atomic
from daydream.data.augment import Prepare
from daydream.errors import UserError
from daydream.experiment import Experiment
from daydream.methods.method import Method, network
from daydream.nets.network import Network
from daydream.nets.resnet import parameter_count
from daydream.runs import RunFolder

FORMAT = "daydream-network-1"


@dataclass(frozen=True)
class Classifier:
    """An exported network, ready to judge images."""

    network: Network
    prepare: Prepare
    class_names: tuple[str, ...]

    @torch.no_grad()
    def scores(self, images: Tensor) -> Tensor:
        """Return scores [B, C] for uint8 images [B, 3, H, W] of at least the network's size (centre-cropped to it)."""
        scores: Tensor = self.network(self.prepare(images))
        return scores


def export(experiment: Experiment, run: RunFolder, path: Path) -> int:
    """Write the network of a run's last checkpoint to `path`; return its number of parameters."""
    if type(experiment.method).predict is not Method.predict:
        raise UserError(
            f"method '{experiment.config.run.method}' predicts in its own way, not by network and head alone"
        )
    found = experiment.restore(run)
    if found is None:
        raise UserError(f"{run.path} has no checkpoint yet: nothing to export")
    net, prepare = network(found[2]), experiment.method.setup.prepare
    about = {
        "network": net.config(),
        "class_names": experiment.stream.train.class_names[: net.head.num_classes],
        "size": prepare.size,
        "mean": prepare.mean,
        "std": prepare.std,
    }
    weights = {name: value.detach().cpu().contiguous() for name, value in net.state_dict().items()}
    try:
        with atomic.replacing(path) as part:
            save_file(weights, part, metadata={"format": FORMAT, "about": json.dumps(about)})
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error
    return parameter_count(net)


def load_exported(path: Path) -> Classifier:
    """Read an exported network back."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read as an exported network: {error}") from error
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} is no network written by `daydream export`")
    about = json.loads(metadata["about"])
    config: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in about["network"].items()}
    net = Network(**config)
    net.load_state_dict(weights)
    prepare = Prepare(tuple(about["mean"]), tuple(about["std"]), about["size"])
    return Classifier(net.eval().requires_grad_(False), prepare, tuple(about["class_names"]))
