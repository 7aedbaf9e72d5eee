"""What a worker tells the server of a learner: words for the page, and the graph by which the server predicts."""

import copy
import io
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from daydream.atomic import signature
from daydream.errors import UserError
from daydream.learner.embedding import pixel_digests
from daydream.serve.pictures import id_of

OPSET = 17
REJECTED = 0.05
"""Share of known pictures that may be called none of the classes."""


class Judging(nn.Module):
    """From prepared images to scores, and the features they follow from."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        z = self.network.features(images)
        return self.network.head(z), z


def whole(learner: Any, path: Path) -> tuple[dict[str, Any], dict[str, bytes | memoryview]]:
    """Return all that the server needs of a learner."""
    about: dict[str, Any] = {"kind": learner.kind, "side": learner.size, "file": signature(path), "names": []}
    about |= {"about": getattr(learner, "about", ""), "classes": [], "history": [], "sentence": "", "undo": False}
    if not path.exists():
        return about, {}
    classifier = learner.classifier
    look = classifier.prepare
    about |= {
        "names": list(learner.names),
        "classes": [_plain(asdict(row)) for row in learner.classes],
        "history": [_plain(asdict(record)) for record in learner.history],
        "sentence": _said(learner),
        "prepare": {"mean": look.mean, "std": look.std, "size": look.size, "canvas": classifier.canvas or look.size},
        "temperature": classifier.temperature,
        "threshold": _threshold(learner),
    }
    raw: dict[str, bytes | memoryview] = {"graph": graph(classifier.network, look.size, learner.kind == "exact")}
    if learner.kind == "exact":
        model = learner.taught
        about["undo"] = bool(model.earlier)
        raw["digests"] = model.known.digests.numpy().tobytes()
        raw["labels"] = model.known.labels.numpy().tobytes()
        if model.known.features is not None:
            unit = torch.nn.functional.normalize(model.known.features, dim=1)
            raw["features"] = unit.numpy().astype(np.float16).tobytes()
    return about, raw


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without what is not a number: JSON knows none such."""
    return {key: None if isinstance(value, float) and value != value else value for key, value in row.items()}


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


def graph(network: nn.Module, side: int, features: bool) -> bytes:
    """Return the network as an ONNX graph of logits, and of features where pictures are compared by them."""
    own = copy.deepcopy(network).cpu().float()
    plain = (Judging(own) if features else own).eval().requires_grad_(False)
    outputs = ["logits", "features"] if features else ["logits"]
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its remarks are for torch's developers
        torch.onnx.export(
            plain,
            (torch.zeros(2, 3, side, side),),
            file,  # type: ignore[arg-type]
            dynamo=False,
            opset_version=OPSET,
            input_names=["images"],
            output_names=outputs,
            dynamic_axes={name: {0: "batch"} for name in ("images", *outputs)},
        )
    return file.getvalue()


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
    return _plain(asdict(learner.test(folder)))
