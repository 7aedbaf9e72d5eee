"""Two sides of runs, paired by class order and seed: mean differences, their standard errors, and plain verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from daydream.errors import UserError
from daydream.experiment.naming import data_name, variants
from daydream.protocol.paired import Difference, difference
from daydream.report.gather import KINDS
from daydream.settings import mismatch
from daydream.storage.older import upgraded
from daydream.storage.records import Result, StoredConfig
from daydream.storage.run_folder import read_json

PROTOCOL = ("base", "steps", "tasks", "memory", "budget", "backbone")
"""Settings of runs that should agree, beside class order and seed."""
SECTIONS = ("method", "parts", "pile", "imagination")
"""Settings in which sides may differ on purpose: what is compared."""
Key = tuple[Any, ...]


class Finished(NamedTuple):
    """A finished run's result, and where it was read."""

    path: Path
    result: Mapping[str, Any]

    @property
    def run(self) -> Mapping[str, Any]:
        settings: Mapping[str, Any] = self.result["config"]["run"]
        return settings

    @property
    def images(self) -> tuple[str, str, str]:
        """What it was judged on."""
        config = self.result["config"]
        held_out = f"validation {self.run['validation']:g}" if self.run.get("validation") else "test"
        return data_name(config), str(config.get("fingerprint", "")), held_out

    @property
    def bases(self) -> set[str]:
        """Name what other runs may share with it: its class order, the folder its base task is from, its own folder."""
        given = self.run.get("base_from")
        own = {str(self.path.parent.resolve())} if self.path.name == "result.json" else set()
        return {f"order {self.run['order']}", *own, *([str(Path(given))] if given else [])}

    def key(self, names: Sequence[str]) -> Key:
        return (self.run["order"], self.run["seed"], *(self.run.get(name) for name in names))


@dataclass(frozen=True)
class Comparison:
    """Two sides, what pairs they have in common, and their differences by accuracy."""

    names: tuple[str, str]
    pairs: int
    alone: tuple[list[str], list[str]]
    """Runs of either side without a partner."""
    differs: dict[str, tuple[str, str]]
    """Settings in which the sides differ, with both values: of the protocol, of the method and of what it carries."""
    means: dict[str, tuple[float, float]]
    """By the accuracy's kind: of A, of B, over the pairs."""
    found: dict[str, Difference]

    def to_json(self) -> dict[str, Any]:
        kinds = {
            kind: {
                "a": round(self.means[kind][0], 4),
                "b": round(self.means[kind][1], 4),
                "difference": round(one.mean, 4),
                "standard_error": None if one.error is None else round(one.error, 4),
                "interval": None if one.interval is None else [round(end, 4) for end in one.interval],
                "replicates": one.replicates,
                "decided": one.decided,
                "more": one.more,
                "verdict": one.verdict(kind.upper()),
            }
            for kind, one in self.found.items()
        }
        return {
            "a": self.names[0],
            "b": self.names[1],
            "pairs": self.pairs,
            "without_partner": {"a": self.alone[0], "b": self.alone[1]},
            "differs": {name: list(values) for name, values in self.differs.items()},
            **kinds,
        }


def read_side(places: Sequence[Path], side: str) -> list[Finished]:
    """Read one side's finished runs: run folders, folders of such, results kept as JSON."""
    found: dict[Path, Finished] = {}
    for place in places:
        if not place.exists():
            raise UserError(f"{place} does not exist: name run folders, or results kept as JSON, on both sides of --")
        files = [place] if place.is_file() else sorted(place.rglob("*.json"))
        here = {path.resolve(): Finished(path, result) for path in files if (result := _result(path, place.is_file()))}
        if not here:
            raise UserError(f"{place} holds no result of a finished run (result.json, or a copy of one)")
        found |= here
    if not found:
        raise UserError(f"there is no run for {side}: name both sides, daydream compare A... -- B...")
    return list(found.values())


def _result(path: Path, asked: bool) -> dict[str, Any] | None:
    try:
        value = read_json(path)
    except UserError:
        if asked:
            raise
        return None
    config = value.get("config") if isinstance(value, dict) else None
    whole = not mismatch(value, Result, "") and not mismatch(config, StoredConfig, "")
    return {**value, "config": upgraded(value["config"])} if whole else None


def compare(ours: Sequence[Finished], theirs: Sequence[Finished]) -> Comparison:
    """Pair the runs of A and B by class order, seed, and whatever of the protocol varies within a side."""
    _check_images([*ours, *theirs])
    varying = [
        name for name in PROTOCOL if any(len({run.run.get(name) for run in side}) > 1 for side in (ours, theirs))
    ]
    a, b = _by_key(ours, varying, "A"), _by_key(theirs, varying, "B")
    shared = [key for key in a if key in b]
    if not shared:
        raise UserError(
            f"no run of A has a partner in B: pairs have the same class order and seed"
            f"{''.join(f', {name}' for name in varying)}; A has {_told(a)}; B has {_told(b)}"
        )
    pairs = [(a[key], b[key]) for key in shared]
    found, means = dict[str, Difference](), dict[str, tuple[float, float]]()
    for kind in KINDS:
        known = [
            (one, other, float(one.result[f"average_{kind}"]), float(other.result[f"average_{kind}"]))
            for one, other in pairs
            if None not in (one.result[f"average_{kind}"], other.result[f"average_{kind}"])
        ]
        if known:
            groups = replicates([one.bases | other.bases for one, other, *_ in known])
            gains: dict[int, list[float]] = {}
            for group, (*_, x, y) in zip(groups, known, strict=True):
                gains.setdefault(group, []).append(y - x)
            found[kind] = difference(list(gains.values()))
            means[kind] = (sum(x for *_, x, _ in known) / len(known), sum(y for *_, y in known) / len(known))
    alone = (
        [str(run.path) for key, run in a.items() if key not in b],
        [str(run.path) for key, run in b.items() if key not in a],
    )
    differs = _differences([one for one, _ in pairs], [other for _, other in pairs], varying)
    told = variants([run.result["config"] for run in (*ours, *theirs)])
    names = tuple(", ".join(dict.fromkeys(part)) for part in (told[: len(ours)], told[len(ours) :]))
    return Comparison((names[0], names[1]), len(pairs), alone, differs, means, found)


def _differences(a: Sequence[Finished], b: Sequence[Finished], varying: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Name the settings in which two sides differ, with the values that either has; those both know count."""
    fixed = [("run", name) for name in PROTOCOL if name not in varying]
    known = [_known(side, section) for side in (a, b) for section in SECTIONS]
    common = [
        (section, name)
        for section, ours, theirs in zip(SECTIONS, known, known[len(SECTIONS) :], strict=False)
        for name in ours
        if name in theirs
    ]
    found = {}
    for section, name in [*fixed, *common]:
        ours, theirs = (_values(side, section, name) for side in (a, b))
        if ours != theirs:
            found[name] = (ours, theirs)
    return found


def _known(side: Sequence[Finished], section: str) -> dict[str, Any]:
    """Return the settings of a section that every run of a side has."""
    first, *rest = [run.result["config"].get(section) or {} for run in side]
    return {name: value for name, value in first.items() if all(name in other for other in rest)}


def _values(side: Sequence[Finished], section: str, name: str) -> str:
    return " or ".join(sorted({str(run.result["config"][section].get(name)) for run in side}))


def _check_images(runs: Sequence[Finished]) -> None:
    first = runs[0]
    for run in runs:
        if run.images != first.images:
            raise UserError(
                f"{first.path} and {run.path} were not judged on the same images "
                f"({', '.join(filter(None, first.images))}; {', '.join(filter(None, run.images))})"
            )


def _by_key(runs: Sequence[Finished], names: Sequence[str], side: str) -> dict[Key, Finished]:
    found: dict[Key, Finished] = {}
    for run in runs:
        key = run.key(names)
        if key in found:
            raise UserError(
                f"two runs of {side} have the same order and seed, {found[key].path} and {run.path}: leave one out"
            )
        found[key] = run
    return found


def replicates(bases: Sequence[set[str]]) -> list[int]:
    """Number pairs by replicate, given the names of their base tasks: pairs with one name in common are one."""
    groups: list[tuple[set[str], list[int]]] = []
    for place, names in enumerate(bases):
        met = [group for group in groups if group[0] & names]
        merged = (names.union(*(group[0] for group in met)), [place, *(i for group in met for i in group[1])])
        groups = [*(group for group in groups if group not in met), merged]
    number = {place: min(places) for _, places in groups for place in places}
    return [number[place] for place in range(len(bases))]


def _told(side: Mapping[Key, Finished]) -> str:
    told = [f"order {key[0]}, seed {key[1]}" for key in side]
    return "; ".join([*told[:3], *(["..."] if len(told) > 3 else [])])
