"""What a worker tells the server of a learner: words for the page, and the numbers by which the server predicts."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from daydream.atomic import signature
from daydream.data.sources.folder import Settings
from daydream.errors import UserError
from daydream.export.onnx import graph
from daydream.learner import lesson_checkpoint
from daydream.learner.embedding import pixel_digests
from daydream.learner.making import method_class
from daydream.learner.quick_files import Features
from daydream.learner.settings import ModelSettings, choose_model
from daydream.nets.network import Network, is_pretrained
from daydream.serve.pictures import id_of

Raw = dict[str, bytes | memoryview]
REJECTED = 0.05
"""Share of known pictures that may be called none of the classes."""


def whole(learner: Any, path: Path, have: str | None) -> tuple[dict[str, Any], Raw]:
    """Return all that the server needs of a learner, but the graph of a network that it has."""
    about: dict[str, Any] = {"kind": learner.kind, "side": side_of(learner), "file": signature(path), "names": []}
    about |= {"about": getattr(learner, "about", ""), "classes": [], "history": [], "sentence": "", "undo": False}
    if learner.kind == "adapting":
        about["plan"] = plan(learner, path)
    if not path.exists():
        return about, {}
    about |= {
        "names": list(learner.names),
        "classes": [asdict(row) for row in learner.classes],
        "history": [asdict(record) for record in learner.history],
        "sentence": _said(learner),
        "threshold": _threshold(learner),
    }
    more, raw = _frozen(learner, have) if learner.kind == "exact" else _trained(learner)
    return about | more, raw


def plan(learner: Any, path: Path) -> dict[str, Any]:
    """Return what decides how an adapting learner's next lesson goes."""
    kind, model = method_class(learner.given.method), model_settings(learner)
    use = "must" if kind.imagines else "may" if kind.replays or kind.needs_pile else "no"
    return {
        "device": learner.hardware.device.type,
        "pretrained": is_pretrained(str(model.backbone)),
        "unlabelled": use,
        "kept": (lesson_checkpoint.folder_of(path) / "latest.json").is_file(),
    }


def model_settings(learner: Any) -> ModelSettings:
    """Return what an adapting model is made with, before its first lesson too."""
    if learner.model is not None:
        settings: ModelSettings = learner.model.settings
        return settings
    return choose_model(learner.given, side_of(learner), learner.hardware.device.type)[0]


def pace(learner: Any, batch: int) -> float:
    """Return the seconds that a picture takes in training a bare network: of one batch, after one that is not timed."""
    model, device = model_settings(learner), learner.hardware.device
    net = Network(str(model.backbone), "linear", (2,), str(model.cut)).to(device).train()
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    assert model.image_size is not None  # chosen, where it was not given
    images = torch.rand(batch, 3, model.image_size, model.image_size, device=device)
    for _ in range(2):
        began = time.perf_counter()
        torch.autograd.grad(net(images).square().mean(), weights)[-1].cpu()
        seconds = time.perf_counter() - began
    return seconds / batch


def side_of(learner: Any) -> int:
    """Return the side of pictures as a learner stores them, before its first lesson too."""
    if learner.kind == "exact" or learner.model is not None:
        return int(learner.size)
    return Settings(image_size=learner.given.image_size).canvas


def _frozen(learner: Any, have: str | None) -> tuple[dict[str, Any], Raw]:
    """Return an exact model: its network's graph of features, its ridge regression, the pictures it compares with."""
    model, look, identity = learner.taught, learner.embed.prepare, learner.embed.identity
    ridge, known = model.judged.ridge, model.known
    about = {
        "identity": identity,
        "undo": bool(model.earlier),
        "prepare": {"mean": look.mean, "std": look.std, "size": look.size, "canvas": look.size},
        "temperature": model.judged.temperature,
    }
    raw: Raw = {"weight": ridge.weight.numpy().tobytes(), "bias": ridge.bias.numpy().tobytes()}
    raw |= {"digests": known.digests.numpy().tobytes(), "labels": known.labels.numpy().tobytes()}
    if ridge.projection is not None:
        raw["projection"] = ridge.projection.matrix(learner.embed.dim).numpy().tobytes()
    if known.features is not None:
        unit = torch.nn.functional.normalize(known.features, dim=1)
        raw["features"] = unit.numpy().astype(np.float16).tobytes()
    if have != identity:
        raw["graph"] = graph(Features(learner.embed.net), look.size)
    return about, raw


def _trained(learner: Any) -> tuple[dict[str, Any], Raw]:
    """Return the network of an adapting model, head and all."""
    classifier = learner.classifier
    look = classifier.prepare
    prepare = {"mean": look.mean, "std": look.std, "size": look.size, "canvas": classifier.canvas or look.size}
    about = {"identity": None, "prepare": prepare, "temperature": classifier.temperature}
    return about, {"graph": graph(classifier.network, look.size)}


def _said(learner: Any) -> str:
    try:
        return str(learner.outlook().sentence)
    except UserError:
        return ""


def _threshold(learner: Any) -> float | None:
    try:
        return float(learner.rejection(REJECTED))
    except UserError:
        return None


def doubts(learner: Any) -> list[dict[str, Any]]:
    """Return pictures that look wrong, by ID."""
    found = []
    for doubt in learner.doubts():
        row = asdict(doubt)
        found.append({"id": id_of(row.pop("digest")), **row})
    return found


def ask_next(learner: Any, folder: Path, count: int) -> list[str]:
    """Return the IDs of the unlabelled pictures to label next."""
    images, index = learner.ask_next(folder, count)
    return [id_of(digest) for digest in pixel_digests(images.pixels.select(index)).tolist()]


def tested(learner: Any, folder: Path) -> dict[str, Any]:
    """Judge test pictures, and return the report."""
    return asdict(learner.test(folder))
