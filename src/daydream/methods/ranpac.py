"""RanPAC (McDonnell et al., NeurIPS 2023) without its first-session adaptation: random projection and ridge regression.

Features of a frozen network pass a random projection and a ReLU, h = max(0, z P) (section 4.1); classes are told apart
by ridge regression on h, which needs the second moment of h and each class's sum alone (equations 5 and 6). Both are
sums over images, so tasks in turn give what all at once would give, and no image is kept.

Different from the original: the regression has an intercept and weighs classes alike, and its strength is chosen by
generalised cross-validation on the sums, not on a fifth of each task; features have unit length; the projection is
4,096 wide, not 10,000. Where the backbone brings no published weights, it is trained on the base task first.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream import rng
from daydream.methods.method import Method, Prediction, TrainingSettings, network
from daydream.nets.network import architecture
from daydream.nets.resnet import parameter_count
from daydream.nets.ridge import Sums, fit_sums
from daydream.protocol.stream import Task
from daydream.settings import require, setting
from daydream.stages.stage import Stage, State

CHUNK = 4096


@dataclass(frozen=True, kw_only=True)
class RanPACSettings(TrainingSettings):
    """Settings of RanPAC; those of training are for the base task of a backbone without published weights."""

    width: int = setting(4096, "columns of the random projection (paper: 10,000)")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.width >= 1, f"--width {self.width} must be at least 1")


class RanPAC(Method[RanPACSettings]):
    """Ridge regression on randomly projected features of a frozen network."""

    Settings = RanPACSettings
    keeps_exemplars = False
    frozen = True
    reports = "cnn"
    head = "linear"
    carries = frozenset()

    def stages(self, task: Task) -> list[Stage]:
        regress = Stage(name="regress", begin=lambda state: self.regress(state, task))
        if not task.is_base:
            return [regress]
        if architecture(self.setup.backbone) != self.setup.backbone:
            return [Stage(name="load", begin=lambda state: self.load(state, task)), regress]
        return [self.classify(task, task.train, self.settings.base_epochs), regress]

    def load(self, state: State, task: Task) -> None:
        """Take the backbone with its published weights."""
        state.nets = {"net": self.new_network(task).to(state.device).eval()}

    def regress(self, state: State, task: Task) -> None:
        """Add the task's images to the sums, and solve."""
        network(state).requires_grad_(False)
        z, labels = self.features(state, task.train), task.train.labels
        if task.is_base:
            draws = rng.generator(self.setup.seed, "projection")
            matrix = torch.randn(z.shape[1], self.settings.width, generator=draws).to(z.device)
            state.tensors = {"projection": matrix}
            sums = Sums.empty(self.settings.width, z.device)
        else:
            sums = Sums(*(state.tensors[name] for name in ("second", "sums", "counts")))
        for part, of in zip(z.split(CHUNK), labels.split(CHUNK), strict=True):
            sums = sums + Sums.of(self.projected(state, part), of, task.num_seen)
        ridge = fit_sums(sums)
        state.tensors |= {"second": sums.second, "sums": sums.sums, "counts": sums.counts}
        state.tensors |= {"weight": ridge.weight.float(), "bias": ridge.bias.float()}

    def projected(self, state: State, z: Tensor) -> Tensor:
        """Return h [B, M] of features z [B, D]."""
        matrix = state.tensors["projection"]
        return F.relu(F.normalize(z.float(), dim=1) @ matrix) / math.sqrt(matrix.shape[1])

    def predict(self, state: State, images: Tensor) -> Prediction:
        z = network(state).features(images)
        if "weight" not in state.tensors:  # nothing but features is asked of it before it has learnt
            return Prediction(z, z)
        return Prediction(z, self.projected(state, z) @ state.tensors["weight"].T + state.tensors["bias"])

    def parameters(self, state: State) -> tuple[int, int]:
        net = network(state)
        head = sum(state.tensors[name].numel() for name in ("projection", "weight", "bias"))
        return parameter_count(net) - parameter_count(net.head), head
