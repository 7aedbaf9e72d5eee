"""The picture of the grid `memory`: average accuracy against exemplars per class, by either classifier.

A line is a method, its points means over class orders, its bars their standard deviation.
"""

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daydream.reproduce.own_grids import MEMORIES
from daydream.reproduce.picture import save
from daydream.reproduce.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLES: dict[str, dict[str, Any]] = {
    "replay": {"color": "black", "marker": "o"},
    "taught": {"color": "#0072b2", "marker": "s"},
    "imagine": {"color": "#d55e00", "marker": "^"},
    "dream": {"color": "#009e73", "marker": "D"},
    "ucir": {"color": "#b8860b", "marker": "v"},
}
"""How a line is drawn, by the first word of its cells' names: shapes too, for those who see or print no colour."""
Point = tuple[int, float, float]
"""Exemplars per class, mean, deviation."""


def draw(plan: Plan, picture: Path) -> bool:
    """Write the picture of what is finished; say whether there was anything to draw."""
    from matplotlib.figure import Figure

    found = {kind: lines(plan, kind) for kind in ("nme", "cnn")}
    if not any(found.values()):
        return False
    figure = Figure(figsize=(7.2, 3.0), dpi=200, layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, (kind, drawn) in zip(panels, found.items(), strict=True):
        draw_panel(axes, kind, drawn)
    panels[0].set_ylabel("average accuracy (%)", fontsize=8)
    panels[1].legend(loc="lower right", frameon=False, fontsize=7)
    figure.supxlabel("exemplars per class", fontsize=8)
    figure.suptitle(caption(plan), fontsize=7, color="0.35", parse_math=False)
    save(figure, picture)
    return True


def caption(plan: Plan) -> str:
    """Say what the picture shows."""
    run = next(job for jobs in plan.jobs.values() for job in jobs).values["run"]
    over = "order" if len(plan.orders) == 1 else "mean and standard deviation over the orders"
    return f"{run['data']}, {run['base']} base classes and {run['steps']} steps, {over} {', '.join(plan.orders)}"


def draw_panel(axes: "Axes", kind: str, drawn: dict[str, tuple[str, list[Point]]]) -> None:
    """Draw every method's line by one classifier."""
    for name, (row, points) in drawn.items():
        x, y, deviation = zip(*points, strict=True)
        style = {"linewidth": 1.2, "markersize": 3.5, "capsize": 2, "elinewidth": 0.7, **STYLES[name]}
        axes.errorbar(x, y, yerr=deviation, label=row, **style)
    axes.set_xscale("log")
    axes.set_xticks(MEMORIES, [str(kept) for kept in MEMORIES])
    axes.minorticks_off()
    axes.set_title(kind.upper(), fontsize=9)
    axes.tick_params(labelsize=7, length=2)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def lines(plan: Plan, kind: str) -> dict[str, tuple[str, list[Point]]]:
    """Return every method's row and points, where any of its runs is finished, by the first word of its cells."""
    found: dict[str, tuple[str, list[Point]]] = {}
    for cell in plan.cells:
        results = [job.result for job in plan.jobs[cell.name]]
        values = [result[f"average_{kind}"] for result in results if result]
        if values and cell.memory is not None:
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            name = cell.name.rpartition("-")[0]
            found.setdefault(name, (cell.row, []))[1].append((cell.memory, statistics.fmean(values), deviation))
    return found
