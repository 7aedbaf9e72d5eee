"""The command `learn`: which learner a model is or becomes, what may be said of it, and the lesson."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from daydream import atomic
from daydream.cli import flags
from daydream.cli.common import Device, Json, MaxPixels, Quiet, allow_pixels, console, stoppable
from daydream.errors import UserError
from daydream.learner import opening
from daydream.learner.locking import taught
from daydream.learner.settings import ExactSettings, LessonSettings, ModelSettings
from daydream.settings import flag, from_dict

if TYPE_CHECKING:
    from daydream.engine import Display
    from daydream.learner.exact_learner import ExactLearner
    from daydream.learner.learner import Learner
    from daydream.learner.opening import Teachable

Values = dict[str, dict[str, Any]]
"""Flags by section, given or defaulted."""
BOTH = ("method", "backbone", "image_size")
"""Settings of a model that the exact learner has too, or that ask for the other."""
TITLES = {"parts": "Parts", "imagination": "Imagination", "pile": "Teaching on unlabelled images"}


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the command to the app; its flags depend on the method it is given."""
    app.command("learn")(learn_command(words) if words[:1] == ["learn"] else learn)


def learn_command(words: Sequence[str]) -> Any:
    """Return the command with a flag for all that can be said; without a method, help shows the exact learner's."""
    from daydream.learner.making import OWN, lesson_components, method_class

    method = flags.given(words, "--method", "")

    def trained(key: str, title: str, kind: type, left_out: frozenset[str] = frozenset()) -> flags.Section:
        """Return a section that only concerns a network that trains."""
        names = frozenset(field.name for field in fields(kind)) - set(BOTH)
        return flags.Section(key, title, kind, left_out, hidden=frozenset() if method else names)

    components = lesson_components(method_class(method or None))
    sections = [
        trained("model", "A new model, fixed from then on", ModelSettings),
        flags.Section("exact", "A new model without --method", ExactSettings),
        *(trained(key, f"{TITLES[key]}, fixed too", kind, OWN) for key, kind in components.items()),
        trained("lesson", "This lesson", LessonSettings),
    ]
    return flags.command(sections, learn, flags.asks_for_all(words))


def learn(
    *,
    model: Annotated[Path, typer.Argument(help="the model file: a new one, or one that learns more")],
    folder: Annotated[Path, typer.Argument(help="folder with one sub-folder of images per class")],
    unlabeled: Annotated[Path | None, typer.Option(help="folder of any images, for a method that uses them")] = None,
    test: Annotated[Path | None, typer.Option(help="test images of known classes, a sub-folder each")] = None,
    adapt: Annotated[
        str,
        typer.Option(
            metavar="auto|off",
            help="auto: let the network's upper half train too, and keep that if it is clearly better on images that "
            "neither saw; off: go back to the exact learner",
        ),
    ] = "",
    device: Device = "auto",
    max_pixels: MaxPixels = None,
    quiet: Quiet = False,
    as_json: Json = False,
    help_all: flags.HelpAll = False,
    context: typer.Context,
    values: Annotated[dict[str, Any] | None, typer.Option(hidden=True, parser=json.loads)] = None,
) -> None:
    """Teach a model the classes of a folder: a frozen network and ridge regression, which forgets nothing.

    With --method a network trains instead; `daydream learn --method NAME --help` shows what can be said of it.
    """
    assert values is not None
    values = flags.asked_for(context, values)
    allow_pixels(max_pixels)
    with taught(model), stoppable(f"{model} is as it was before") as switch:
        atomic.sweep(model)
        from daydream.cli.model_tables import lesson_text
        from daydream.cli.progress import make_display
        from daydream.engine import Interrupted
        from daydream.learner import lesson_checkpoint

        learner, screen = as_asked(opened(model, values, device), adapt, model), console(stderr=as_json)
        display = make_display(switch, screen, quiet)
        show = partial(screen.print, highlight=False) if not quiet else ignored
        settings = from_dict(LessonSettings, values["lesson"])
        try:
            tries = adapt == "auto" and learner.kind == "exact"
            record = lesson(learner, model, (folder, None if tries else unlabeled, test), settings, display, show)
            if tries:
                from daydream.learner.adapting import adapted

                learner = adapted(cast("ExactLearner", learner), folder, unlabeled, test, display)
        finally:
            display.close()
        if switch.asked:
            raise Interrupted
        learner.save(model)
        lesson_checkpoint.drop(model)
        if learner.kind == "exact":
            cast("ExactLearner", learner).make_ready()
    if as_json:
        sys.stdout.write(json.dumps(asdict(record)) + "\n")
    elif not quiet:
        console().print(lesson_text(learner, model, record), highlight=False)


def lesson(
    learner: "Teachable",
    model: Path,
    folders: tuple[Path, Path | None, Path | None],
    settings: LessonSettings,
    display: "Display",
    show: Callable[[Any], None],
) -> Any:
    """Take the lesson of a folder, with unlabelled images and tests, once it is shown what was chosen for it."""
    from daydream.cli.model_tables import choices_table

    if learner.kind == "exact":
        show(cast("ExactLearner", learner).about)
        return learner.learn(*folders, display=display)
    adapting = cast("Learner", learner)
    ready, choices = adapting.prepare(*folders, settings)
    show(choices_table(choices))
    return adapting.take(ready, display, beside=model)


def as_asked(learner: "Teachable", adapt: str, path: Path) -> "Teachable":
    """Return the learner that `--adapt` asks for: with `off`, the exact one that stands beside one that adapted."""
    if adapt not in ("", "auto", "off"):
        raise UserError(f"--adapt {adapt} is neither auto nor off")
    if learner.kind == "exact" or not adapt:
        return learner
    from daydream.learner.adapting import exact_again

    adapting = cast("Learner", learner)
    if adapting.model is None or not adapting.model.exact:
        raise UserError(f"--adapt {adapt}: {path} has no exact model; without --method a new model is exact")
    return exact_again(adapting) if adapt == "off" else learner


def ignored(_: Any) -> None:
    """Show nothing."""


def opened(path: Path, values: Values, device: str) -> "Teachable":
    """Return the learner of a model file, or a new one made as the flags say; a model stays what it was made as."""
    given, exactly = ({k: v for k, v in values[key].items() if v is not None} for key in ("model", "exact"))
    from_dict(ExactSettings, exactly)
    if path.exists():
        learner = opening.load(path, device=device)
        kind = learner.kind
    else:
        learner, kind = None, opening.learner_for(given.get("method"), given.get("backbone"))
    others = said_of_training(values) if kind == "exact" else [(flag(name), exactly[name]) for name in exactly]
    if others:
        name, value = others[0]
        why = "a network that trains: name its --method too" if kind == "exact" else "a network that stays frozen"
        raise UserError(f"{name} {value} is of {why}{f'; {path} has none' if path.exists() else ''}")
    if learner is None:
        return made(kind, {**given, **exactly}, values, device)
    if kind == "exact":
        exact = cast("ExactLearner", learner)
        check_same(path, {**given, **exactly}, exact.settings)
    else:
        stays_adapting(path, given, values, cast("Learner", learner))
    return learner


def made(kind: str, given: Mapping[str, Any], values: Values, device: str) -> "Teachable":
    """Return a new learner."""
    if kind == "exact":
        return opening.create(device=device, **given)
    from daydream.learner.learner import Learner

    carried = [own for key, own in values.items() if key not in ("model", "exact", "lesson")]
    return Learner.create(device=device, **given, **{name: value for own in carried for name, value in own.items()})


def said_of_training(values: Values) -> list[tuple[str, Any]]:
    """Return the flags given that only a network that trains has, with their values."""
    from daydream.learner.making import complete, method_class

    usual: Values = {**complete(method_class(None), {}), "lesson": asdict(LessonSettings())}
    said = [(name, value) for name, value in values["model"].items() if name not in BOTH and value is not None]
    for key, own in values.items():
        if key not in ("model", "exact"):
            said += [(name, value) for name, value in own.items() if value != usual.get(key, {}).get(name)]
    return [(flag(name), value) for name, value in said]


def stays_adapting(path: Path, given: Mapping[str, Any], values: Values, learner: "Learner") -> None:
    """Refuse to change what a model of the adapting learner was made with."""
    check_same(path, given, asdict(learner.given))
    for key, own in values.items():
        if key not in ("model", "exact", "lesson"):
            check_same(path, own, learner.carried.get(key, {}))


def check_same(path: Path, given: Mapping[str, Any], stands: Mapping[str, Any]) -> None:
    """Refuse to change what a model was made with."""
    for name, value in given.items():
        if value != stands.get(name):
            before = stands.get(name, "none")
            stays = f"{path} was made with {before}, which stays; leave it out, or make a new model"
            raise UserError(f"{flag(name)} {value}: {stays}")
