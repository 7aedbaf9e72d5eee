"""Blending: after an increment the network becomes a mixture of itself and of the network before the increment.

w <- A w + (1 - A) w_previous, as in weight interpolation (Kozal et al., 2024, arXiv 2404.04002; without its alignment
of permuted neurons, since an increment starts from the network before it) and in continual model averaging (Marouf et
al., ECCV 2024, arXiv 2312.08977; without its Fisher weights).

All that both networks have is blended: backbone, scales of the head, weights of old classes (where a method freezes
those, blending leaves them as they are). Weights of new classes have no counterpart and stay. Batch-norm statistics are
blended like weights, or measured again.

A is a constant; or by class counts, A = (new / seen)^(1/4): 0.55 for 5 of 55 classes, 0.76 for 25 of 75, so that a
larger increment moves the network more (ours; the papers take a constant); or, of a grid, the one with the least
classification loss on images that the increment did not train on: of each old class the exemplars of ranks 1, 11, 21,
..., of each new one as many images. The network before the increment has trained on those exemplars when their classes
were new, so this choice leans towards it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from daydream import rng
from daydream.data.augment import Prepare
from daydream.data.images import ImageSet
from daydream.errors import UserError
from daydream.methods.method import Method, network
from daydream.nets.network import Network
from daydream.protocol.inference import BATCH
from daydream.protocol.memory import EVERY_ASIDE, FIRST_ASIDE
from daydream.protocol.stream import Stream, Task, places_in_class
from daydream.stages.stage import Batches, Stage, State

Statistics = Literal["blend", "measure"]
COUNTS_POWER = 0.25
GRID = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class Blending:
    """Blends the network an increment's training leaves with the one before it."""

    def __init__(self, blend: str, statistics: Statistics, method: Method[Any]) -> None:
        self.blend, self.statistics, self.method = blend, statistics, method

    def check(self, stream: Stream) -> None:
        """Raise the user's mistake if nothing can be held out to choose A by."""
        if self.blend != "held-out" or len(stream) == 1:
            return
        if not self.method.keeps_exemplars:
            raise UserError("--blend held-out chooses by exemplars, which this method does not keep: give a number")
        budget = self.method.setup.budget
        if self.method.trains_on(budget.quota(sum(stream.sizes[:-1]))) <= FIRST_ASIDE:
            raise UserError(
                f"--blend held-out needs 2 exemplars per class to train by, one of them to choose by, but --memory "
                f"{budget.size} --budget {budget.rule} leaves fewer: raise --memory"
            )
        out = len(range(FIRST_ASIDE, budget.quota(stream.sizes[0]), EVERY_ASIDE))
        if stream.train.counts()[stream.sizes[0] :].min() <= out:
            raise UserError(f"--blend held-out would hold out all {out} images of a new class: lower --memory")

    def blended(self, task: Task, stage: Stage) -> Stage:
        """Return a stage that ends by blending `net` with the network from before the stage."""

        def begin(state: State) -> None:
            state.nets["previous"] = network(state).frozen_copy()
            if stage.begin is not None:
                stage.begin(state)

        def streams(state: State) -> Mapping[str, Batches]:
            given = stage.streams(state)
            return self.split(task, stage, given)[0] if self.blend == "held-out" else given

        def finish(state: State) -> None:
            if stage.finish is not None:
                stage.finish(state)
            given = stage.streams(state)
            sets = [stream.images for stream in given.values()]
            previous = state.nets.pop("previous")
            assert isinstance(previous, Network)
            if self.blend == "held-out":
                share = self.choose(state, task, previous, sets, self.split(task, stage, given)[1])
            else:
                share = by_counts(task) if self.blend == "counts" else float(self.blend)
            state.tensors["blend"] = torch.tensor([share, moved(network(state), previous)], dtype=torch.float64)
            self.apply(state, task, previous, sets, share)

        def report(state: State) -> Mapping[str, float]:
            share, distance = state.tensors["blend"].tolist()
            return {**(stage.report(state) if stage.report else {}), "blend": share, "moved": round(distance, 4)}

        return replace(stage, begin=begin, streams=streams, finish=finish, report=report)

    def split(
        self, task: Task, stage: Stage, given: Mapping[str, Batches]
    ) -> tuple[Mapping[str, Batches], list[ImageSet]]:
        """Return a stage's streams without what is held out, and what is: of exemplars, and of new images."""
        assert stage.exemplars is not None
        old, new = given[stage.exemplars], given["new"]
        aside = places_in_class(old.images.labels) % EVERY_ASIDE == FIRST_ASIDE
        count = int(torch.bincount(old.images.labels[aside]).max())
        order = torch.randperm(
            len(new.images), generator=rng.generator(self.method.setup.seed, "blend, held out", task.index)
        )
        aside_new = torch.zeros(len(order), dtype=torch.bool)
        aside_new[order[places_in_class(new.images.labels[order]) < count]] = True
        kept = {**given, stage.exemplars: only(old, ~aside), "new": only(new, ~aside_new)}
        return kept, [only(old, aside).images, only(new, aside_new).images]

    def choose(
        self, state: State, task: Task, previous: Network, sets: Sequence[ImageSet], held_out: Sequence[ImageSet]
    ) -> float:
        """Return the A of the grid whose network has the least classification loss on held-out images."""
        net = network(state)
        trained = {name: values.clone() for name, values in net.state_dict().items()}
        labels = torch.cat([images.labels for images in held_out]).to(state.device)
        found: list[float] = []
        for share in GRID:
            self.apply(state, task, previous, sets, share)
            z = torch.cat([self.method.features(state, images) for images in held_out])
            with torch.no_grad():
                found.append(float(self.method.classification(state, z, labels)))
            net.load_state_dict(trained)
        return GRID[found.index(min(found))]

    def apply(self, state: State, task: Task, previous: Network, sets: Sequence[ImageSet], share: float) -> None:
        """Blend `net` and see to its batch-norm statistics."""
        blend(network(state), previous, share)
        if self.statistics == "measure":
            generator = rng.generator(self.method.setup.seed, "blend, statistics", task.index)
            measure(network(state), sets, self.method.setup.prepare, generator)


def by_counts(task: Task) -> float:
    """A = (new / seen)^(1/4) in numbers of classes."""
    return float((task.num_new / task.num_seen) ** COUNTS_POWER)


@torch.no_grad()
def moved(net: nn.Module, previous: nn.Module) -> float:
    """|w - w_previous| / |w_previous| of the parameters both have: between networks far apart a mixture is none."""
    before, now = dict(previous.named_parameters()), dict(net.named_parameters())
    shared = [name for name in before if name in now]
    distance = torch.stack([(now[name] - before[name]).double().square().sum() for name in shared]).sum()
    length = torch.stack([before[name].double().square().sum() for name in shared]).sum()
    return float((distance / length).sqrt())


@torch.no_grad()
def blend(net: nn.Module, previous: nn.Module, share: float) -> None:
    """w <- A w + (1 - A) w_previous, for every weight and statistic that both have."""
    before = previous.state_dict()
    for name, values in net.state_dict().items():
        if name in before and values.is_floating_point():
            values.lerp_(before[name], 1 - share)


@torch.no_grad()
def measure(net: Network, sets: Sequence[ImageSet], prepare: Prepare, generator: torch.Generator) -> None:
    """Set the batch-norm statistics to the means over batches of images, each batch a like mixture of all sets."""
    norms = [module for module in net.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    count = max(1, sum(map(len, sets)) // BATCH)
    # In random order: batches of a few classes each would have too little variance.
    parts = [torch.randperm(len(images), generator=generator).tensor_split(count) for images in sets]
    with torch.compiler.set_stance("force_eager"):
        for number, index in enumerate(zip(*parts, strict=True), start=1):
            for norm in norms:
                norm.train().momentum = 1 / number  # the first replaces what was there, the rest makes it a mean
            pixels = [images.pixels.fetch(i) for images, i in zip(sets, index, strict=True) if len(i)]
            net.features(prepare(torch.cat(pixels)))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def only(stream: Batches, keep: Tensor) -> Batches:
    """Return a stream with some of its images [N]."""
    assert stream.draw is None, "a stream that draws its own index cannot lose images"
    index = keep.nonzero().squeeze(1)
    fields = {name: values[index.to(values.device)] for name, values in stream.fields.items()}
    return replace(stream, images=stream.images.select(index), fields=fields)
