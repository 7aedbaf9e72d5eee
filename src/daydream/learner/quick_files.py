"""What predictions without torch need of a network, written into the private cache by the lesson that can."""

import importlib.util
import io
import logging

import numpy as np
import torch
from torch import Tensor, nn

from daydream import atomic
from daydream.data.cache import private
from daydream.export.onnx import graph
from daydream.learner.embedding import Embedder
from daydream.learner.quick import FOLDER, files
from daydream.nets.network import Network
from daydream.nets.ridge import Projection

log = logging.getLogger("daydream")


class Features(nn.Module):
    """A network without its head."""

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.lower, self.upper = net.lower, net.upper

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.upper(self.lower(x))
        return z


def make_ready(embed: Embedder, projection: Projection | None) -> None:
    """Write a network's graph, and a projection of its features, where they are not there yet.

    What cannot be written costs time at each prediction, and nothing else.
    """
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxruntime")):
        return
    wanted = None if projection is None else (projection.width, projection.seed)
    network, projected = files(embed.identity, wanted)
    try:
        private(FOLDER)
        if not network.is_file():
            with torch.inference_mode(False), atomic.replacing(network, atomic.PRIVATE) as part:
                part.write_bytes(graph(Features(embed.net), embed.prepare.size))
        if projection is not None and projected is not None and not projected.is_file():
            content = io.BytesIO()
            np.save(content, projection.matrix(embed.dim).numpy())
            with atomic.replacing(projected, atomic.PRIVATE) as part:
                part.write_bytes(content.getvalue())
    except (OSError, RuntimeError) as error:
        log.info("predictions go on by torch, which takes longer to start: %s", error)
