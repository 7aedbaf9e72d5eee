"""Predictions of an exact model without torch, whose import takes longer than they do: by onnxruntime.

The network's graph lies in the private cache, named by the features' identity; the last lesson wrote it. Whatever is
missing (onnxruntime, the graph, a model file of ours), there is no quick way, and torch gives the same answers.

Shapes: N pictures, D features, C classes.
"""

import contextlib
import importlib.util
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from daydream.data.cache import cache_folder
from daydream.data.decode_pool import few_at_a_time
from daydream.errors import UserError
from daydream.export.runtime import onnxruntime
from daydream.learner.exact_words import About, Newer, check_model, words_of
from daydream.learner.rejection import check_share, knownness, nearest_cosine, threshold, unit

log = logging.getLogger("daydream")

Numbers = NDArray[Any]
FOLDER = "networks"
"""Of the cache."""
IDENTITY = re.compile(r"[0-9a-f]{32}")
GROUP = 32
KEPT, ROWS = "state0/features", 8192
"""The features that a model file keeps, and how many of them are compared with at once."""
DAMAGE = (OSError, SafetensorError, UserError, Newer, LookupError, ValueError, TypeError, RuntimeError, AttributeError)
"""What reading a damaged file may raise."""
TINY = 1e-12  # what torch's normalisation divides by at least


@dataclass(frozen=True)
class Quick:
    """What a prediction needs of a model."""

    session: Any
    names: tuple[str, ...]
    size: int
    mean: Numbers
    std: Numbers
    weight: Numbers
    bias: Numbers
    projection: Numbers | None
    temperature: float
    confidences: Numbers
    """[M] of pictures left out: what a rejection is set by."""
    file: Path
    """Which holds the features that a rejection compares with, if any are kept."""

    def judged(
        self, paths: Sequence[str], looked_at: bool
    ) -> Iterator[tuple[int, dict[int, str], list[list[float]], list[float]]]:
        """Yield, for some pictures at a time, the first one's place, what cannot be read, and what is told of others.

        That is their probabilities and, where it is asked for, how known they look.
        """
        with contextlib.closing(few_at_a_time(paths, self.size, GROUP)) as parts:
            for start, part in parts:
                fine = [i for i in range(len(part.pixels)) if i not in part.failures]
                if not fine:
                    yield start, part.failures, [], []
                    continue
                features = self.features(part.pixels[fine])
                scores = self.scores(features)
                p = self.probabilities(scores)
                yield start, part.failures, p.tolist(), self.looks(features, scores, p).tolist() if looked_at else []

    def rejection(self, share: float) -> float:
        """Return what a picture of no known class likely looks less known than; a share of known ones does, too."""
        check_share(share)
        return threshold(self.confidences.tolist(), 1 - share)

    def looks(self, features: Numbers, scores: Numbers, p: Numbers) -> Numbers:
        """Return how known pictures look [N], by the features [N, D] that the file keeps, or by probability."""
        try:
            with safe_open(self.file, framework="np") as file:
                if KEPT not in file.keys():  # noqa: SIM118
                    highest: Numbers = p.max(1)
                    return highest
                kept = file.get_slice(KEPT)
                count = kept.get_shape()[0]
                parts = (unit(kept[row : min(row + ROWS, count)]) for row in range(0, count, ROWS))
                found = knownness(scores, nearest_cosine(features, parts))
        except DAMAGE as error:
            raise UserError(f"{self.file} cannot be read: {' '.join(str(error).split())}") from error
        if not np.isfinite(found).all():
            raise UserError(f"{self.file} is damaged (its features do not fit its pictures)")
        return found

    def features(self, pixels: Numbers) -> Numbers:
        """Return features [N, D] of pictures [N, 3, S, S]."""
        x = (pixels.astype(np.float32) / 255 - self.mean) / self.std
        [z] = self.session.run(None, {"images": x})
        found: Numbers = z
        return found

    def scores(self, features: Numbers) -> Numbers:
        """Return scores [N, C] of features [N, D]."""
        z = features.astype(np.float64)
        z /= np.maximum(np.linalg.norm(z, axis=1, keepdims=True), TINY)
        if self.projection is not None:
            z = np.maximum(z @ self.projection, 0) / self.projection.shape[1] ** 0.5
        found: Numbers = z @ self.weight.T + self.bias
        return found

    def probabilities(self, scores: Numbers) -> Numbers:
        """Return probabilities [N, C] of scores."""
        p = np.exp((scores - scores.max(1, keepdims=True)) / self.temperature)
        found: Numbers = p / p.sum(1, keepdims=True)
        return found


def opened(path: Path) -> Quick | None:
    """Return the quick way of a model file, where there is one."""
    if importlib.util.find_spec("onnxruntime") is None or not path.is_file():  # a pipe would be waited for
        return None
    try:
        with safe_open(path, framework="np") as file:
            about = words_of(file.metadata())
            weight, bias, confidences = (file.get_tensor(name) for name in ("weight", "bias", "confidences"))
        return _made(about, weight, bias, confidences, path)
    except DAMAGE as error:  # what is wrong with it, the way by torch says
        log.debug("no quick way: %s", error)
        return None


def files(identity: str, projection: tuple[int, int] | None) -> tuple[Path, Path | None]:
    """Return where a network's graph lies in the cache, and a projection (width, seed) of its features."""
    if not IDENTITY.fullmatch(identity):
        raise ValueError(f"no identity of features: {identity}")
    folder = cache_folder() / FOLDER
    projected = None if projection is None else folder / f"{identity}-{projection[0]:d}-{projection[1]:d}.npy"
    return folder / f"{identity}.onnx", projected


def _made(about: About, weight: Numbers, bias: Numbers, confidences: Numbers, path: Path) -> Quick | None:
    words, look = about["model"], about["prepare"]
    check_model(words)
    names, projection = words["names"][0], words["projection"]
    graph, projected = files(words["embedding"], None if projection is None else (projection[0], projection[1]))
    temperature = words["temperature"]
    there = graph.is_file() and (projected is None or projected.is_file())
    fits = weight.ndim == 2 and bias.shape == weight.shape[:1] == (len(names),) and confidences.ndim == 1
    numbers = all(value.dtype.kind == "f" and np.isfinite(value).all() for value in (weight, bias, confidences))
    if temperature is None or not (there and fits and numbers):
        return None
    return Quick(
        session=onnxruntime().InferenceSession(str(graph), providers=["CPUExecutionProvider"]),
        names=tuple(names),
        size=look["size"],
        mean=np.array(look["mean"], np.float32).reshape(1, 3, 1, 1),
        std=np.array(look["std"], np.float32).reshape(1, 3, 1, 1),
        weight=weight,
        bias=bias,
        projection=None if projected is None else np.load(projected, allow_pickle=False).astype(np.float64),
        temperature=temperature,
        confidences=confidences,
        file=path,
    )
