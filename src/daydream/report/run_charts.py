"""Charts of one run, as plain Plotly figures: task matrix, confusion, losses, learning rate, time, features."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from daydream.report.charts import COLOURS, Figure
from daydream.report.gather import KINDS, Run

NAMED = 30  # classes whose names fit an axis
DRAWN = 200  # classes that are drawn one by one; more are drawn by task
POINTS = 500  # of a curve: as many as a screen shows
WRITTEN = 12  # tasks whose accuracies fit into the cells of a matrix
KINDS_OF_FEATURES: dict[str, dict[str, Any]] = {
    "real data": {"color": "#e5484d", "symbol": "circle", "size": 6, "opacity": 0.75},
    "exemplars": {"color": "#1a9641", "symbol": "diamond", "size": 11},
    "counterparts": {"color": "#4878e8", "symbol": "triangle-up", "size": 8},
}
"""The colours of the paper's Figure 1b, as in `daydream look`."""


def charts_of(run: Run) -> list[Figure]:
    """Return a run's charts in the order of the page."""
    measured = [kind for kind in KINDS if run.measured(kind)]
    figures = [matrix(run, kind) for kind in measured]
    if run.confusion is not None:
        figures += [confusion(run, kind) for kind in measured if kind in run.confusion]
    for stage in run.stages:
        figures += [losses(run, stage), learning_rate(run, stage)]
    return [*figures, *times(run)]


def matrix(run: Run, kind: str) -> Figure:
    """Accuracy on the classes of each task (column) after each task (row)."""
    rows = run.matrix(kind)
    size = len(rows)
    names = [str(t + 1) for t in range(size)]
    trace = {
        "type": "heatmap",
        "x": names,
        "y": names,
        "z": [[round(value, 2) for value in row] + [None] * (size - len(row)) for row in rows],
        "coloraxis": "coloraxis",
        "hoverongaps": False,
        "xgap": 2,
        "ygap": 2,
        "texttemplate": "%{z:.0f}" if size <= WRITTEN else "",
        "hovertemplate": "after task %{y}, classes of task %{x}: %{z:.2f} %<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": "classes of task"}, "type": "category"},
        "yaxis": {"title": {"text": "after task"}, "type": "category", "autorange": "reversed"},
        "coloraxis": {"cmin": 0, "cmax": 100, "colorbar": {"ticksuffix": " %"}},
    }
    about = "accuracy on the classes of each task, after each task"
    return chart(f"Task by task, {kind.upper()}", about, trace, layout)


def confusion(run: Run, kind: str) -> Figure:
    """What the images of each class were taken for after the last task, in per cent of the class.

    The colours are stretched towards 0, where the mistakes are.
    """
    assert run.confusion is not None
    names, counts = distinct(run.confusion["names"]), run.confusion[kind]
    bounds = [0, *(row["classes"] for row in run.tasks)]
    by_task = len(names) > DRAWN
    if by_task:
        spans = [range(*pair) for pair in pairwise(bounds)]
        counts = [[sum(counts[i][j] for i in rows for j in columns) for columns in spans] for rows in spans]
        names, bounds = [f"task {t + 1}" for t in range(len(spans))], [0]
    shares = [[_share(count, sum(row)) for count in row] for row in counts]
    trace = {
        "type": "heatmap",
        "x": names,
        "y": names,
        "z": shares,
        "coloraxis": "coloraxis",
        "hovertemplate": "%{y} taken for %{x}: %{z:.1f} %<extra></extra>",
    }
    axis = {"type": "category", "showticklabels": len(names) <= NAMED, "dtick": 1}
    walls = [bound - 0.5 for bound in bounds[1:-1]]
    near, far = -0.5, len(names) - 0.5
    lines = [{"type": "line", "x0": wall, "x1": wall, "y0": near, "y1": far} for wall in walls]
    lines += [{"type": "line", "x0": near, "x1": far, "y0": wall, "y1": wall} for wall in walls]
    layout = {
        "xaxis": {"title": {"text": "taken for"}, **axis},
        "yaxis": {"title": {"text": "task" if by_task else "class"}, "autorange": "reversed", **axis},
        "coloraxis": {"cmin": 0, "cmax": 100, "colorbar": {"ticksuffix": " %"}},
        "shapes": lines,
    }
    what = "task by task" if by_task else "lines part the tasks"
    about = f"after the last task, per cent of a class's {run.evaluated_on} images; {what}"
    return {**chart(f"Confusion, {kind.upper()}", about, trace, layout), "stretched": True}


def distinct(names: Sequence[str]) -> list[str]:
    """Number classes of equal names, which one axis would draw as one."""
    return [name if names.index(name) == i else f"{name} ({names[:i].count(name) + 1})" for i, name in enumerate(names)]


def _share(count: int, whole: int) -> float:
    # a whole number is shorter in the page than 0.0, and most of them are 0
    return round(100 * count / whole, 1) if count else 0


def losses(run: Run, stage: str) -> Figure:
    """Each loss of a stage over its epochs, task after task."""
    rows = run.of_stage(stage)
    names = list(dict.fromkeys(name for row in rows for name in row["losses"]))
    step = math.ceil(len(rows) / POINTS)
    traces = [
        curve(name, COLOURS[i % len(COLOURS)], [_short(row["losses"].get(name)) for row in rows[::step]], step)
        for i, name in enumerate(names)
    ]
    layout = {"xaxis": epochs_axis(run, stage), "yaxis": {"title": {"text": "loss"}}, "showlegend": True}
    return {"title": f"Losses of stage {stage}", "about": "mean of each epoch", "data": traces, "layout": layout}


def learning_rate(run: Run, stage: str) -> Figure:
    """The learning rate of a stage over its epochs, task after task."""
    rows = run.of_stage(stage)
    step = math.ceil(len(rows) / POINTS)
    traces = [curve("learning rate", COLOURS[0], [_short(row["lr"]) for row in rows[::step]], step)]
    layout = {"xaxis": epochs_axis(run, stage), "yaxis": {"title": {"text": "learning rate"}, "rangemode": "tozero"}}
    about = "of each epoch; a group of tensors may take a share of it"
    return {"title": f"Learning rate of stage {stage}", "about": about, "data": traces, "layout": layout}


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def curve(name: str, colour: str, values: Sequence[float | None], step: int) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines" if len(values) > 1 else "markers",
        "name": name,
        "x0": 1,
        "dx": step,
        "y": list(values),
        "line": {"color": colour, "width": 1.6},
        "hovertemplate": "%{y:.4g}, epoch %{x}",
    }


def epochs_axis(run: Run, stage: str) -> dict[str, Any]:
    """An axis over the epochs of a stage, counted through all tasks, with a mark where a task begins."""
    tasks = [row["task"] for row in run.of_stage(stage)]
    starts = [i for i, task in enumerate(tasks) if i == 0 or task != tasks[i - 1]]
    every = math.ceil(len(starts) / WRITTEN)
    return {
        "title": {"text": "epochs of the stage, from the start of each task"},
        "tickvals": [start + 1 for start in starts[::every]],
        "ticktext": [f"task {tasks[start] + 1}" for start in starts[::every]],
    }


def times(run: Run) -> list[Figure]:
    """Seconds of each stage in each task, stacked, and the images per second of each stage."""
    spent, tasks = run.spent(), sorted({row["task"] for row in run.epochs})
    names = [str(task + 1) for task in tasks]
    bars, speeds = [], []
    for i, stage in enumerate(run.stages):
        found = [spent.get((task, stage)) for task in tasks]
        colour = COLOURS[i % len(COLOURS)]
        seconds = [round(part.seconds, 2) if part else 0 for part in found]
        speed = [round(part.images / part.seconds, 1) if part and part.seconds else None for part in found]
        bars.append(bar(stage, names, seconds, colour, "%{y:.1f} s"))
        speeds.append(bar(stage, names, speed, colour, "%{y:,.0f} images/s"))
    ended = dict(zip((row["task"] for row in run.tasks), run.seconds_of_tasks(), strict=True))
    trained = {task: sum(part.seconds for (t, _), part in spent.items() if t == task) for task in tasks}
    rest = [round(max(0.0, ended.get(task, 0.0) - trained[task]), 2) for task in tasks]
    bars.append(bar("evaluation, herding, checkpoints", names, rest, COLOURS[-1], "%{y:.1f} s"))
    axis = {"title": {"text": "task"}, "type": "category"}
    shared = {"xaxis": axis, "showlegend": True, "hovermode": "x unified"}
    return [
        {
            "title": "Time per stage",
            "about": "the first epochs on a GPU include compilation",
            "data": bars,
            "layout": {**shared, "barmode": "stack", "yaxis": {"title": {"text": "seconds"}}},
        },
        {
            "title": "Images per second",
            "about": "training images of each stage, all its streams",
            "data": speeds,
            "layout": {**shared, "barmode": "group", "yaxis": {"title": {"text": "images per second"}}},
        },
    ]


def bar(name: str, x: Sequence[str], y: Sequence[float | None], colour: str, hover: str) -> Figure:
    return {
        "type": "bar",
        "name": name,
        "x": list(x),
        "y": list(y),
        "marker": {"color": colour},
        "hovertemplate": hover,
    }


def features(name: str, points: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """One class's real images, exemplars and counterparts, as points on one map."""
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": kind,
            "x": [round(float(x), 2) for x, _ in points[kind]],
            "y": [round(float(y), 2) for _, y in points[kind]],
            "marker": style,
            "hoverinfo": "name",
        }
        for kind, style in KINDS_OF_FEATURES.items()
    ]
    bare = {"showticklabels": False, "showgrid": False, "zeroline": False}
    layout = {"xaxis": bare, "yaxis": {**bare, "scaleanchor": "x"}, "showlegend": True, "hovermode": "closest"}
    about = "t-SNE of features: what lies apart lies apart, how far is not to be read off"
    return {"title": f"Features of class {name}", "about": about, "data": traces, "layout": layout}


def chart(title: str, about: str, trace: Figure, layout: Mapping[str, Any]) -> Figure:
    return {"title": title, "about": about, "data": [trace], "layout": dict(layout)}
