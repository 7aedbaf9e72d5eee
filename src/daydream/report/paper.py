"""The cell of the paper's tables that a run can be held against."""

from dataclasses import fields

from daydream.components.parts import PartsSettings
from daydream.report.gather import Run
from daydream.reproduce.paper import PaperCell, cells

CLASSES = 100  # of both of the paper's data sets


def paper_cell(run: Run) -> PaperCell | None:
    """Return the paper's cell of this method, data set, split and size of memory; None where it prints none.

    A run on held-out images, one stopped early and a method with imagination or parts beside its own recipe have no
    cell.
    """
    settings, imagination, parts = run.settings, *(run.components.get(key, {}) for key in ("imagination", "parts"))
    known = {field.name for field in fields(PartsSettings)}
    carried = PartsSettings(**{name: value for name, value in parts.items() if name in known}).wanted
    extended = carried or (imagination.get("imagine") and settings["method"] != "imagine")
    if settings["validation"] or settings.get("tasks") or extended:
        return None
    size = settings["memory"] * (CLASSES if settings["budget"] == "per_class" else 1)
    for cell in (*cells("table1"), *(cell for cell in cells("ablation") if cell.method == "replay")):
        same = (cell.method, cell.data, cell.base, cell.steps)
        if same == tuple(settings[key] for key in ("method", "data", "base", "steps")) and cell.memory in (None, size):
            return cell if cell.accuracy is not None else None
    return None
