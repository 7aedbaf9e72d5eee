"""The picture of the grid `parts`: accuracy on old and on new classes after each task, with and without each part.

A pair of panels for each method, so that a part's line is never one of many; the axes are the same in all of them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from daydream import atomic
from daydream.errors import UserError
from daydream.reproduce.jobs import Job
from daydream.reproduce.plan import Plan
from daydream.reproduce.protocols import Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Kind = Literal["old", "new"]
WIDTH, HEIGHT = 7.2, 1.7  # of a pair of panels and its legend, in inches
STYLES: dict[str, dict[str, Any]] = {
    "": {"color": "black", "marker": "", "linewidth": 1.8},
    "blend": {"color": "#0072b2", "marker": "o"},
    "rotations": {"color": "#d55e00", "marker": "s"},
    "erase": {"color": "#cc79a7", "marker": "^"},
    "short": {"color": "#b8860b", "marker": "v"},
    "pile-distill": {"color": "#56b4e9", "marker": "P"},
    "pile-teach": {"color": "#808000", "marker": "*"},
    "parts": {"color": "#009e73", "marker": "D"},
    "generators": {"color": "#5b4bb5", "marker": "x"},
}
"""How a line is drawn, by the part that was added or taken away: shapes too, for those who see or print no colour."""


def draw(plan: Plan, picture: Path) -> bool:
    """Write the picture of what is finished; say whether there was anything to draw."""
    from matplotlib.figure import Figure

    families: dict[str, list[Cell]] = {}
    for cell in plan.cells:
        if any(job.result for job in plan.jobs[cell.name]):
            families.setdefault(cell.method, []).append(cell)
    if not families:
        return False
    figure = Figure(figsize=(WIDTH, HEIGHT * len(families) + 0.7), dpi=200, layout="constrained")
    panels = figure.subplots(len(families), 2, squeeze=False, sharex=True, sharey="col")
    for axes, cells in zip(panels, families.values(), strict=True):
        draw_family(axes, cells, plan)
    for axis, kind in zip(panels[0], ("old classes", "new classes"), strict=True):
        axis.set_title(kind, fontsize=9)
    figure.supxlabel("classes seen", fontsize=8)
    figure.suptitle(caption(plan), fontsize=7, color="0.35", parse_math=False)
    save(figure, picture)
    return True


def save(figure: "Figure", picture: Path) -> None:
    """Write a picture, whole or not at all."""
    try:
        picture.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replacing(picture) as part:
            figure.savefig(part, format="png")
    except OSError as error:
        raise UserError(f"--out: {picture} cannot be written: {error.strerror or error}") from error


def caption(plan: Plan) -> str:
    """Say what the picture shows."""
    run = next(job for jobs in plan.jobs.values() for job in jobs).values["run"]
    over = "order" if len(plan.orders) == 1 else "mean over the orders"
    return (
        f"NME accuracy after each task: {run['data']}, {run['base']} base classes and {run['steps']} steps, "
        f"memory {run['memory']:,}, {over} {', '.join(plan.orders)}"
    )


def draw_family(axes: "Sequence[Axes]", cells: Sequence[Cell], plan: Plan) -> None:
    """Draw a method and its variants: old classes on the left, new ones on the right, their names beside."""
    kinds: tuple[Kind, Kind] = ("old", "new")
    for axis, kind in zip(axes, kinds, strict=True):
        for cell in cells:
            style = STYLES[cell.name.removeprefix(cell.method)[1:]]
            points = curve(plan.jobs[cell.name], kind)
            axis.plot(
                *zip(*points, strict=True), label=label(cell, plan), **{"linewidth": 1.1, "markersize": 3.5, **style}
            )
        axis.set_xticks(sorted({x for cell in cells for x, _ in curve(plan.jobs[cell.name], "new")}))
        axis.tick_params(labelsize=7, length=2)
        axis.grid(axis="y", color="0.9", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("NME (%)", fontsize=8)
    axes[1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=7, borderaxespad=0)


def label(cell: Cell, plan: Plan) -> str:
    """Name a cell's line; one with fewer class orders than the others says so."""
    jobs = plan.jobs[cell.name]
    done = sum(job.result is not None for job in jobs)
    return cell.row if done == len(jobs) else f"{cell.row} ({done} of {len(jobs)} orders)"


def curve(jobs: Sequence[Job], kind: Kind) -> list[tuple[int, float]]:
    """Return the classes seen and the accuracy on old or new ones after each task that has such, over class orders."""
    tables = [job.result["tasks"] for job in jobs if job.result]
    points = []
    for rows in zip(*tables, strict=True):
        values = [row["nme"][kind] for row in rows]
        if None not in values:
            points.append((rows[0]["classes"], sum(values) / len(values)))
    return points
