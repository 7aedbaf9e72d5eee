"""The cell of the paper's tables that a run can be held against."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

from daydream.components.parts import PartsSettings
from daydream.components.settings import BESIDE_GENERATORS, component_settings
from daydream.methods import load_method
from daydream.protocol.stream import PAPER_ORDERS
from daydream.report.gather import Run
from daydream.reproduce.paper import PaperCell, cells

CLASSES = 100  # of both of the paper's data sets
BACKBONES = {"cifar100": "resnet32", "imagenet-subset": "resnet18"}
"""The paper's network for a data set."""
CUT = "stage3"
PILES = {"cifar100": "imagenet32", "imagenet-subset": ""}
"""The source of the paper's unlabelled images; empty where the data set leaves them itself."""


def paper_cell(run: Run) -> PaperCell | None:
    """Return the paper's cell of this method, data set, split, network and memory; None where it prints none.

    A run on held-out images, one stopped early, in an order that is not the paper's, and one with other settings than
    its method has by default have no cell: what a part, fewer epochs or half of the classes give is not what the paper
    gave.
    """
    settings = run.settings
    data, labelled = settings["data"], run.components.get("data", {}).get("labelled")
    network = (settings["backbone"], settings["cut"]) == (BACKBONES.get(data), CUT)
    order = settings["order"] in PAPER_ORDERS.get(data, [settings["order"]])
    if settings["validation"] or settings.get("tasks") or labelled or not network or not order:
        return None
    size = settings["memory"] * (CLASSES if settings["budget"] == "per_class" else 1)
    for cell in (*cells("table1"), *(cell for cell in cells("ablation") if cell.method == "replay")):
        same = (cell.method, cell.data, cell.base, cell.steps)
        if same == tuple(settings[key] for key in ("method", "data", "base", "steps")) and cell.memory in (None, size):
            known = cell.accuracy is not None and cell.budget in (settings["budget"], "unstated", "none")
            return cell if known and not load_method(cell.method).reading and not any(unusual(run, cell)) else None
    return None


def unusual(run: Run, cell: PaperCell) -> Iterator[str]:
    """Name what a run carries or sets otherwise than its method does by default or the paper did."""
    kind, imagination = load_method(cell.method), run.components.get("imagination", {})
    yield from run.components.get("gone", {})
    usual = {"method": kind.Settings()}
    if kind.imagines:
        usual |= {key: component_settings(kind)[key]() for key in ("imagination", "pile")}
    elif kind.needs_pile:
        usual["pile"] = component_settings(kind)["pile"]()
    elif imagination.get("imagine"):
        yield "imagine"
    for key, settings in usual.items():
        given = run.components.get(key, {})
        for name, default in asdict(settings).items():
            if given.get(name, default) not in paper_values(name, default, given, cell):
                yield name
    parts, known = run.components.get("parts", {}), {field.name for field in fields(PartsSettings)}
    yield from PartsSettings(**{name: value for name, value in parts.items() if name in known}).wanted


def paper_values(name: str, default: Any, given: Mapping[str, Any], cell: PaperCell) -> Collection[Any]:
    """Return the values of a setting with which a run is what a cell of the paper's was."""
    if name == "imagine":  # of a method that always does
        return (True, False)
    if name == "configuration" and cell.reports:  # PODNet's code has one for each accuracy
        return (cell.reports,)
    if name == "pile_distill":  # imagination as printed has none; beside generators 0.5 is what nothing means
        return (default, 0.0, BESIDE_GENERATORS)
    if name == "unlabeled":
        source = str(given.get(name, default)).partition(":")[0]
        return (given.get(name, default),) if source in ("", PILES[cell.data]) else ()
    return (default,)
