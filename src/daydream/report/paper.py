"""The cell of the paper's tables that a run can be held against."""

from collections.abc import Iterator
from dataclasses import asdict, fields

from daydream.components.parts import PartsSettings
from daydream.config import component_settings
from daydream.methods import load_method
from daydream.report.gather import Run
from daydream.reproduce.paper import PaperCell, cells

CLASSES = 100  # of both of the paper's data sets
BACKBONES = {"cifar100": "resnet32", "imagenet-subset": "resnet18"}
"""The paper's network for a data set."""


def paper_cell(run: Run) -> PaperCell | None:
    """Return the paper's cell of this method, data set, split, network and size of memory; None where it prints none.

    A run on held-out images, one stopped early, and one with other settings than its method has by default have no
    cell: whatever a part, fewer epochs or half of the classes give, it is not what the paper gave.
    """
    settings = run.settings
    data, labelled = settings["data"], run.components.get("data", {}).get("labelled")
    if settings["validation"] or settings.get("tasks") or labelled or settings["backbone"] != BACKBONES.get(data):
        return None
    size = settings["memory"] * (CLASSES if settings["budget"] == "per_class" else 1)
    for cell in (*cells("table1"), *(cell for cell in cells("ablation") if cell.method == "replay")):
        same = (cell.method, cell.data, cell.base, cell.steps)
        if same == tuple(settings[key] for key in ("method", "data", "base", "steps")) and cell.memory in (None, size):
            return cell if cell.accuracy is not None and not any(unusual(run, cell)) else None
    return None


def unusual(run: Run, cell: PaperCell) -> Iterator[str]:
    """Name what a run carries or sets otherwise than its method does by default or the paper did."""
    kind, imagination = load_method(cell.method), run.components.get("imagination", {})
    usual = {"method": kind.Settings()}
    if kind.imagines:
        usual["imagination"] = component_settings(kind)["imagination"]()
    elif imagination.get("imagine"):
        yield "imagine"
    # PODNet's code has a configuration for each accuracy; imagination as printed has no distillation on the pile.
    papers = {"configuration": cell.reports, "pile_distillation": 0.0}
    for key, settings in usual.items():
        given = run.components.get(key, {})
        for name, default in asdict(settings).items():
            if name != "imagine" and given.get(name, default) not in (default, papers.get(name, default)):
                yield name
    parts, known = run.components.get("parts", {}), {field.name for field in fields(PartsSettings)}
    yield from PartsSettings(**{name: value for name, value in parts.items() if name in known}).wanted
