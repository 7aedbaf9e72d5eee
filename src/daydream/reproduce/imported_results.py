"""Results made elsewhere: on another machine, under other paths, as run folders or as JSON files kept from them.

A grid names its runs by all their settings, paths included. What was made elsewhere counts as one of them where all
settings agree but those that say where things lie and how fast they go. A run of all tasks counts as one of its first
few too: nothing in a task depends on what comes later.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

from daydream.data.unlabeled import has_own_pile
from daydream.errors import UserError
from daydream.experiment.config import Config, config_from_json, make_config
from daydream.methods import Method, load_method
from daydream.reproduce.jobs import Job
from daydream.settings import mismatch, plain_json, require
from daydream.storage.records import StoredConfig
from daydream.storage.run_folder import read_json

log = logging.getLogger("daydream")

ELSEWHERE = frozenset(("root", "base_from", "device", "precision", "compile", "checkpoint_every", "tensorboard"))
"""Settings of a run that may differ: a shared base task is the run's own, trained once."""
MEASURED = ("reports", "average_nme", "average_cnn", "last_nme", "last_cnn", "seconds", "parameters", "tasks")


class Top(TypedDict):
    top1: float


class ImportedTask(TypedDict):
    cnn: NotRequired[Top | None]
    nme: NotRequired[Top | None]
    seconds: NotRequired[float]


class Imported(TypedDict):
    """What is read of a result made elsewhere; the earliest ones that are kept say no more."""

    reports: Literal["cnn", "nme"]
    average_nme: float | None
    average_cnn: float | None
    last_nme: float | None
    last_cnn: float | None
    seconds: float
    parameters: int
    mean_parameters: NotRequired[int | None]
    tasks: list[ImportedTask]
    config: StoredConfig


class Result(NamedTuple):
    """A result made elsewhere: its pile's name, how many tasks its run was asked for, or all, and its file."""

    pile: str
    tasks: int | None
    path: Path


Found = dict[str, list[Result]]
"""Results by their run's identity."""


def find_results(place: Path) -> Found:
    """Return the finished runs at a place: a result's file, or all those in a folder and its sub-folders."""
    if not place.exists():
        raise UserError(f"--from {place} does not exist: name a folder of runs or of their result files")
    found: Found = {}
    for path in sorted(place.rglob("*.json")) if place.is_dir() else [place]:
        try:
            result = read_json(path)
            if not _is_result(result):
                continue
            require(not (wrong := mismatch(result, Imported, "")), wrong)
            config = config_from_json(result["config"])
        except UserError as error:
            log.warning("%s is left out: %s", path, error)
            continue
        found.setdefault(_identity(config), []).append(Result(_pile(config), config.run.tasks, path))
    if not found:
        raise UserError(f"--from {place} holds no result of a finished run (result.json, or a copy of one)")
    return found


def take(jobs: Sequence[Job], found: Found) -> list[Job]:
    """Return the jobs, those that were done elsewhere with their result's file."""
    return [replace(job, made=_made(job, found)) if job.result is None else job for job in jobs]


def _made(job: Job, found: Found) -> str:
    config = make_config(**job.values)
    pile, tasks = _pile(config), config.run.tasks
    known = [result for result in found.get(_identity(config), []) if result.pile == pile or not pile]
    fitting = [result.path for result in known if result.tasks == tasks]
    if tasks and not fitting:
        fitting = [result.path for result in known if result.tasks is None or result.tasks > tasks]
    if not fitting:
        return ""
    first, *others = fitting
    for other in others:
        if _numbers(other, tasks) != _numbers(first, tasks):
            raise UserError(f"--from has two results of {job.name}: {first} and {other}; {_remedy(first, other)}")
    return str(first)


def _remedy(first: Path, other: Path) -> str:
    if first.parent == other.parent:
        return "leave one of them out"
    return f"name the folder to go by, --from {first.parent} or --from {other.parent}"


def _numbers(path: Path, tasks: int | None) -> list[Any]:
    """Return the accuracies of a result's first tasks, or of all."""
    return [(row.get("nme"), row.get("cnn")) for row in read_json(path)["tasks"][:tasks]]


def _is_result(value: Any) -> bool:
    if not isinstance(value, dict) or not all(key in value for key in MEASURED):
        return False
    config = value.get("config")
    return isinstance(config, dict) and all(key in config for key in ("run", "data", "method", "device"))


def _identity(config: Config) -> str:
    """Return what a run depends on as text: its settings, less those of the place it ran at and the pile's source.

    How many of its tasks it was asked for is left out where fewer are the first of more. So are settings of what it
    does not carry: their defaults may have changed since it was made.
    """
    whole: dict[str, Any] = plain_json(config.to_json())
    del whole["version"]
    merged = load_method(config.run.method).reshape is not Method.reshape
    left_out = ELSEWHERE if merged else ELSEWHERE | {"tasks"}
    whole["run"] = {key: value for key, value in whole["run"].items() if key not in left_out}
    carried = config.carried
    if not carried.imagines:
        whole["imagination"] = None
    if not carried.needs_pile:
        whole["pile"] = None
    if whole["pile"]:
        del whole["pile"]["unlabeled"]
        whole["pile"]["pile_distill"] = carried.pile_distill
    if config.parts:
        whole["parts"] = config.parts.in_use
    return json.dumps(whole, sort_keys=True)


def _pile(config: Config) -> str:
    """Return the name of the source that the unlabelled images come from; empty where the settings leave it open."""
    given = config.pile.unlabeled.partition(":")[0] if config.pile else ""
    return given or (config.run.data if has_own_pile(config.run.data, config.data) else "")
