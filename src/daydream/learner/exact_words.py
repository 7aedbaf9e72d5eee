"""What an exact model's file says in JSON, as types: both its readers check it before they believe a word.

Imports no torch: predictions without torch read it too.
"""

import json
from collections.abc import Mapping
from typing import Any, TypedDict

from daydream import __version__
from daydream.settings import mismatch, require

FORMAT = 1
KIND = "daydream exact"
NAME = 200
SIDES = (8, 1024)


class Newer(Exception):
    """The file's format is one of a later version."""


class Words(TypedDict):
    """What JSON can hold of a model."""

    embedding: str
    names: list[list[str]]
    """Of the model and of each earlier state."""
    temperature: float | None
    accuracy: list[float | None]
    strength: float
    projection: list[int] | None


class Look(TypedDict):
    """How a picture is made ready."""

    mean: list[float]
    std: list[float]
    size: int


class About(TypedDict):
    """All words of a file."""

    format: int
    model: Words
    backbone: str
    origin: str
    prepare: Look
    history: list[Any]


def words_of(metadata: Mapping[str, str] | None) -> About:
    """Return the words of a file's metadata, once they are known to be ours and of their types."""
    require((metadata or {}).get("kind") == KIND, "it is no model of the exact learner")
    about: Any = json.loads((metadata or {})["about"], parse_constant=lambda _: None)
    _check_format(about)
    require(not (wrong := mismatch(about, About, "")), wrong)
    checked: About = about
    require(len(checked["origin"]) <= NAME, "its network has no name")
    _check_look(checked["prepare"])
    return checked


def _check_format(about: Any) -> None:
    found = about["format"]
    require(isinstance(found, int) and found >= 1, "it has no format")
    if found > FORMAT:
        raise Newer(
            f"was written by daydream {about.get('daydream')} in format {found}; this is daydream {__version__}, which "
            f"reads up to format {FORMAT}: upgrade it"
        )


def _check_look(look: Look) -> None:
    mean, std = look["mean"], look["std"]
    require(SIDES[0] <= look["size"] <= SIDES[1], "its pictures have no size")
    require(len(mean) == len(std) == 3 and all(0 <= value <= 1 for value in (*mean, *std)), "its colours have no scale")
    require(min(std) > 0, "its colours have no scale")


def check_model(words: Words) -> None:
    """Raise unless what is said of a model is of its types and fits together."""
    require(not (wrong := mismatch(words, Words, "")), wrong)
    names, temperature, projection = words["names"], words["temperature"], words["projection"]
    require(bool(names) and all(own and len(own) == len(set(own)) for own in names), "its class names are not whole")
    require(temperature is None or temperature > 0, "its temperature is none")
    require(all(value is None or 0 <= value <= 100 for value in words["accuracy"]), "its accuracies are none")
    require(len(words["accuracy"]) == len(names[0]), "its accuracies do not fit its classes")
    require(projection is None or len(projection) == 2, "its projection is none")
