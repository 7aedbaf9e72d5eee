"""One lesson: a task made of a folder, run by the engine as the method's stages, from one model to the next.

The new classes are a task as any other. Images of known classes join the memory while the lesson lasts, save those it
holds already, so the method replays them as exemplars, and those classes' exemplars are then chosen again from old
exemplars and new images. A lesson without a new class trains the whole network on memory and given images, as many of
each class, at a tenth of the learning rate. A method that keeps no exemplars trains on given images alone.
"""

import datetime
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from daydream import rng
from daydream.components.carried import component_settings
from daydream.components.imagination import UNLABELLED, Imagination, dealer
from daydream.components.mixup import PixelMixup, imagination_of
from daydream.components.parts import Parts
from daydream.data.images import ImageSet, Resident
from daydream.engine import Engine, EpochReport, Hardware, Partial
from daydream.errors import UserError
from daydream.learner.calibration import expected_calibration_error, fit_temperature
from daydream.learner.intake import Intake, digests, distinct, joined, sampled
from daydream.learner.model import ClassRecord, LessonRecord, Model, Preprocessing
from daydream.learner.model_file import kinds
from daydream.learner.settings import Choice, LessonSettings, ModelSettings
from daydream.methods import METHODS, load_method
from daydream.methods.method import Method, Setup
from daydream.nets.network import check_backbone, check_image_size
from daydream.protocol.inference import over_images
from daydream.protocol.memory import Budget, Memory
from daydream.protocol.stream import Stream, Task
from daydream.settings import from_dict
from daydream.stages.stage import Batches, Stage, State
from daydream.storage.state import pack, unpack

GENTLY = 0.1
"""Share of the learning rate when no class is new."""


class Onlooker(Protocol):
    """Whoever shows a lesson to a person."""

    def begins(self, choices: Sequence[Choice], stages: Sequence[Stage]) -> None: ...

    def epoch_ends(self, stage: Stage, report: EpochReport) -> None: ...


class Nobody:
    """Shows nothing."""

    def begins(self, choices: Sequence[Choice], stages: Sequence[Stage]) -> None: ...

    def epoch_ends(self, stage: Stage, report: EpochReport) -> None: ...


@dataclass(frozen=True)
class Watch:
    """What the engine asks of its watcher: a lesson is not checkpointed, as it writes nothing before its end."""

    stage: Stage
    onlooker: Onlooker

    def epoch(self, report: EpochReport) -> None:
        self.onlooker.epoch_ends(self.stage, report)

    def stop_asked(self) -> bool:
        return False

    def wants_checkpoint(self, epoch: int) -> bool:
        return False

    def checkpoint(self, partial: Partial) -> None: ...


def method_class(name: str | None) -> type[Method[Any]]:
    """Return the class of a method that can learn lesson by lesson; a model file can name only our own."""
    if name is not None and name not in METHODS:
        raise UserError(
            f"--method {name} is not one of the package's, which a model file can name: see `daydream methods`"
        )
    found = load_method(name or "replay")
    if found.reshape is not Method.reshape:
        raise UserError(f"--method {name} is an upper bound that needs the images of all classes again: name another")
    return found


def make_method(
    settings: ModelSettings,
    preprocessing: Preprocessing,
    lesson: LessonSettings | None = None,
    pile: ImageSet | None = None,
) -> Method[Any]:
    """Build the method of a model, for a lesson or only to predict."""
    assert settings.backbone is not None
    assert settings.cut is not None
    assert settings.memory is not None
    kind = method_class(settings.method)
    check_backbone(settings.backbone, settings.cut)
    recipe: dict[str, float | None] = {}
    if lesson is not None:
        if kind.keeps_exemplars and not settings.memory:
            raise UserError(f"--memory 0: --method {settings.method or 'replay'} keeps exemplars and needs a memory")
        if kind.needs_pile and pile is None:
            raise UserError(f"--method {settings.method} needs unlabelled images: give --unlabeled FOLDER")
        recipe = {
            "base_epochs": lesson.epochs,
            "epochs": lesson.epochs,
            "batch_size": lesson.batch_size,
            "lr": lesson.lr,
        }
        if "updates" in {field.name for field in fields(kind.Settings)}:
            recipe["updates"] = lesson.updates
    budget = Budget("per_class", settings.memory)
    setup = Setup(
        settings.backbone,
        settings.cut,
        budget,
        preprocessing.prepare,
        preprocessing.augment,
        settings.seed or 0,
        pile if kind.needs_pile else None,
    )
    return kind(from_dict(kind.Settings, recipe), setup)


class Lesson:
    """Method, task and stages of a lesson, made ready and checked before anything trains."""

    def __init__(
        self,
        before: Model | None,
        settings: ModelSettings,
        preprocessing: Preprocessing,
        lesson: LessonSettings,
        intake: Intake,
        pile: ImageSet | None,
        hardware: Hardware,
    ) -> None:
        self.before, self.settings, self.preprocessing, self.lesson = before, settings, preprocessing, lesson
        self.names, self.hardware = intake.names, hardware
        self.num_old = len(before.classes) if before else 0
        self.index = len(before.lessons) if before else 0
        device = hardware.device
        self.intake = Intake(intake.names, intake.train.to(device), intake.held_out.to(device))
        self.pile = None if pile is None else pile.to(device)
        self.method = make_method(settings, preprocessing, lesson, self.pile)
        if before is None:
            check_image_size(self.method.setup.backbone, preprocessing.size)
        if self.method.imagines and pile is None:
            raise UserError(f"--method {settings.method} needs unlabelled images: give --unlabeled FOLDER")
        components = component_settings(type(self.method))
        self.parts = None
        if self.method.carries:
            self.parts = Parts(from_dict(components["parts"], before.parts if before else {}), self.method)
        self.imagination = None
        if self.pile is not None and self.method.replays:
            imagination: Any = from_dict(
                components["imagination"],
                # A lesson may be short: a generator that has learnt little must do no harm.
                {
                    "generator_start": "exemplar",
                    "generator_epochs": lesson.generator_epochs,
                    "generator_width": settings.generator_width,
                },
            )
            self.imagination = imagination_of(imagination, self.method, self.pile)
        old = torch.arange(self.num_old)
        self.digests = digests(self.intake.train)
        self.again = self.intake.train.of_classes(old)
        self.unheld = self._unheld()
        new = self.intake.train.of_classes(torch.arange(self.num_old, len(self.names)))
        # Without a memory to join, images of known classes are trained on beside the new ones.
        train = new if self.method.keeps_exemplars else self.intake.train
        self.task = replace(
            self._task(self.num_old, len(self.names) - self.num_old, train), num_exemplars=self._num_exemplars()
        )
        sizes = tuple(size for size in (self.num_old, self.task.num_new) if size)
        self.method.check(Stream(self.intake.train, self.intake.held_out, sizes))
        self.stages = self._stages()

    def _unheld(self) -> ImageSet:
        """Return the given images of known classes that are not exemplars already."""
        train = self.intake.train
        wanted = train.labels < self.num_old
        if self.before is not None:
            wanted &= ~torch.isin(self.digests, digests(self.before.state.memory.as_set(self.names)))
        return train.select(wanted.nonzero().squeeze(1))

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
        if self.imagination is None or self.method.imagines:
            return name
        return "imagine" if name == "replay" else f"{name}, imagining"

    def _task(self, num_old: int, num_new: int, train: ImageSet) -> Task:
        # One more task is always to come: generators are trained for it.
        return Task(self.index, self.index + 2, num_old, num_new, train, train)

    def _stages(self) -> list[Stage]:
        stages: list[Stage] = []
        if self.imagination is not None and self.num_old:
            stages.append(self._remember(self.imagination))
        if self.task.num_new:
            own = self.method.stages(self.task)
            if self.parts is not None:
                own = self.parts.stages(self.task, own)
            stages += own if self.imagination is None else self.imagination.stages(self.task, own)
        else:
            stages.append(self._refresh())
        if len(self.again) and self.method.keeps_exemplars:
            stages.append(self._rechoose())
        return stages

    def _remember(self, imagination: Imagination) -> Stage:
        """Return the stage that gives old classes without a generator one, from their exemplars; or else only mines."""
        assert self.before is not None
        lacking = self.num_old - self.before.num_generators
        if lacking and not isinstance(imagination, PixelMixup):
            exemplars = self.before.state.memory.as_set(self.names)
            theirs = exemplars.of_classes(torch.arange(self.num_old - lacking, self.num_old))
            stage = imagination.generators(self._task(self.num_old - lacking, lacking, theirs))
            return replace(stage, name="imagine old classes")
        return Stage(name="mine", begin=lambda state: imagination.mine(state, UNLABELLED * self.num_old))

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
            state.memory = state.memory.rechosen(candidates, features, len(self.names))

        return Stage(name="choose again", begin=begin)

    def learn(self, onlooker: Onlooker) -> Model:
        """Run the stages on a copy of the model before, and return the model after."""
        began = time.monotonic()
        state = self._state()
        if len(self.again) and self.method.keeps_exemplars and self.task.num_new:
            state.memory = state.memory.joined(self.unheld)
        self.hardware.set_up()
        engine = Engine(self.hardware, self.method.setup.seed)
        measured: Mapping[str, float] = {}
        for number, stage in enumerate(self.stages):
            engine.run(stage, state, (self.index, number), Watch(stage, onlooker))
            if stage.report is not None:
                measured = {**measured, **stage.report(state)}
        return self._after(state, began, measured)

    def _state(self) -> State:
        device = self.hardware.device
        if self.before is None:
            return State(Memory.empty(self.method.setup.budget), device)
        info, components = pack(self.before.state)
        copied = {part: {name: value.clone() for name, value in values.items()} for part, values in components.items()}
        return unpack(info, copied, kinds(self.settings.method), device)

    def _after(self, state: State, began: float, measured: Mapping[str, float]) -> Model:
        before, held = self.before, self.intake.held_out
        held = joined(before.held_out, held) if before else joined(held)
        scores = judge(self.method, state, held)
        temperature = fit_temperature(scores, held.labels)
        probabilities = (scores.double() / temperature).softmax(1).cpu()
        right = (probabilities.argmax(1) == held.labels).double()
        seen = before.seen if before else torch.zeros(0, dtype=torch.int64)
        unseen = ~torch.isin(self.digests, seen)
        counts = torch.bincount(self.intake.train.labels[unseen], minlength=len(self.names))
        classes = tuple(
            replace(record, images=record.images + int(counts[label]))
            for label, record in enumerate(before.classes if before else ())
        )
        classes += tuple(
            ClassRecord(name=self.names[label], lesson=self.index + 1, images=int(counts[label]))
            for label in range(self.num_old, len(self.names))
        )
        record = LessonRecord(
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            method=self.method_name,
            new=self.task.num_new,
            again=len(self.again.labels.unique()),
            images=len(self.intake.train),
            held_out=len(held),
            accuracy=percent(right),
            class_accuracy=tuple(percent(right[held.labels == label]) for label in range(len(self.names))),
            calibration_error=round(100 * expected_calibration_error(probabilities, held.labels), 2),
            epochs=self.method.settings.epochs,
            batch_size=self.method.settings.batch_size,
            lr=self.method.settings.lr,
            seconds=round(time.monotonic() - began, 1),
            counterparts_right=measured.get("accuracy"),
            counterparts_spread=relative_spread(measured),
        )
        # What only a lesson under way needs: the network before it, and which images of the pile were in use.
        state.nets.pop("old", None)
        state.tensors = {name: value for name, value in state.tensors.items() if not name.startswith("pile.")}
        return Model(
            settings=self.settings,
            preprocessing=self.preprocessing,
            state=state,
            classes=classes,
            lessons=(*(before.lessons if before else ()), record),
            temperature=temperature,
            confidences=probabilities.max(1).values,
            held_out=held,
            pile=self._kept_pile(),
            seen=torch.cat([seen, self.digests]).unique(),
            parts=asdict(self.parts.settings) if self.parts else {},
        )

    def _kept_pile(self) -> Tensor:
        """Return the share of the pile to keep for the next lesson."""
        count = self.lesson.keep_pile or 0
        if self.pile is None:
            side = self.preprocessing.canvas
            return torch.zeros(0, 3, side, side, dtype=torch.uint8)
        return sampled(self.pile, count, rng.generator(self.method.setup.seed, "kept pile", self.index))


def judge(method: Method[Any], state: State, images: ImageSet) -> Tensor:
    """Return the method's scores [N, C] of images."""
    return over_images(lambda x: (method.predict(state, x).scores,), images, method.setup.prepare)[0]


def percent(right: Tensor) -> float:
    return round(100 * float(right.mean()), 2)


def kept_pile(model: Model) -> ImageSet | None:
    """Return the pile share of a model, if it has one."""
    if not len(model.pile):
        return None
    return ImageSet(Resident(model.pile), torch.zeros(len(model.pile), dtype=torch.int64), ("unlabelled",))


def relative_spread(measured: Mapping[str, float]) -> float | None:
    """Return how widely counterparts spread, with real images as 1, if generators were trained."""
    real = measured.get("real_spread")
    return round(measured["spread"] / real, 2) if real else None
