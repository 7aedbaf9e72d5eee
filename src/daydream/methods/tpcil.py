"""TPCIL: "Topology-Preserving Class-Incremental Learning" (ECCV 2020): a reading of the paper, no reproduction of it.

No code was ever released, and the weight of the loss is not known: no number of this file may stand beside the paper's
as if it repeated it. The idea: after a task, vertices in the space of normalised features stand for its classes, and
images near them, the anchors, are kept as exemplars; in the next task the similarities between vertices are held to
what they were, by their correlation, so that features may move and turn as long as their neighbourhoods stay.

How we read it. Vertices are k-means centres of each class, as many as it may keep exemplars (the paper grows them by
competitive Hebbian learning, image after image). A vertex's anchor is the nearest image of its cluster, and larger
clusters rank first, which is what a shrinking memory keeps. Beside new images and exemplars, each step passes anchors
that are compared with each other, by their features in this pass and by the vertices they stand for: so many that a
correlation means something. After a task the vertices of old classes move to where their anchors are now, the images
they were centres of being gone. Weights of new classes are imprinted and all train; schedule and head are UCIR's.

Shapes: N images, C classes, K vertices of a class, D feature dimensions, M exemplars.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream import rng
from daydream.methods.method import Method, RehearsalSettings, joined, memory_names, network, unclamped
from daydream.methods.unified import FALLS
from daydream.nets.kmeans import by_class, k_means
from daydream.protocol.stream import Task
from daydream.settings import require, setting
from daydream.stages.losses import topology
from daydream.stages.stage import Batch, Batches, Stage, State


@dataclass(frozen=True, kw_only=True)
class TPCILSettings(RehearsalSettings):
    """Settings of TPCIL."""

    lr: float = setting(0.1, "learning rate, x0.1 after 1/2 and 3/4 of the epochs (UCIR's)")
    clamp: float | None = unclamped("UCIR's")
    topology: float = setting(1.0, "weight of the topology-preserving loss, lambda; 0 is none (ours: not published)")
    anchors: int = setting(128, "anchors that a step compares with each other, as far as there are (ours)")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.topology >= 0, f"--topology {self.topology} must not be negative")
        require(self.anchors >= 3, f"--anchors {self.anchors} must be at least 3: two pairs make no correlation")


class TPCIL(Method[TPCILSettings]):
    """Cross-entropy on new images and anchors, and the correlation of the graph with what it was."""

    Settings = TPCILSettings
    reports = "cnn"
    reading = True
    head = "cosine"
    recipe = "cross-entropy; rate x0.1 at 80 and 120 of 160"
    replays = True

    def schedule(self, epoch: int, epochs: int) -> float:
        return FALLS(epoch, epochs)

    def increment(self, task: Task) -> Stage:
        """Return the stage that learns new classes beside the anchors of old ones, which it compares as a graph."""
        stage = self.rehearse(task, task.train, imprinted=True)
        if not self.settings.topology:
            return stage

        def begin(state: State) -> None:
            assert stage.begin is not None
            stage.begin(state)
            own = self.features(state, state.memory.as_set(memory_names(task)))
            self.align(state, F.normalize(own.float(), dim=1))

        def streams(state: State) -> Mapping[str, Batches]:
            given = stage.streams(state)
            size = min(self.settings.anchors, len(given["old"].images))
            return {**given, "graph": replace(given["old"], size=size, fields={"vertex": state.tensors["vertices"]})}

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            images, labels = joined(batch, "new", "old", "graph")
            vertices = batch["graph"].fields["vertex"]
            z, anchors = network(state).features(images).tensor_split([-len(vertices)])
            return {
                "ce": self.classification(state, z, labels[: len(z)]),
                "topology": self.settings.topology * topology(anchors, vertices),
            }

        return replace(stage, begin=begin, streams=streams, losses=losses, split=False)  # samples meet each other

    def align(self, state: State, own: Tensor) -> None:
        """Put the vertices in the order of the memory; an exemplar without one stands for itself, `own` [M, D].

        A memory that a lesson joined more images to, or chose again in part, is not the one its vertices were made for.
        """
        marks, (known, order) = marks_of(state.memory.images), state.tensors["vertices.of"].sort()
        place = torch.searchsorted(known, marks).clamp(max=len(known) - 1)
        theirs = state.tensors["vertices"][order[place]]
        state.tensors["vertices"] = torch.where((known[place] == marks)[:, None], theirs, own)
        state.tensors["vertices.of"] = marks

    def select(self, task: Task) -> Stage:
        """Return the stage that grows the graph: anchors of new classes join the memory, old vertices move."""

        def begin(state: State) -> None:
            features, quota = self.features(state, task.train), self.setup.budget.quota(task.num_seen)
            index, ranks, vertices = self.graph(features, task.train.labels, quota)
            state.memory = state.memory.shrunk(quota)
            if len(state.memory):
                old = self.features(state, state.memory.as_set(memory_names(task)))
                vertices = torch.cat([F.normalize(old.float(), dim=1), vertices])
            chosen = (index, ranks)
            state.memory = state.memory.updated(task.train, features, task.num_seen, lambda *_: chosen)
            state.tensors["vertices"], state.tensors["vertices.of"] = vertices, marks_of(state.memory.images)

        return Stage(name="select", begin=begin)

    def choose(self, features: Tensor, labels: Tensor, quota: int) -> tuple[Tensor, Tensor]:
        index, ranks, _ = self.graph(features, labels, quota)
        return index, ranks

    def graph(self, features: Tensor, labels: Tensor, quota: int) -> tuple[Tensor, Tensor, Tensor]:
        return anchors(features, labels, quota, rng.generator(self.setup.seed, "vertices"))


def anchors(features: Tensor, labels: Tensor, quota: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return the anchors of each class's vertices: index [M], sorted by class and rank, ranks, and vertices [M, D].

    A vertex's anchor is the nearest image of its cluster. Where equal images leave a cluster empty, an image nearest to
    its own vertex fills the place; a class of fewer images than the quota gives all.
    """
    phi, real = by_class(F.normalize(features.float(), dim=1), labels)
    centres = k_means(phi, real, quota, generator)
    gaps = torch.cdist(phi, centres, compute_mode="donot_use_mm_for_euclid_dist")  # [C, N, K]
    gap, owner = gaps.min(2)
    member = (owner[..., None] == torch.arange(quota, device=owner.device)) & real[..., None]
    nearest, sizes = gaps.masked_fill(~member, torch.inf).argmin(1), member.sum(1)  # [C, K]
    score = (-1 - gap).masked_fill(~real, -torch.inf)  # anchors by the size of their cluster, then all others
    score = score.scatter_reduce(1, nearest, torch.where(sizes > 0, sizes, -torch.inf).to(score), "amax")
    best = score.argsort(dim=1, descending=True, stable=True)[:, :quota]
    kept = score.gather(1, best) > -torch.inf
    places = by_class(torch.arange(len(labels), device=phi.device)[:, None], labels)[0].squeeze(2)
    vertices = centres.take_along_dim(owner.gather(1, best)[..., None], 1)
    ranks = torch.arange(best.shape[1]).expand(len(best), -1)[kept.cpu()]
    return places.gather(1, best)[kept].cpu(), ranks, F.normalize(vertices[kept], dim=1)


def marks_of(images: Tensor) -> Tensor:
    """Return a number [M] for each image [M, 3, H, W] that another image hardly has: a sum of its bytes, by place."""
    flat = images.flatten(1).long()
    return (flat * (1 + torch.arange(flat.shape[1], device=flat.device)).square()).sum(1)
