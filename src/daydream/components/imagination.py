"""Imagination: the generators of "Learning to Imagine" (CVPR 2022) as a component that any replay method can carry.

At the end of each task, before its data is dropped, a generator per new class learns to mix an exemplar's feature map
with that of an unlabelled image (section 3.3). In later tasks the frozen generators imagine counterparts of the
exemplars in each batch, and the method classifies those too (section 3.4). Where paper and released code differ,
`docs/imagination.md` says which we follow, and why.

Shapes: G classes; E exemplars, U unlabelled and E x U real images of a class in an update; n counterparts per exemplar.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream import rng
from daydream.components import mining
from daydream.components.pile import FromPile
from daydream.components.quality import Gathered, measure
from daydream.data.images import ImageSet
from daydream.errors import UserError
from daydream.methods.method import Method, memory_names, network
from daydream.nets.generators import GeneratorBank
from daydream.nets.network import Company, Network, in_mode
from daydream.nets.side_streams import Beside, beside
from daydream.protocol.inference import over_rows
from daydream.protocol.stream import Task
from daydream.settings import flag, require, setting
from daydream.stages import losses as loss
from daydream.stages import schedules
from daydream.stages.stage import SGD, Batch, Batches, Draw, Group, Noise, Samples, Stage, State

EXEMPLARS, UNLABELLED = 4, 5  # of a class in an update (released code)
GATHERED = 128  # exemplars whose counterparts are measured at a time: each brings the weights of its generator
CLASSES = 6  # in an update of the released code, at most: its losses are means over them, ours over all new classes


class Form(NamedTuple):
    """A form of the generators' losses: the two losses, and the trade-offs that belong to it."""

    contrast: Callable[[Tensor, Tensor], Tensor]
    decouple: Callable[[Tensor, Tensor], Tensor]
    decoupling: float
    lr: float


FORMS = {
    # The paper prints no trade-offs: these were searched on held-out images (docs/results.md).
    "paper": Form(loss.semantic_contrast, loss.semantic_decoupling, decoupling=0.01, lr=0.01),
    "pooled": Form(loss.pooled_contrast, loss.pooled_decoupling, decoupling=2.0, lr=0.1),  # released code
}


@dataclass(frozen=True, kw_only=True)
class ImaginationSettings:
    """Settings of the generators and of what they imagine."""

    imagine: bool = setting(False, "carry generators and replay what they imagine (always on for --method imagine)")
    counterparts: int = setting(2, "imagined counterparts per exemplar in a batch, n; 0 is the method without (paper)")
    generator_depth: int = setting(2, "residual blocks of a generator, d (paper, section 4.4)")
    generator_width: int | None = setting(None, "channels inside a generator; by default 128, or all if fewer")
    generator_start: Literal["noise", "exemplar"] = setting(
        "noise", "what an untrained generator gives: noise (paper), or the exemplar, to which it then learns to add"
    )
    generator_form: Literal["paper", "pooled"] = setting("paper", "losses as printed, or as in the released code")
    generator_losses: Literal["ce", "sc", "sc+sdc", "sc+sdc+cyc"] = setting(
        "sc+sdc+cyc", "which losses train a generator beside cross-entropy (the rows of the paper's ablation)"
    )
    decoupling: float | None = setting(
        None, "weight of the decoupling losses, lambda; by default 0.01 (paper; searched) or 2 (pooled; released code)"
    )
    cycle: float = setting(0.3, "weight of the cycle losses, lambda_cyc (released code)")
    generator_epochs: int = setting(40, "epochs of generator training, of 25 updates (released code)")
    generator_updates: int = setting(25, "updates in an epoch of generator training (released code)")
    generator_lr: float | None = setting(
        None,
        "learning rate, x0.1 after 1/2, 3/4 and 7/8 of the epochs; by default 0.01 (paper; searched) or 0.1 (pooled; "
        "released code)",
    )
    mining: Literal["entropy", "uniform"] = setting("entropy", "which unlabelled images: most certain ones, or any")
    imagined_weight: float = setting(1.0, "weight of the counterparts' cross-entropy in the mean over all samples")
    mixup_alpha: float = setting(1.0, "alpha of --method mixup: the exemplar's share is drawn from Beta(alpha, alpha)")
    pile_labels: float = setting(
        0.0, "weight of the pile's cross-entropy on predicted classes in the mean over all samples"
    )
    pile_distillation: float = setting(
        0.5, "weight of feature distillation on unlabelled images, times sqrt(seen / new); 0 is the paper's objective"
    )

    def __post_init__(self) -> None:
        for name in ("counterparts", "decoupling", "cycle", "imagined_weight", "pile_labels", "pile_distillation"):
            value = getattr(self, name)
            require(value is None or value >= 0, f"{flag(name)} {value} must not be negative")
        for name in ("generator_depth", "generator_epochs", "generator_updates"):
            require(getattr(self, name) >= 1, f"{flag(name)} {getattr(self, name)} must be at least 1")
        width = self.generator_width
        require(width is None or width >= 1, f"--generator-width {width} must be at least 1")
        lr = self.generator_lr
        require(lr is None or lr > 0, f"--generator-lr {lr} must be above 0")
        require(self.mixup_alpha > 0, f"--mixup-alpha {self.mixup_alpha} must be above 0")


class Imagination(FromPile):
    """Adds a generator stage to each task, and counterparts to the stages that replay exemplars."""

    noise: Mapping[str, Noise] = MappingProxyType({})
    """Random numbers that come with each unlabelled image."""

    def __init__(self, settings: ImaginationSettings, method: Method[Any], pile: ImageSet) -> None:
        super().__init__(method, pile, settings.mining)
        self.settings = settings

    def closing(self, task: Task) -> Stage:
        """Return the stage that trains the generators, on what it mines of the pile."""
        return self.generators(task)

    def generators(self, task: Task) -> Stage:
        """Return the stage that trains the generators of a task's new classes, backbone and head frozen."""
        settings, augment, groups = self.settings, self.setup.augment, task.num_new
        real = EXEMPLARS * UNLABELLED
        form = FORMS[settings.generator_form]
        decoupling = form.decoupling if settings.decoupling is None else settings.decoupling
        kinds = settings.generator_losses.split("+")
        at_least = max(groups * UNLABELLED, 2)
        if len(self.pile) < at_least:  # said before the task trains, not after
            raise UserError(
                f"the pile holds {len(self.pile)} images, fewer than the {at_least} of one batch: give more"
            )

        def begin(state: State) -> None:
            self.mine(state, at_least)
            channels = network(state).map_channels
            full = 2 * channels
            width = min(128, full) if settings.generator_width is None else settings.generator_width
            with rng.seeded(self.setup.seed, "generators", task.index):
                bank = GeneratorBank(
                    groups,
                    channels,
                    settings.generator_depth,
                    width=0 if width == full else width,
                    skip=settings.generator_start == "exemplar",
                )
            state.nets["new_generators"] = bank.to(state.device)

        def streams(state: State) -> Mapping[str, Batches]:
            exemplars = state.memory.as_set(memory_names(task))
            classes = torch.arange(task.num_old, task.num_seen)
            mined = state.tensors["pile.classes"].cpu()

            def draw_pile(generator: torch.Generator, steps: int, _: Mapping[str, Tensor]) -> Tensor:
                wanted = classes.repeat_interleave(UNLABELLED).expand(steps, -1)
                return mining.draw_other_class(generator, mined, wanted)

            return {
                "exemplars": Batches(
                    images=exemplars,
                    size=groups * EXEMPLARS,
                    augment=augment,
                    draw=dealer(exemplars.labels, classes, EXEMPLARS),
                ),
                "pile": Batches(images=self.mined(state), size=groups * UNLABELLED, augment=augment, draw=draw_pile),
                "real": Batches(
                    images=task.train,
                    size=groups * real,
                    augment=augment,
                    draw=dealer(task.train.labels, classes, real),
                ),
            }

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            net, bank = network(state), state.nets["new_generators"]
            with torch.no_grad():
                maps = net.lower(torch.cat([batch[name].images for name in ("exemplars", "pile", "real")]))
            h_m, h_u, h_k = maps.split([groups * EXEMPLARS, groups * UNLABELLED, groups * real])
            m = h_m.unflatten(0, (groups, EXEMPLARS, 1)).expand(-1, -1, UNLABELLED, -1, -1, -1).flatten(1, 2)
            u = h_u.unflatten(0, (groups, 1, UNLABELLED)).expand(-1, EXEMPLARS, -1, -1, -1, -1).flatten(1, 2)
            mixed = bank(m, u)
            flat = mixed.flatten(0, 1)
            labels = batch["real"].labels
            terms = {"ce": self.method.classification(state, net.upper(flat), labels)}
            if "sc" in kinds:
                terms["sc"] = form.contrast(flat, h_k)
            if "sdc" in kinds:
                terms["sdc"] = decoupling * form.decouple(flat, u.flatten(0, 1))
            if "cyc" in kinds:
                # Counterparts are made of exemplars and unlabelled maps: only those may set the running statistics.
                again = bank(mixed, m, track=False).flatten(0, 1)
                terms["sc_cyc"] = settings.cycle * form.contrast(again, flat)
                terms["sdc_cyc"] = settings.cycle * decoupling * form.decouple(again, m.flatten(0, 1))
            return terms

        def finish(state: State) -> None:
            fresh = state.nets.pop("new_generators")
            known = state.nets.get("generators")
            assert isinstance(fresh, GeneratorBank)
            fresh.requires_grad_(False)
            state.nets["generators"] = known.extended(fresh) if isinstance(known, GeneratorBank) else fresh

        epochs, together = settings.generator_epochs, groups / min(groups, CLASSES)
        return Stage(
            name="imagine",
            epochs=epochs,
            steps=settings.generator_updates,
            trains=lambda state: [Group(list(state.nets["new_generators"].parameters()))],
            streams=streams,
            losses=losses,
            # The losses are means over all classes here, over those of one update there.
            optimizer=SGD(lr=(settings.generator_lr or form.lr) * together, weight_decay=5e-4 / together),
            schedule=schedules.step_down([20, 30, 35], of=40),
            train_mode=frozenset({"new_generators"}),
            begin=begin,
            finish=finish,
            report=lambda state: self.quality(state, task),
        )

    def replayed(self, task: Task, stage: Stage) -> Stage:
        """Return a stage that classifies, beside all it did, counterparts of its exemplars."""
        settings, count, name = self.settings, self.settings.counterparts, stage.exemplars
        assert name is not None
        distill = settings.pile_distillation * math.sqrt(task.num_seen / task.num_new)

        def streams(state: State) -> Mapping[str, Batches]:
            given = stage.streams(state)
            old = given[name]
            mined, labels = state.tensors["pile.classes"].cpu(), old.images.labels

            def draw(generator: torch.Generator, steps: int, before: Mapping[str, Tensor]) -> Tensor:
                return mining.draw_other_class(generator, mined, labels[before[name]].repeat_interleave(count, dim=1))

            size = count * old.size
            pile = Batches(images=self.mined(state), size=size, augment=old.augment, draw=draw, noise=self.noise)
            return {**given, "pile": pile}

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            net, old, pile = network(state), batch[name], batch["pile"]
            company = self.company(state, net, old, pile)
            if settings.pile_labels or distill:
                company.images = pile.images if company.images is None else torch.cat([company.images, pile.images])
            terms, features, taught = self.along(stage, state, batch, company, pile.images if distill else None)
            z, z_pile = features.split([len(pile.labels), len(features) - len(pile.labels)])
            terms["imagined"] = self.method.classification(state, z, old.labels.repeat_interleave(count))
            if len(z_pile):
                terms |= self.pile_terms(state, z_pile, pile, distill, taught)
            # Cross-entropies are one mean over all samples, turned ones included.
            real = company.hosts
            weights = {"imagined": settings.imagined_weight, "pile_labels": settings.pile_labels}
            shares = {"ce": real, **{key: weight * len(pile.labels) for key, weight in weights.items()}}
            for key in shares.keys() & terms.keys():
                terms[key] = terms[key] * (shares[key] / sum(shares.values()))
            return terms

        return replace(stage, streams=streams, losses=losses)

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

    def pile_terms(
        self, state: State, z: Tensor, pile: Samples, distill: float, z_old: Tensor | None
    ) -> dict[str, Tensor]:
        """Return the released code's two extra terms on unlabelled images of features z, those that are asked for.

        `z_old` are the old network's features, where they are asked for.
        """
        terms = dict[str, Tensor]()
        if self.settings.pile_labels:
            terms["pile_labels"] = self.method.classification(state, z, pile.labels)
        if z_old is not None:
            terms["pile_distill"] = distill * loss.cosine_distillation(z, z_old)
        return terms

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


def dealer(labels: Tensor, classes: Tensor, count: int) -> Draw:
    """Return a `draw` that deals out each class's images in random order, `count` a step, classes side by side."""
    places = torch.isin(labels, classes).nonzero().squeeze(1)
    places = places[labels[places].argsort(stable=True)]
    sizes = torch.bincount(labels[places], minlength=int(classes[-1]) + 1)[classes]
    first = sizes.cumsum(0) - sizes
    padding = torch.arange(int(sizes.max())) >= sizes[:, None]

    def draw(generator: torch.Generator, steps: int, before: Mapping[str, Tensor]) -> Tensor:
        order = torch.rand(padding.shape, generator=generator).masked_fill(padding, torch.inf).argsort(dim=1)
        turn = torch.arange(steps * count).expand(len(classes), -1) % sizes[:, None]
        dealt = places[first[:, None] + order.gather(1, turn)]
        return dealt.view(len(classes), steps, count).transpose(0, 1).flatten(1)

    return draw
