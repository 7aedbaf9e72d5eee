"""Predictions by onnxruntime, in the server's own process: the network runs while a lesson is trained elsewhere.

Shapes: N pictures, C classes, D features, K kept pictures.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from daydream.data.decode import opened_bytes, square
from daydream.serve.pictures import id_of

MOST = 64
"""Pictures that pass the network at once."""
ROWS = 8192
"""Kept pictures that are compared at once."""


@dataclass(frozen=True)
class Neighbour:
    """A kept picture near another, and how near: the cosine of their features."""

    id: str
    name: str
    cosine: float


class Predictor:
    """The network of a model, and the pictures it compares with."""

    def __init__(self, about: Mapping[str, Any], raw: Mapping[str, bytes]) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # a lesson needs the cores, too
        self.session = onnxruntime.InferenceSession(raw["graph"], options, providers=["CPUExecutionProvider"])
        self.names: list[str] = about["names"]
        look = about["prepare"]
        self.size, self.canvas = int(look["size"]), int(look["canvas"])
        mean, std = (np.asarray(look[part], np.float32).reshape(3, 1, 1) for part in ("mean", "std"))
        self.scale, self.shift = 1 / (255 * std), -mean / std
        self.temperature, self.threshold = about["temperature"], about["threshold"]
        self.ids = np.frombuffer(raw.get("digests", b""), np.int64)
        self.labels = np.frombuffer(raw.get("labels", b""), np.int64)
        features = np.frombuffer(raw.get("features", b""), np.float16)
        self.features = features.reshape(len(self.ids), -1) if len(features) else None
        self.seconds = self._timed()

    def _timed(self) -> float:
        """Return the seconds that a picture takes."""
        batch = np.zeros((4, 3, self.size, self.size), np.float32)
        self.session.run(None, {"images": batch})
        began = time.perf_counter()
        self.session.run(None, {"images": batch})
        return (time.perf_counter() - began) / len(batch)

    def read(self, content: bytes) -> NDArray[np.float32]:
        """Return a picture as the network sees it [3, S, S]."""
        with opened_bytes(BytesIO(content), self.canvas) as image:
            pixels = square(image, self.canvas)
        edge = (self.canvas - self.size) // 2
        inner = pixels[:, edge : edge + self.size, edge : edge + self.size].astype(np.float32)
        return inner * self.scale + self.shift

    def judged(self, pictures: Sequence[NDArray[np.float32]]) -> tuple[NDArray[np.float64], NDArray[np.float32] | None]:
        """Return probabilities [N, C], and features [N, D] where the model compares pictures by them."""
        logits, features = [], []
        for start in range(0, len(pictures), MOST):
            found = self.session.run(None, {"images": np.stack(pictures[start : start + MOST])})
            logits.append(found[0])
            features += found[1:]
        scores = np.concatenate(logits).astype(np.float64) / self.temperature
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True), np.concatenate(features) if features else None

    def neighbours(self, feature: NDArray[np.float32], count: int) -> list[Neighbour]:
        """Return the kept pictures nearest to a feature [D]."""
        if self.features is None or not count:
            return []
        unit = (feature / max(float(np.linalg.norm(feature)), 1e-12)).astype(np.float32)
        parts = [self.features[row : row + ROWS].astype(np.float32) @ unit for row in range(0, len(self.ids), ROWS)]
        cosines = np.concatenate(parts)
        nearest = np.argsort(-cosines, kind="stable")[:count]
        return [Neighbour(id_of(int(self.ids[i])), self.names[self.labels[i]], float(cosines[i])) for i in nearest]
