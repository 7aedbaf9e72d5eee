"""Predictions by onnxruntime, in the server's own process: the network runs while a lesson is trained elsewhere.

Shapes: N pictures, C classes, D features, K kept pictures.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daydream.data.decode import opened_bytes, square
from daydream.export.runtime import onnxruntime
from daydream.learner.rejection import knownness, nearest_cosine, unit
from daydream.serve import turns
from daydream.serve.pictures import id_of

MOST = 16
"""Pictures that pass the network at once."""
TINY = 1e-12  # what torch's normalisation divides by at least


@dataclass(frozen=True)
class Neighbour:
    """A kept picture near another, and how near: the cosine of their features."""

    id: str
    name: str
    cosine: float


@dataclass(frozen=True)
class Head:
    """Ridge regression on features of unit length."""

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    projection: NDArray[np.float32] | None

    @classmethod
    def of(cls, raw: Mapping[str, bytes], classes: int) -> "Head":
        weight, bias = np.frombuffer(raw["weight"], np.float64), np.frombuffer(raw["bias"], np.float64)
        width = len(weight) // classes
        projection = np.frombuffer(raw["projection"], np.float32).reshape(-1, width) if "projection" in raw else None
        return cls(weight.reshape(classes, width), bias, projection)

    def __call__(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return scores [N, C] of features [N, D]."""
        z = features.astype(np.float64)
        z /= np.maximum(np.linalg.norm(z, axis=1, keepdims=True), TINY)
        if self.projection is not None:
            z = np.maximum(z @ self.projection, 0) / self.projection.shape[1] ** 0.5
        scores: NDArray[np.float64] = z @ self.weight.T + self.bias
        return scores


@dataclass(frozen=True)
class Judged:
    """What a model says of pictures."""

    probabilities: NDArray[np.float64]
    """[N, C]."""
    looks: NDArray[np.float64]
    """[N] how known each looks: below the model's threshold, it is likely of no known class."""
    features: NDArray[np.float32] | None
    """[N, D], where the model compares pictures by them."""


def opened(graph: bytes) -> Any:
    """Return a network that is ready to run."""
    runtime = onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # a lesson needs the cores, too
    return runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


class Predictor:
    """The network of a model, and the pictures it compares with."""

    def __init__(self, about: Mapping[str, Any], raw: Mapping[str, bytes], before: "Predictor | None" = None) -> None:
        self.identity: str | None = about["identity"]
        kept = before is not None and "graph" not in raw and before.identity == self.identity
        self.session: Any = before.session if before is not None and kept else opened(raw["graph"])
        self.names: list[str] = about["names"]
        look = about["prepare"]
        self.size, self.canvas = int(look["size"]), int(look["canvas"])
        mean, std = (np.asarray(look[part], np.float32).reshape(3, 1, 1) for part in ("mean", "std"))
        self.scale, self.shift = 1 / (255 * std), -mean / std
        self.temperature, self.threshold = about["temperature"], about["threshold"]
        self.head = Head.of(raw, len(self.names)) if "weight" in raw else None
        self.ids = np.frombuffer(raw.get("digests", b""), np.int64)
        self.labels = np.frombuffer(raw.get("labels", b""), np.int64)
        features = np.frombuffer(raw.get("features", b""), np.float16)
        self.features = unit(features.reshape(len(self.ids), -1)) if len(features) else None
        self.seconds: float = before.seconds if before is not None and kept else self._timed()

    def _timed(self) -> float:
        """Return the seconds that a picture takes."""
        batch = np.zeros((4, 3, self.size, self.size), np.float32)
        self.session.run(None, {"images": batch})
        began = time.perf_counter()
        self.session.run(None, {"images": batch})
        return (time.perf_counter() - began) / len(batch)

    def read(self, content: bytes) -> NDArray[np.float32]:
        """Return a picture as the network sees it [3, S, S]."""
        with opened_bytes(BytesIO(content), self.canvas) as image, turns.decoding(image):
            pixels = square(image, self.canvas)
        edge = (self.canvas - self.size) // 2
        inner = pixels[:, edge : edge + self.size, edge : edge + self.size].astype(np.float32)
        return inner * self.scale + self.shift

    def judged(self, pictures: Sequence[NDArray[np.float32]]) -> "Judged":
        """Judge prepared pictures."""
        parts = [pictures[start : start + MOST] for start in range(0, len(pictures), MOST)]
        found = np.concatenate([self._run(np.stack(part)) for part in parts])
        scores = found.astype(np.float64) if self.head is None else self.head(found)
        p = np.exp((scores - scores.max(axis=1, keepdims=True)) / self.temperature)
        p /= p.sum(axis=1, keepdims=True)
        if self.head is None or self.features is None:
            return Judged(p, p.max(axis=1), None if self.head is None else found)
        return Judged(p, knownness(scores, nearest_cosine(found, [self.features])), found)

    def _run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        with turns.running:
            found: NDArray[np.float32] = self.session.run(None, {"images": batch})[0]
        return found

    def neighbours(self, feature: NDArray[np.float32], count: int) -> list[Neighbour]:
        """Return the kept pictures nearest to a feature [D]."""
        if self.features is None or not count:
            return []
        cosines = self.features @ unit(feature[None])[0]
        nearest = np.argsort(-cosines, kind="stable")[:count]
        return [Neighbour(id_of(int(self.ids[i])), self.names[self.labels[i]], float(cosines[i])) for i in nearest]
