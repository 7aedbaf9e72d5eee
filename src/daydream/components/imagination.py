"""Imagination: the generators of "Learning to Imagine" (CVPR 2022) as a component that any replay method can carry.

At the end of each task, before its data is dropped, a generator per new class learns to mix an exemplar's feature map
with that of an unlabelled image (section 3.3). In later tasks the frozen generators imagine counterparts of the
exemplars in each batch, and the method classifies those too (section 3.4). Where paper and released code differ,
`docs/notebook/paper-and-code.md` says which we follow, and why.

Shapes: B exemplars in a batch, n counterparts of each.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream import rng
from daydream.components import mining
from daydream.components.generator_stage import GeneratorTraining
from daydream.components.imagination_settings import ImaginationSettings
from daydream.components.pile import FromPile, Teaching, in_one_mean
from daydream.components.quality import Gathered, measure
from daydream.data.images import ImageSet
from daydream.methods.method import Method, network
from daydream.nets.generators import GeneratorBank
from daydream.nets.network import Company, Network, in_mode
from daydream.nets.side_streams import Beside, beside
from daydream.protocol.inference import over_rows
from daydream.protocol.stream import Task
from daydream.stages.stage import Batch, Batches, Kinds, Noise, Samples, Stage, State

GATHERED = 128  # exemplars whose counterparts are measured at a time: each brings the weights of its generator


class Imagination(FromPile):
    """Adds a generator stage to each task, and counterparts to the stages that replay exemplars."""

    kinds: ClassVar[Kinds] = {"GeneratorBank": GeneratorBank}

    noise: Mapping[str, Noise] = MappingProxyType({})
    """Random numbers that come with each unlabelled image."""
    generates: ClassVar[bool] = True
    """Whether generators make its counterparts."""

    def __init__(self, settings: ImaginationSettings, method: Method[Any], pile: ImageSet, teaching: Teaching) -> None:
        super().__init__(method, pile, teaching)
        self.settings = settings

    def closing(self, task: Task) -> Stage:
        """Return the stage that trains the generators, on what it mines of the pile."""
        return self.generators(task)

    def generators(self, task: Task) -> Stage:
        """Return the stage that trains the generators of a task's new classes, and then measures them."""
        training = GeneratorTraining(self, self.settings, task)
        return replace(training.stage(), report=lambda state: self.quality(state, task))

    def replayed(self, task: Task, stage: Stage) -> Stage:
        """Return a stage that classifies, beside all it did, counterparts of its exemplars."""
        settings, count, name = self.settings, self.settings.counterparts, stage.exemplars
        assert name is not None
        teaching, strength, suits = self.teaching, self.teaching.strength(task), self.suits(task)

        def streams(state: State) -> Mapping[str, Batches]:
            given = stage.streams(state)
            old = given[name]
            mined, labels = state.tensors["pile.classes"].cpu(), old.images.labels

            def draw(generator: torch.Generator, steps: int, before: Mapping[str, Tensor]) -> Tensor:
                return mining.draw_other_class(generator, mined, labels[before[name]].repeat_interleave(count, dim=1))

            size = count * old.size
            pile = Batches(images=self.mined(state), size=size, augment=old.augment, draw=draw, noise=self.noise)
            return {**given, "pile": pile, **self.beside_pile(task, name, old)}

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            net, old, pile = network(state), batch[name], batch["pile"]
            company = self.company(state, net, self.origin(batch, name), pile)
            if teaching.anything:
                company.images = pile.images if company.images is None else torch.cat([company.images, pile.images])
            taught = pile.images if teaching.asks_old else None
            terms, features, old_features = self.along(stage, state, batch, company, taught)
            taught_on = len(pile.labels) if teaching.anything else 0
            z, z_pile = features.split([len(features) - taught_on, taught_on])
            if len(z):
                terms["imagined"] = self.method.classification(state, z, old.labels.repeat_interleave(count))
            if taught_on:
                terms |= teaching.terms(self.method, state, z_pile, pile, strength, old_features)
            # Cross-entropies are one mean over all samples, turned ones included.
            counterparts = {"imagined": settings.imagined_weight * len(pile.labels)}
            unlabelled = teaching.samples(len(pile.labels), company.hosts, suits)
            return in_one_mean(terms, {"ce": company.hosts, **counterparts, **unlabelled})

        return replace(stage, streams=streams, losses=losses)

    def beside_pile(self, task: Task, name: str, old: Batches) -> Mapping[str, Batches]:
        """Return what else a batch holds for counterparts of the exemplars `old`, which are in the stream `name`."""
        return {}

    def origin(self, batch: Batch, name: str) -> Samples:
        """Return what counterparts are made of, beside the pile: the exemplars, which are in the stream `name`."""
        return batch[name]

    def company(self, state: State, net: Network, exemplars: Samples, pile: Samples) -> Company:
        """Return what passes along with a batch: counterparts [B * n] of its exemplars [B], from a pile [B * n].

        Imagined and unlabelled features must not enter the statistics that real images are judged with.
        """

        def imagined() -> tuple[Tensor, Beside]:
            imagining = beside(state.device, "imagining")
            with in_mode(net, training=False), torch.no_grad():  # as where the generators were trained
                maps = net.lower(torch.cat([exemplars.images, pile.images]))
                imagining.keep(maps)
                with imagining:
                    return self.mixed(state, maps, exemplars.labels), imagining

        return Company(maps=imagined)

    @torch.no_grad()
    def mixed(self, state: State, maps: Tensor, labels: Tensor) -> Tensor:
        """Return counterparts [B * n, c, h, w] of exemplars of classes `labels` [B].

        `maps` [B + B * n, c, h, w] are those of the exemplars, then those of the unlabelled images they are mixed with.
        """
        h_m, h_u = maps.split([len(labels), len(maps) - len(labels)])
        u = h_u.unflatten(0, (len(labels), -1))
        mixed: Tensor = state.nets["generators"](h_m[:, None].expand_as(u), u, labels).flatten(0, 1)
        return mixed

    def quality(self, state: State, task: Task) -> dict[str, float]:
        """Measure the generators of a task's new classes: see `measure`."""
        return measure(self.gather(state, task.train, rng.generator(self.setup.seed, "look", task.index, 0)))

    @torch.no_grad()
    def gather(self, state: State, images: ImageSet, generator: torch.Generator) -> Gathered:
        """Return features of real images, of the exemplars of their classes, and of the exemplars' counterparts."""
        exemplars = state.memory.as_set(images.class_names).of_classes(images.labels.unique())
        each = max(1, self.settings.counterparts)
        wanted = exemplars.labels.repeat_interleave(each)
        pile = self.mined(state).pixels.fetch(
            mining.draw_other_class(generator, state.tensors["pile.classes"].cpu(), wanted)
        )
        net, prepare = network(state), self.setup.prepare
        labels = exemplars.labels.to(state.device)

        def features(x: Tensor, y: Tensor, u: Tensor) -> Tensor:
            z = net.upper(self.mixed(state, net.lower(torch.cat([prepare(x), prepare(u.flatten(0, 1))])), y))
            rows: Tensor = z.unflatten(0, u.shape[:2])
            return rows

        held_images = exemplars.pixels.fetch(torch.arange(len(exemplars)))
        z = over_rows(features, held_images, labels, pile.unflatten(0, (-1, each)), most=GATHERED).flatten(0, 1)
        real, held = self.method.features(state, images), self.method.features(state, exemplars)
        a, b, c = (F.normalize(f.float(), dim=1) for f in (real, held, z))
        truths = (images.labels.to(state.device), labels, wanted.to(state.device))
        return Gathered(a, b, c, *truths, net.head(z))
