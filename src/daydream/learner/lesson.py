"""One lesson: a task made of a folder, as the method's stages, which lead from one model to the next.

The new classes are a task as any other. Images of known classes join the memory while the lesson lasts, save those it
holds already, so the method replays them as exemplars, and those classes' exemplars are then chosen again from old
exemplars and new images. A lesson without a new class trains the whole network on memory and given images, as many of
each class, at a tenth of the learning rate. A method that keeps no exemplars trains on given images alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from daydream.components.carried import Carried, kinds_of
from daydream.components.generator_stage import UNLABELLED, dealer
from daydream.components.imagination import Imagination
from daydream.components.pile import FromPile
from daydream.data.images import ImageSet
from daydream.engine import Hardware
from daydream.errors import UserError
from daydream.learner.intake import Intake, digests, distinct
from daydream.learner.making import Sections, carried_settings, make_method, without_pile
from daydream.learner.model import Model, Preprocessing
from daydream.learner.settings import LessonSettings, ModelSettings
from daydream.nets.network import check_backbone, check_image_size, fix_lower_halves, is_pretrained
from daydream.protocol.memory import Memory
from daydream.protocol.stream import Stream, Task
from daydream.stages.stage import Batches, Group, Stage, State
from daydream.storage.state import pack, unpack

GENTLY = 0.1
"""Share of the learning rate when no class is new."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """All that a lesson is made of: what was known, how it is to be taught, and what came."""

    before: Model | None
    settings: ModelSettings
    carried: Sections
    preprocessing: Preprocessing
    lesson: LessonSettings
    intake: Intake
    pile: ImageSet | None
    hardware: Hardware

    def on_device(self) -> "Given":
        device, intake = self.hardware.device, self.intake
        moved = Intake(intake.names, intake.train.to(device), intake.held_out.to(device))
        return replace(self, intake=moved, pile=None if self.pile is None else self.pile.to(device))


class Lesson:
    """Method, task and stages of a lesson, made ready and checked before anything trains."""

    def __init__(self, given: Given) -> None:
        self.given = given = given.on_device()
        self.before, self.settings, self.intake, self.pile = given.before, given.settings, given.intake, given.pile
        self.names = given.intake.names
        self.num_old = len(given.before.classes) if given.before else 0
        self.index = len(given.before.lessons) if given.before else 0
        self.method = make_method(given.settings, given.preprocessing, given.lesson, self.pile)
        if given.before is None:
            check_backbone(self.method.setup.backbone, self.method.setup.cut)
            check_image_size(self.method.setup.backbone, given.preprocessing.size)
        wanted = carried_settings(given.settings, given.carried, given.lesson, given.pile is not None)
        self.carried = Carried(self.method, wanted, self.pile)
        self.digests = digests(self.intake.train)
        self.again = self.intake.train.of_classes(torch.arange(self.num_old))
        self.unheld = self._unheld()
        self.task = self._lesson_task()
        sizes = tuple(size for size in (self.num_old, self.task.num_new) if size)
        self.carried.check(Stream(self.intake.train, self.intake.held_out, sizes))
        self.stages = self._stages()

    def _unheld(self) -> ImageSet:
        """Return the given images of known classes that are not exemplars already."""
        train = self.intake.train
        wanted = train.labels < self.num_old
        if self.before is not None:
            wanted &= ~torch.isin(self.digests, digests(self.before.state.memory.as_set(self.names)))
        return train.select(wanted.nonzero().squeeze(1))

    def _lesson_task(self) -> Task:
        new = self.intake.train.of_classes(torch.arange(self.num_old, len(self.names)))
        # Without a memory to join, images of known classes are trained on beside the new ones.
        train = new if self.method.keeps_exemplars else self.intake.train
        task = self._task(self.num_old, len(self.names) - self.num_old, train)
        return replace(task, num_exemplars=self._num_exemplars())

    def _num_exemplars(self) -> int | None:
        """Return how many images of old classes the method can replay; a class with too few is the user's mistake."""
        if self.before is None or not self.method.keeps_exemplars:
            return None
        counts = self.before.state.memory.joined(self.unheld).as_set(self.names).counts()[: self.num_old]
        fewest, needs = int(counts.min()), self.method.needs
        if fewest < needs and len(self.names) > self.num_old:
            raise UserError(
                f"class '{self.names[int(counts.argmin())]}' has {fewest} exemplar, but --method "
                f"{self.settings.method} needs {needs} of each class it knows: give more pictures of it first"
            )
        return int(counts.sum())

    @property
    def method_name(self) -> str:
        """Return what the method is called in this lesson: replay that imagines is `imagine`."""
        name = self.settings.method or "replay"
        if self.carried.imagination is None or self.method.imagines:
            return name
        return "imagine" if name == "replay" else f"{name}, imagining"

    @property
    def from_pile(self) -> FromPile | None:
        """Return what replays unlabelled images; a first lesson replays none."""
        return self.carried.from_pile if self.num_old else None

    def _task(self, num_old: int, num_new: int, train: ImageSet) -> Task:
        # One more task is always to come: generators are trained for it.
        return Task(self.index, self.index + 2, num_old, num_new, train, train)

    def _stages(self) -> list[Stage]:
        stages: list[Stage] = []
        if self.from_pile is not None:
            stages.append(self._remember(self.from_pile))
        if self.method.frozen and not self.task.num_new:
            raise UserError(
                f"--method {self.settings.method} learns nothing from classes it knows: give a new one beside them"
            )
        stages += self.carried.stages(self.task) if self.task.num_new else [self._refresh()]
        if len(self.again) and self.method.keeps_exemplars:
            stages.append(self._rechoose())
        return [upper_alone(stage) for stage in stages] if is_pretrained(self.method.setup.backbone) else stages

    def _remember(self, component: FromPile) -> Stage:
        """Return the stage that gives old classes without a generator one, from their exemplars; or else only mines."""
        assert self.before is not None
        lacking = self.num_old - self.before.num_generators
        if lacking and isinstance(component, Imagination) and component.generates:
            exemplars = self.before.state.memory.as_set(self.names)
            theirs = exemplars.of_classes(torch.arange(self.num_old - lacking, self.num_old))
            stage = component.generators(self._task(self.num_old - lacking, lacking, theirs))
            return replace(stage, name="imagine old classes")
        return Stage(name="mine", begin=lambda state: component.mine(state, UNLABELLED * self.num_old))

    def _refresh(self) -> Stage:
        """Return the stage that trains all of the network on known classes alone: exemplars and given images."""
        assert self.before is not None
        memory = self.before.state.memory
        images = memory.joined(self.unheld).as_set(self.names) if len(memory) else self.again
        stage = self.method.classify(self.task, images, self.method.settings.epochs)
        present = images.labels.unique()
        share = max(1, self.method.settings.batch_size // len(present))
        batches = Batches(
            images=images,
            size=share * len(present),
            augment=self.method.setup.augment,
            draw=dealer(images.labels, present, share),  # as many of each class, however many were given
        )
        return replace(
            stage,
            name="refresh",
            begin=None,
            steps=max(1, len(images) // batches.size),
            streams=lambda state: {"new": batches},
            optimizer=replace(stage.optimizer, lr=GENTLY * stage.optimizer.lr),
            shared_as=None,
        )

    def _rechoose(self) -> Stage:
        """Return the stage that chooses the exemplars of classes given again, from old exemplars and new images."""
        assert self.before is not None
        whole = self.before.state.memory.joined(self.unheld).as_set(self.names)
        # A file of an earlier version may hold an exemplar twice.
        candidates = distinct(whole.of_classes(self.again.labels.unique()))

        def begin(state: State) -> None:
            features = self.method.features(state, candidates)
            state.memory = state.memory.rechosen(candidates, features, len(self.names), self.method.choose)

        return Stage(name="choose again", begin=begin)

    def leave_pile_out(self) -> None:
        """Let the lesson's stages be those without unlabelled images."""
        self.carried = Carried(self.method, without_pile(self.settings, self.given.carried, self.given.lesson), None)
        self.stages = self._stages()

    def begun(self) -> State:
        """Return a copy of what was known, with the images of known classes that a method may replay."""
        state = self._state()
        if len(self.again) and self.method.keeps_exemplars and self.task.num_new:
            state.memory = state.memory.joined(self.unheld)
        return state

    def _state(self) -> State:
        device = self.given.hardware.device
        if self.before is None:
            return State(Memory.empty(self.method.setup.budget), device)
        info, components = pack(self.before.state)
        copied: dict[str, dict[str, Tensor]] = {
            part: {name: value.clone() for name, value in values.items()} for part, values in components.items()
        }
        return unpack(info, copied, kinds_of(type(self.method)), device)


def upper_alone(stage: Stage) -> Stage:
    """Return a stage in which lower halves stay as they are: published weights know more than a lesson can teach."""

    def trains(state: State) -> Sequence[Group]:
        for net in state.nets.values():
            fix_lower_halves(net)
        return stage.trains(state)

    return replace(stage, trains=trains)
