"""The method of a model, and what it carries, made of its settings."""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from daydream.components.settings import CarriedSettings, component_settings
from daydream.data.images import ImageSet
from daydream.errors import UserError
from daydream.learner.model import Preprocessing
from daydream.learner.settings import LessonSettings, ModelSettings
from daydream.methods import METHODS, load_method
from daydream.methods.method import Method, Setup
from daydream.nets.network import architecture, check_backbone
from daydream.protocol.memory import Budget
from daydream.settings import from_dict, with_defaults

Sections = Mapping[str, Mapping[str, Any]]
"""Settings of components, by section."""
OWN = frozenset(
    {
        *("imagine", "counterparts_from", "generator_epochs", "generator_width"),
        *("unlabeled", "pile_classes", "pile_exclude"),
    }
)
"""Settings of components that a lesson decides itself or has under its own names, and controls for experiments."""
GENTLE = {"generator_start": "exemplar", "generator_form": "relative"}
"""Defaults of a lesson: it may be short, and a generator that has learnt little must do no harm.

Losses as printed grow with the square of a network's maps: those of a short lesson on grey pictures were so large that
generators diverged, or at a hundredth of the learning rate gave counterparts of other classes.
"""


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


def lesson_components(kind: type[Method[Any]], epochs: int | None = None) -> dict[str, type]:
    """Return the settings of what a method can carry in lessons, by section, with their defaults there.

    A recipe's may depend on the epochs of the first lesson; None is the method's own number.
    """
    return {key: with_defaults(settings, GENTLE) for key, settings in component_settings(kind, epochs).items()}


def complete(kind: type[Method[Any]], given: Sections, epochs: int | None = None) -> dict[str, dict[str, Any]]:
    """Return every setting of what a new model carries: it stays as it is, whatever a recipe's defaults become."""
    found = {}
    for key, settings in lesson_components(kind, epochs).items():
        whole: Any = from_dict(settings, given.get(key, {}))
        found[key] = {field.name: getattr(whole, field.name) for field in fields(whole) if field.name not in OWN}
    return found


def carried_settings(
    settings: ModelSettings, carried: Sections, lesson: LessonSettings, has_pile: bool
) -> CarriedSettings:
    """Return the settings of what a lesson carries: with unlabelled images a method that replays imagines.

    Without any, what a recipe would teach on them falls away; a method that is nothing without them says so.
    """
    kind, name = method_class(settings.method), settings.method or "replay"
    usual = lesson_components(kind, lesson.epochs)
    given = {key: dict(carried.get(key, {})) for key in usual}
    if given.get("imagination", {}).get("counterparts_from", "generators") != "generators":
        raise UserError(
            "counterparts_from is for experiments, its controls compare and its oracle needs images that a lesson has "
            "lost: use it in a run"
        )
    if not has_pile:
        if kind.imagines and CarriedSettings.of(name, kind, given, usual).imagines:
            raise UserError(f"--method {name} needs unlabelled images: give --unlabeled FOLDER")
        return without_pile(settings, carried, lesson)
    if "imagination" in given:
        own = {"generator_epochs": lesson.generator_epochs, "generator_width": settings.generator_width}
        given["imagination"] = {**given["imagination"], **own, "imagine": True}
    return CarriedSettings.of(name, kind, given, usual)


def without_pile(settings: ModelSettings, carried: Sections, lesson: LessonSettings) -> CarriedSettings:
    """Return the settings of what a lesson carries that leaves its unlabelled images out, whatever its method."""
    kind = method_class(settings.method)
    usual = lesson_components(kind, lesson.epochs)
    off: Sections = {"imagination": {"counterparts": 0}, "pile": {"pile_distill": 0.0, "pile_teach": False}}
    given = {key: values for key, values in off.items() if key in usual and kind.replays}
    parts = {"parts": carried.get("parts", {})}
    return CarriedSettings.of(settings.method or "replay", kind, {**parts, **given}, usual)


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
    check_backbone(architecture(settings.backbone), settings.cut)  # a model brings its weights, a first lesson asks
    recipe = {} if lesson is None else recipe_of(settings, kind, lesson, pile is not None)
    prepare, augment = preprocessing.prepare, preprocessing.augment
    budget = Budget("per_class", settings.memory)
    setup = Setup(
        settings.backbone, settings.cut, budget, prepare, augment, settings.seed or 0, pile if kind.needs_pile else None
    )
    return kind(from_dict(kind.Settings, recipe), setup)


def recipe_of(
    settings: ModelSettings, kind: type[Method[Any]], lesson: LessonSettings, has_pile: bool
) -> dict[str, Any]:
    """Return the settings of a method in a lesson, or say what the lesson lacks."""
    if kind.keeps_exemplars and not settings.memory:
        raise UserError(f"--memory 0: --method {settings.method or 'replay'} keeps exemplars and needs a memory")
    if kind.needs_pile and not has_pile:
        raise UserError(f"--method {settings.method} needs unlabelled images: give --unlabeled FOLDER")
    own = {field.name for field in fields(kind.Settings)}
    recipe: dict[str, Any] = {
        name: getattr(lesson, name) for name in ("epochs", "batch_size", "lr", "updates") if name in own
    }
    assert lesson.epochs is not None
    if "compression_epochs" in own:  # as long beside the other training as its paper has it
        usual: Any = kind.Settings
        recipe["compression_epochs"] = math.ceil(lesson.epochs * usual.compression_epochs / usual.epochs)
    return {**recipe, "base_epochs": lesson.epochs}
