"""SimpleCIL (Zhou et al., IJCV 2024, "Revisiting class-incremental learning with pre-trained models"): class means.

A frozen network from published weights; a class's weight vector is the mean feature of its training images, scores are
cosines, nothing trains and no image is kept. It asks of any method what its training adds.

Different from the original, which is for pretrained networks alone: where the backbone brings no published weights, the
network is trained on the base task by the common recipe, with a cosine head, and frozen then.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from daydream.methods.method import Method, TrainingSettings, network
from daydream.nets.network import architecture
from daydream.protocol.stream import Task
from daydream.stages.stage import Stage, State


@dataclass(frozen=True, kw_only=True)
class SimpleCILSettings(TrainingSettings):
    """Settings of SimpleCIL: those of the base task, for a backbone without published weights."""


class SimpleCIL(Method[SimpleCILSettings]):
    """The nearest class mean on frozen features."""

    Settings = SimpleCILSettings
    keeps_exemplars = False
    frozen = True
    reports = "cnn"
    head = "cosine"
    carries = frozenset()

    def stages(self, task: Task) -> list[Stage]:
        means = Stage(name="means", begin=lambda state: self.learn_means(state, task))
        if not task.is_base:
            return [means]
        if architecture(self.setup.backbone) != self.setup.backbone:
            return [Stage(name="load", begin=lambda state: self.load(state, task)), means]
        return [self.classify(task, task.train, self.settings.base_epochs), means]

    def load(self, state: State, task: Task) -> None:
        """Take the backbone with its published weights."""
        state.nets = {"net": self.new_network(task).to(state.device).eval()}

    def learn_means(self, state: State, task: Task) -> None:
        """Make the mean feature of each class its weight vector; from the base task on, nothing else changes."""
        net = network(state)
        if not task.is_base:
            net.head.grow(task.num_new)
        net.requires_grad_(False)
        sums, counts = class_sums(self.features(state, task.train), task.train.labels, task.num_seen)
        if not task.is_base:
            sums[: task.num_old] += state.tensors["sums"]
            counts[: task.num_old] += state.tensors["counts"]
        state.tensors = {"sums": sums, "counts": counts}
        means = sums / counts.clamp(min=1)[:, None]
        for weight, part in zip(net.head.weights, means[:, None].split(net.head.sizes), strict=True):
            weight.copy_(part)


def class_sums(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return the sum of features [C, D] and the number of images [C] of each class, of features [N, D], labels [N]."""
    labels = labels.to(features.device)
    total = torch.zeros(classes, features.shape[1], device=features.device).index_add_(0, labels, features.float())
    return total, torch.bincount(labels, minlength=classes).float()
