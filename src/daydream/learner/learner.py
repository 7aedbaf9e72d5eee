"""Teach a classifier new classes from folders of one's own images, as often as there are new ones.

learner = Learner.create()
learner.learn("photos/spring", unlabeled="camera-roll")
learner.save("model.daydream")
label, probability = Learner.load("model.daydream").predict("photo.jpg")[0]
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor

from daydream.data.images import ImageSet
from daydream.engine import Display, Hardware
from daydream.errors import UserError, unknown
from daydream.export.classifier import Classifier, of_state
from daydream.learner import model_file
from daydream.learner.beside import renamed_too
from daydream.learner.calibration import rejection_threshold
from daydream.learner.intake import Intake, read_known, read_labelled, read_pile, take_in, typical_side
from daydream.learner.lesson import Given, Lesson
from daydream.learner.making import Sections, lesson_components, make_method, method_class
from daydream.learner.model import LessonRecord, Model, Preprocessing, no_images
from daydream.learner.opening import is_exact
from daydream.learner.pictures import Picture, stored
from daydream.learner.rejection import check_share
from daydream.learner.reports import ClassReport, TestReport, report
from daydream.learner.settings import Choice, LessonSettings, ModelSettings, choose_lesson, choose_model
from daydream.learner.trained import Trained
from daydream.learner.verdict import judge, kept_pile, learn
from daydream.methods.method import Method
from daydream.nets.efficientnet_lite import published_side
from daydream.nets.network import is_pretrained
from daydream.settings import from_dict, sorted_into


class Learner(Trained):
    """A classifier that learns classes lesson by lesson; all it knows is its `model`."""

    kind: Literal["adapting"] = "adapting"

    def __init__(self, given: ModelSettings, carried: Sections, model: Model | None, hardware: Hardware) -> None:
        self.given, self.carried, self.model, self.hardware = given, carried, model, hardware

    @classmethod
    def create(cls, *, device: str = "auto", **settings: Any) -> "Learner":
        """Return a learner that knows nothing yet.

        See `ModelSettings` for what can be said of it; what its method can carry is said by the same names as in a run
        (`blend=0.6`, `pile_distill=0.5`).
        """
        own = {field.name for field in fields(ModelSettings)}
        given = from_dict(ModelSettings, {name: value for name, value in settings.items() if name in own})
        components = lesson_components(method_class(given.method))
        others = {name: value for name, value in settings.items() if name not in own}
        carried = sorted_into({"model": ModelSettings, **components}, others)
        for key, kind in components.items():
            from_dict(kind, carried[key])
        return cls(given, carried, None, choose_hardware(device))

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> "Learner":
        """Read a model file. Nothing in it can run code."""
        if is_exact(Path(path)):
            raise UserError(f"{path} is a model of the exact learner: read it with daydream.load or ExactLearner.load")
        hardware = choose_hardware(device)
        model = model_file.read(Path(path), hardware.device)
        return cls(model.settings, model.carried, model, hardware)

    def save(self, path: str | Path) -> None:
        """Write the model file, whole or not at all."""
        model_file.write(Path(path), self.taught)

    @property
    def taught(self) -> Model:
        """Return the model of a learner that has had a lesson."""
        if self.model is None:
            raise UserError("the learner knows no class yet: let it learn a folder first")
        return self.model

    @property
    def names(self) -> tuple[str, ...]:
        return self.model.names if self.model is not None else ()

    @property
    def size(self) -> int:
        """Return the side of pictures as they are stored."""
        return self.taught.preprocessing.canvas

    @property
    def history(self) -> list[LessonRecord]:
        """Return the lessons, the oldest first."""
        return list(self.taught.lessons)

    @property
    def method(self) -> Method[Any]:
        return make_method(self.taught.settings, self.taught.preprocessing)

    def learn(
        self,
        folder: str | Path,
        unlabeled: str | Path | None = None,
        test: str | Path | None = None,
        *,
        display: Display | None = None,
        **settings: Any,
    ) -> LessonRecord:
        """Learn the classes of a folder, a sub-folder each; see `LessonSettings` for what can be said of the lesson.

        `unlabeled` is a folder of any images, to imagine with; it takes the place of the share kept of an earlier one.
        `test` holds test images of these classes, in place of a held-out share. A lesson that fails changes nothing.
        """
        lesson, _ = self.prepare(Path(folder), unlabeled, test, from_dict(LessonSettings, settings))
        return self.take(lesson, display)

    def take(self, lesson: Lesson, display: Display | None = None, beside: Path | None = None) -> LessonRecord:
        """Take a lesson that was prepared; a long one is kept meanwhile `beside` the file that the model goes to."""
        self.model = learn(lesson, display or Display(), beside)
        return self.model.lessons[-1]

    def prepare(
        self, folder: Path, unlabeled: str | Path | None, test: str | Path | None, settings: LessonSettings
    ) -> tuple[Lesson, list[Choice]]:
        """Read and check all that a lesson needs, and choose what was not given."""
        device = "cuda" if self.hardware.device.type == "cuda" else "cpu"
        if self.model is None:
            trained_at = published_side(self.given.backbone) if self.given.backbone else None
            model, choices = choose_model(self.given, typical_side(folder), device, trained_at)
            preprocessing = Preprocessing.of(cast(int, model.image_size), cast(str, model.backbone))
        else:
            model, choices, preprocessing = self.model.settings, [], self.model.preprocessing
        kind = method_class(model.method)
        if unlabeled is not None and not (kind.replays or kind.needs_pile):
            why = kind.refuses.get("imagine", "it replays nothing")
            raise UserError(f"--method {model.method} has no use for unlabelled images: {why}")
        intake = self._take_in(folder, test, preprocessing.canvas, settings)
        kept = kept_pile(self.model) if self.model is not None else None
        pile = read_pile(Path(unlabeled), preprocessing.canvas) if unlabeled is not None else kept
        lesson, more = self.made_ready(model, preprocessing, intake, pile, settings)
        idle = _idle(lesson)
        return lesson, [*self._about(lesson), *(choice for choice in [*choices, *more] if choice.name not in idle)]

    def made_ready(
        self,
        model: ModelSettings,
        preprocessing: Preprocessing,
        intake: Intake,
        pile: ImageSet | None,
        settings: LessonSettings,
    ) -> tuple[Lesson, list[Choice]]:
        """Return the lesson of images that were taken in, and what was chosen of what was not given."""
        usual = method_class(model.method).Settings()
        chosen, choices = choose_lesson(
            settings,
            len(intake.train),
            preprocessing.image_bytes,
            usual.lr,
            usual.batch_size,
            "cuda" if self.hardware.device.type == "cuda" else "cpu",
            pretrained=is_pretrained(cast(str, model.backbone)),
        )
        given = Given(
            before=self.model,
            settings=model,
            carried=self.carried,
            preprocessing=preprocessing,
            lesson=chosen,
            intake=intake,
            pile=pile,
            hardware=self.hardware,
        )
        return Lesson(given), choices

    def _take_in(self, folder: Path, test: str | Path | None, canvas: int, settings: LessonSettings) -> Intake:
        """Read the images of a lesson, and sort them into those to train on and those held out."""
        known = self.model.names if self.model else ()
        given = read_labelled(folder, known, canvas)
        if len(given.class_names) < 2:
            raise UserError(
                f"{folder} holds one class, '{given.class_names[0]}', and a new model needs two or more to tell apart: "
                "add a folder of other images"
            )
        lesson_classes = [given.class_names[label] for label in given.labels.unique().tolist()]
        tests = read_known(Path(test), given.class_names, canvas, lesson_classes) if test is not None else None
        held = self.model.held_out.to(torch.device("cpu")) if self.model else no_images(canvas)
        seen = self.model.seen if self.model else torch.zeros(0, dtype=torch.int64)
        intake = take_in(given, len(known), tests, held, seen, settings.held_out, settings.keep_held_out)
        counts = intake.train.counts()
        for label, name in enumerate(given.class_names[len(known) :], len(known)):
            if not counts[label]:
                raise UserError(f"class '{name}' has no image in {folder} that is not a test image too")
        if not len(intake.train):
            raise UserError(f"{folder} brings nothing new: the model holds all of its images out for testing")
        return intake

    def _about(self, lesson: Lesson) -> list[Choice]:
        """Return what is to be said of a lesson beside its numbers."""
        pile = f"with {len(lesson.pile):,} unlabelled images" if lesson.pile else "no unlabelled images"
        train, held = lesson.intake.train, lesson.intake.held_out
        old = len(lesson.again.labels.unique())
        classes = f"{lesson.task.num_new} new, {old} given again, {len(lesson.names)} in all"
        kept = []
        if self.model is not None and lesson.settings.memory:
            why = f"{lesson.settings.memory} of each class; a new model without --method keeps none"
            kept = [Choice("keeps", "exemplars, as pictures", why)]
        return [
            *kept,
            Choice("classes", classes, f"{len(train):,} images to train on, {len(held):,} more held out"),
            Choice("method", lesson.method_name, pile),
            Choice("device", self.hardware.describe(), "found"),
        ]

    @property
    def classes(self) -> list[ClassReport]:
        """Return what is known of each class, in order of arrival."""
        model = self.taught
        exemplars = torch.bincount(model.state.memory.labels, minlength=len(model.classes)).tolist()
        held = model.held_out.counts().tolist()
        return [
            ClassReport(
                name=record.name,
                lesson=record.lesson,
                since=model.lessons[record.lesson - 1].date,
                images=record.images,
                exemplars=exemplars[label],
                held_out=held[label],
                generator=label < model.num_generators,
                accuracy=tuple(lesson.class_accuracy[label] for lesson in model.lessons[record.lesson - 1 :]),
            )
            for label, record in enumerate(model.classes)
        ]

    def probabilities(self, pictures: Picture | Sequence[Picture]) -> Tensor:
        """Return calibrated probabilities [N, C] of pictures; classes in the order of `classes`."""
        pixels = stored(pictures, self.size)
        if not len(pixels.tensor):
            return torch.zeros(0, len(self.names), dtype=torch.float64)
        return self.judged(ImageSet(pixels, torch.zeros(len(pixels.tensor), dtype=torch.int64), self.names))

    def predict(self, pictures: Picture | Sequence[Picture]) -> list[tuple[str, float]]:
        """Return, for each picture, its most likely class and the probability of it."""
        best = self.probabilities(pictures).max(1)
        return [
            (self.taught.names[label], p) for label, p in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def told(self, images: ImageSet) -> tuple[Tensor, Tensor]:
        """Return probabilities [N, C] of images stored as the learner stores them, and how known each looks [N]."""
        found = self.judged(images)
        return found, found.amax(1)

    def looks(self, pictures: Picture | Sequence[Picture]) -> Tensor:
        """Return how known pictures look [N], which a rejection is compared with: here, their highest probability."""
        return self.probabilities(pictures).amax(1)

    def rejection(self, share: float) -> float:
        """Return the highest probability below which a picture is likely of no known class.

        A share of the pictures of known classes, as measured on held-out images, falls below it too.
        """
        check_share(share)
        return rejection_threshold(self.taught.confidences, 1 - share)

    def test(self, folder: str | Path, *, display: Display | None = None) -> TestReport:
        """Judge a folder of test images, a sub-folder per known class."""
        images = read_known(Path(folder), self.taught.names, self.size)
        return report(self.judged(images), images.labels, self.names)

    def rename(self, name: str, to: str) -> None:
        """Give a class another name."""
        names = self.taught.names
        if name not in names:
            raise unknown("class", name, names)
        if to in names:
            raise UserError(f"there is a class '{to}' already: give another name")
        model = renamed(self.taught, names.index(name), to)
        self.model = replace(model, exact=renamed_too(model.exact, name, to)) if model.exact else model

    @property
    def classifier(self) -> Classifier:
        """Return the network with all that is needed to use it elsewhere, and no more."""
        model = self.taught
        return of_state(self.method, model.state, model.names, model.temperature, model.preprocessing.canvas)

    def export_onnx(self, path: str | Path) -> None:
        """Write network and head as ONNX, the preprocessing in its metadata."""
        self.classifier.write_onnx(Path(path))

    def export_state_dict(self, path: str | Path) -> None:
        """Write network and head as safetensors; `daydream.export.classifier.load_exported` reads the file too."""
        self.classifier.write_safetensors(Path(path))

    def judged(self, images: ImageSet) -> Tensor:
        """Return calibrated probabilities [N, C] of images stored as the learner stores them."""
        scores = judge(self.method, self.taught.state, images.to(self.hardware.device))
        if not scores.isfinite().all():
            raise UserError("the model gives no probabilities: its weights are too large for its scores to be numbers")
        return (scores.double() / self.taught.temperature).softmax(1).cpu()


def choose_hardware(device: str) -> Hardware:
    """Return the device as found; a lesson of minutes is not worth a compilation."""
    return Hardware.choose(device, "auto", compile=False, capture=None)


def renamed(model: Model, label: int, to: str) -> Model:
    """Return a model whose class of a label has another name."""
    classes = tuple(replace(own, name=to) if place == label else own for place, own in enumerate(model.classes))
    held_out = replace(model.held_out, class_names=tuple(record.name for record in classes))
    return replace(model, classes=classes, held_out=held_out)


def _idle(lesson: Lesson) -> set[str]:
    """Name the choices that nothing in a lesson uses."""
    idle = set() if lesson.pile else {"keep-pile"}
    idle |= set() if lesson.carried.imagination else {"generator-epochs", "generator-width"}
    return idle if hasattr(lesson.method.settings, "updates") else idle | {"updates"}
