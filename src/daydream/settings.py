"""Settings as frozen dataclasses: each field carries its default and one line of meaning."""

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

from daydream.errors import UserError, unknown

T = TypeVar("T")


def setting(default: Any, help: str, *, expert: bool = False) -> Any:
    """Declare a field of a settings dataclass; `help` is its line in `--help`, with the default's source.

    An `expert` one is for whoever reproduces a paper's fine print: `--help` leaves it out, `--help-all` shows it.
    """
    return dataclasses.field(default=default, metadata={"help": help, "expert": expert})


def flag(name: str) -> str:
    """Return the flag that gives a setting."""
    return f"--{name.replace('_', '-')}"


def from_dict(kind: type[T], values: Mapping[str, Any]) -> T:
    """Build a settings dataclass; an unknown key or a value of the wrong type is the user's mistake."""
    whole: Any = kind
    hints = _hints(whole)
    fields = {f.name for f in dataclasses.fields(whole)}
    for key, value in values.items():
        if key not in fields:
            raise unknown(f"setting of {_owner(kind)}", key, fields)
        if not _fits(value, hints[key]):
            raise UserError(f"setting '{key}' of {_owner(kind)} is {value!r}, but takes {describe(hints[key])}")
    clean = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return kind(**clean)


def sorted_into(sections: Mapping[str, type], values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sort settings by the section whose dataclass has them; one that none has is the user's mistake."""
    place = {field.name: key for key, kind in sections.items() for field in dataclasses.fields(kind)}
    found: dict[str, dict[str, Any]] = {key: {} for key in sections}
    for name, value in values.items():
        if name not in place:
            raise unknown("setting", name, place)
        found[place[name]][name] = value
    return found


def with_defaults(kind: type[T], defaults: Mapping[str, Any]) -> type[T]:
    """Return a settings dataclass with other defaults for those of its fields that are named."""
    whole: Any = kind
    own = tuple((f.name, defaults[f.name]) for f in dataclasses.fields(whole) if f.name in defaults)
    made: type[T] = _made_with(whole, own) if own else kind
    return made


@functools.cache
def _made_with(kind: Any, defaults: tuple[tuple[str, Any], ...]) -> Any:
    """Make such a dataclass once: a grid asks for the same few hundreds of times."""
    hints, known = _hints(kind), {f.name: f for f in dataclasses.fields(kind)}
    fields = [
        (name, hints[name], setting(value, known[name].metadata["help"], expert=is_expert(known[name])))
        for name, value in defaults
    ]
    return dataclasses.make_dataclass(kind.__name__, fields, bases=(kind,), frozen=True, kw_only=True)


def is_expert(field: dataclasses.Field[Any]) -> bool:
    """Say whether a setting is left out of `--help`."""
    return bool(field.metadata.get("expert"))


@functools.cache
def describe(hint: Any) -> str:
    """Say in words what a field's type admits."""
    if typing.get_origin(hint) is Literal:
        return "one of " + ", ".join(str(v) for v in typing.get_args(hint))
    if _is_union(hint):
        return " or ".join("nothing" if a is type(None) else describe(a) for a in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"a list of {typing.get_args(hint)[0].__name__}"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(hint, str(hint))


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Name the keys, dotted, whose values differ between two nested dicts."""
    names: list[str] = []
    for key in sorted(set(old) | set(new)):
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            names += [f"{key}.{name}" for name in changed(a, b)]
        elif a != b:
            names.append(key)
    return names


def plain_json(value: Any) -> Any:
    """Return a value as JSON gives it back: tuples become lists."""
    return json.loads(json.dumps(value))


def as_arguments(values: Mapping[str, Any], defaults: type) -> list[str]:
    """Write settings as the flags that give them, leaving defaults out."""
    usual = {field.name: field.default for field in dataclasses.fields(defaults)}
    words: list[str] = []
    for name, value in values.items():
        if value != usual.get(name):
            words += as_words(name, value)
    return words


def as_words(name: str, value: Any) -> list[str]:
    """Write a setting as the flag that gives it."""
    given = flag(name)
    if isinstance(value, bool):
        return [given if value else f"--no-{given[2:]}"]
    return [given, ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)]


LARGEST = 2**63
"""A number that a file holds may be no larger: no file of ours holds one that no machine can hold."""


def mismatch(value: Any, hint: Any, where: str) -> str:
    """Say how a value read from JSON differs from what a type admits, and where; nothing if it fits.

    Admits lists, dicts of texts, `TypedDict`s and unions of plain values, however they are nested.
    """
    kinds = _plain_kinds(hint)
    if kinds is not None:
        fits = type(value) in kinds and (not isinstance(value, int) or abs(value) < LARGEST)
        fits = fits and (not isinstance(value, float) or math.isfinite(value))  # JSON's 1e999 is infinite here
        return "" if fits else _other(value, describe(hint), where)
    if typing.is_typeddict(hint):
        return _misses(value, hint, where) if isinstance(value, dict) else _other(value, "an object", where)
    if typing.get_origin(hint) is list:
        (inner,) = typing.get_args(hint)
        parts = enumerate(value) if isinstance(value, list) else None
        return _other(value, "a list", where) if parts is None else _first(parts, inner, where)
    if typing.get_origin(hint) is dict:
        inner = typing.get_args(hint)[1]
        return _first(value.items(), inner, where) if isinstance(value, dict) else _other(value, "an object", where)
    if _is_union(hint):
        found = [mismatch(value, own, where) for own in typing.get_args(hint)]
        nested = [own for own in typing.get_args(hint) if typing.is_typeddict(own) or typing.get_origin(own)]
        if "" in found or not (isinstance(value, dict | list) and nested):
            return "" if "" in found else _other(value, describe(hint), where)
        return found[list(typing.get_args(hint)).index(nested[0])]
    return "" if hint is Any or _fits(value, hint) else _other(value, describe(hint), where)


@functools.cache
def _plain_kinds(hint: Any) -> frozenset[type] | None:
    """Return the very types of the values that a plain type, or a union of some, admits; None for any other."""
    own: dict[Any, set[type]] = {str: {str}, bool: {bool}, int: {int}, float: {int, float}, type(None): {type(None)}}
    parts = typing.get_args(hint) if _is_union(hint) else (hint,)
    if any(typing.get_origin(part) is not None or part not in own for part in parts):
        return None
    return frozenset(kind for part in parts for kind in own[part])


def _misses(value: dict[str, Any], hint: Any, where: str) -> str:
    for key in (key for key in _hints(hint) if key in hint.__required_keys__):
        if key not in value:
            return f"it does not say '{f'{where}.{key}' if where else key}'"
    return next(
        (
            found
            for key, inner in _hints(hint).items()
            if key in value and (found := mismatch(value[key], inner, f"{where}.{key}" if where else key))
        ),
        "",
    )


def _first(parts: Iterable[tuple[Any, Any]], hint: Any, where: str) -> str:
    return next((found for key, value in parts if (found := mismatch(value, hint, f"{where}.{key}"))), "")


def _other(value: Any, wanted: str, where: str) -> str:
    told = f"'{where}' is" if where else "it is"
    return f"{told} {value!r:.60}, but takes {wanted}"


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def require(condition: bool, message: str) -> None:
    """Raise the user's mistake unless the condition holds."""
    if not condition:
        raise UserError(message)


def _owner(kind: type) -> str:
    return kind.__qualname__.split(".")[0].removesuffix("Settings").lower() or "the run"


@functools.cache
def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _fits(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin is Literal:
        return value in typing.get_args(hint)
    if _is_union(hint):
        return any(_fits(value, a) for a in typing.get_args(hint))
    if origin is tuple:
        inner = typing.get_args(hint)[0]
        return isinstance(value, Iterable) and not isinstance(value, str) and all(_fits(v, inner) for v in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)
