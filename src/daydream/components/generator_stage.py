"""The stage that trains the generators of a task's new classes (the paper's section 3.3), backbone and head frozen.

Shapes: G classes; E exemplars, U unlabelled and E x U real images of a class in an update.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from daydream import rng
from daydream.components import mining
from daydream.components.imagination_settings import FORMS, ImaginationSettings
from daydream.components.pile import FromPile
from daydream.errors import UserError
from daydream.methods.method import memory_names, network
from daydream.nets.generators import GeneratorBank
from daydream.protocol.stream import Task
from daydream.stages import schedules
from daydream.stages.stage import SGD, Batch, Batches, Draw, Group, Stage, State

EXEMPLARS, UNLABELLED = 4, 5  # of a class in an update (released code)
REAL = EXEMPLARS * UNLABELLED
BANK = "new_generators"
"""What the state calls generators while they train."""
CLASSES = 6  # in an update of the released code, at most: its losses are means over them, ours over all new classes


class GeneratorTraining:
    """The training of a task's generators, on what is mined of the pile when it begins."""

    def __init__(self, component: FromPile, settings: ImaginationSettings, task: Task) -> None:
        self.component, self.settings, self.task = component, settings, task
        self.setup, self.groups = component.setup, task.num_new
        self.form = FORMS[settings.generator_form]
        self.decoupling = self.form.decoupling if settings.decoupling is None else settings.decoupling
        self.kinds = settings.generator_losses.split("+")
        self.at_least = max(self.groups * UNLABELLED, 2)
        if len(component.pile) < self.at_least:  # said before the task trains, not after
            raise UserError(
                f"the pile holds {len(component.pile)} images, fewer than the {self.at_least} of one batch: give more"
            )

    def stage(self) -> Stage:
        settings, together = self.settings, self.groups / min(self.groups, CLASSES)
        return Stage(
            name="imagine",
            epochs=settings.generator_epochs,
            steps=settings.generator_updates,
            trains=lambda state: [Group(list(state.nets[BANK].parameters()))],
            streams=self.streams,
            losses=self.losses,
            # The losses are means over all classes here, over those of one update there.
            optimizer=SGD(lr=(settings.generator_lr or self.form.lr) * together, weight_decay=5e-4 / together),
            schedule=schedules.step_down([20, 30, 35], of=40),
            train_mode=frozenset({BANK}),
            begin=self.begin,
            finish=finish,
        )

    def begin(self, state: State) -> None:
        """Mine the pile, and make a fresh bank for the new classes."""
        self.component.mine(state, self.at_least)
        channels = network(state).map_channels
        full = 2 * channels
        width = min(128, full) if self.settings.generator_width is None else self.settings.generator_width
        with rng.seeded(self.setup.seed, "generators", self.task.index):
            bank = GeneratorBank(
                self.groups,
                channels,
                self.settings.generator_depth,
                width=0 if width == full else width,
                skip=self.settings.generator_start == "exemplar",
            )
        state.nets[BANK] = bank.to(state.device)

    def streams(self, state: State) -> Mapping[str, Batches]:
        task, groups, augment = self.task, self.groups, self.setup.augment
        exemplars = state.memory.as_set(memory_names(task))
        classes = torch.arange(task.num_old, task.num_seen)
        mined = state.tensors["pile.classes"].cpu()

        def draw_pile(generator: torch.Generator, steps: int, _: Mapping[str, Tensor]) -> Tensor:
            wanted = classes.repeat_interleave(UNLABELLED).expand(steps, -1)
            return mining.draw_other_class(generator, mined, wanted)

        pile, deals = self.component.mined(state), dealer(exemplars.labels, classes, EXEMPLARS)
        real = dealer(task.train.labels, classes, REAL)
        return {
            "exemplars": Batches(images=exemplars, size=groups * EXEMPLARS, augment=augment, draw=deals),
            "pile": Batches(images=pile, size=groups * UNLABELLED, augment=augment, draw=draw_pile),
            "real": Batches(images=task.train, size=groups * REAL, augment=augment, draw=real),
        }

    def losses(self, state: State, batch: Batch) -> Mapping[str, Tensor]:
        """Return the paper's losses of every exemplar of a class mixed with every unlabelled image."""
        net, bank, groups, form = network(state), state.nets[BANK], self.groups, self.form
        with torch.no_grad():
            maps = net.lower(torch.cat([batch[name].images for name in ("exemplars", "pile", "real")]))
        h_m, h_u, h_k = maps.split([groups * EXEMPLARS, groups * UNLABELLED, groups * REAL])
        m = h_m.unflatten(0, (groups, EXEMPLARS, 1)).expand(-1, -1, UNLABELLED, -1, -1, -1).flatten(1, 2)
        u = h_u.unflatten(0, (groups, 1, UNLABELLED)).expand(-1, EXEMPLARS, -1, -1, -1, -1).flatten(1, 2)
        mixed = bank(m, u)
        flat = mixed.flatten(0, 1)
        terms = {"ce": self.component.method.classification(state, net.upper(flat), batch["real"].labels)}
        if "sc" in self.kinds:
            terms["sc"] = form.contrast(flat, h_k)
        if "sdc" in self.kinds:
            terms["sdc"] = self.decoupling * form.decouple(flat, u.flatten(0, 1))
        if "cyc" in self.kinds:
            # Counterparts are made of exemplars and unlabelled maps: only those may set the running statistics.
            again = bank(mixed, m, track=False).flatten(0, 1)
            cycle = self.settings.cycle
            terms["sc_cyc"] = cycle * form.contrast(again, flat)
            terms["sdc_cyc"] = cycle * self.decoupling * form.decouple(again, m.flatten(0, 1))
        return terms


def finish(state: State) -> None:
    """Freeze the new generators and put them beside those of old classes."""
    fresh, known = state.nets.pop(BANK), state.nets.get("generators")
    assert isinstance(fresh, GeneratorBank)
    fresh.requires_grad_(False)
    state.nets["generators"] = known.extended(fresh) if isinstance(known, GeneratorBank) else fresh


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
