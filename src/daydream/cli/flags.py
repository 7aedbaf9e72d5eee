"""Command-line flags made from settings dataclasses, so that `--help` and config.json can never disagree."""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import typer

from daydream.errors import UserError
from daydream.settings import flag, is_expert


@dataclasses.dataclass(frozen=True)
class Section:
    """A settings dataclass shown as one panel of `--help`."""

    key: str
    title: str
    settings: type
    left_out: frozenset[str] = frozenset()
    """Settings that have no flag here."""
    hidden: frozenset[str] = frozenset()
    """Settings that `--help` leaves out, beside those of experts."""

    @property
    def fields(self) -> list[dataclasses.Field[Any]]:
        return [field for field in dataclasses.fields(self.settings) if field.name not in self.left_out]


def given(arguments: Sequence[str], flag: str, default: str) -> str:
    """Return the value of a flag in raw arguments, before they are parsed; as for the parser, the last one counts."""
    found = default
    for i, argument in enumerate(arguments):
        if argument == flag and i + 1 < len(arguments):
            found = arguments[i + 1]
        elif argument.startswith(f"{flag}="):
            found = argument.removeprefix(f"{flag}=")
    return found


def command(sections: Sequence[Section], body: Callable[..., None], every: bool = False) -> Callable[..., None]:
    """Return `body` with a flag for every field of every section; `--help` shows those of experts with `every` only.

    `body` takes its own parameters and `values`: for each section's key, the fields given or defaulted.
    """
    own = [p for p in inspect.signature(body).parameters.values() if p.name != "values"]
    fields = {field.name: (section, field, hint) for section in sections for field, hint in _hinted(section)}
    names = [field.name for section in sections for field in section.fields]
    if len(fields) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise UserError(
            f"two settings share the name '{twice[0]}' ({sections[-1].title}): rename the method's or the data set's"
        )

    def call(**arguments: Any) -> None:
        values: dict[str, dict[str, Any]] = {section.key: {} for section in sections}
        for name, (section, _, hint) in fields.items():
            values[section.key][name] = _parse(name, arguments.pop(name), hint)
        body(values=values, **arguments)

    call.__doc__ = body.__doc__
    parameters = [_parameter(section, field, hint, every) for section, field, hint in fields.values()]
    call.__signature__ = inspect.Signature([*parameters, *own])  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in [*parameters, *own]}
    return call


def _hinted(section: Section) -> list[tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(section.settings)
    return [(field, hints[field.name]) for field in section.fields]


def _parameter(section: Section, field: dataclasses.Field[Any], hint: Any, every: bool) -> inspect.Parameter:
    kind: Any = hint
    extra: dict[str, Any] = {}
    default = field.default
    if typing.get_origin(hint) is Literal:
        kind, extra = str, {"metavar": "|".join(map(str, typing.get_args(hint)))}
    elif typing.get_origin(hint) is tuple:
        kind, extra = str, {"metavar": "N,N,..."}
        default = ",".join(map(str, typing.cast(Sequence[Any], default)))
    names = [flag(field.name)] if hint is bool and default is False else []
    said = field.metadata.get("help", "")
    hidden = (is_expert(field) or field.name in section.hidden) and not every
    option = typer.Option(*names, help=said, rich_help_panel=section.title, hidden=hidden, **extra)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def _parse(name: str, value: Any, hint: Any) -> Any:
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        try:
            return tuple(inner(part) for part in value.split(",") if part.strip())
        except ValueError as error:
            raise UserError(f"{flag(name)} {value} must be numbers separated by commas") from error
    return value


def asked_for(context: typer.Context, values: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the fields that were given, each section without those that have their default."""

    def said(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    return {key: {name: value for name, value in own.items() if said(name)} for key, own in values.items()}


HELP_ALL = "--help-all"
HelpAll = Annotated[bool, typer.Option(HELP_ALL, help="show the settings for experts too, and exit")]


def asks_for_all(words: Sequence[str]) -> bool:
    return HELP_ALL in words
