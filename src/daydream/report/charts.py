"""Charts that compare runs, as plain Plotly figures (data and layout). The page's theme gives colours to the rest.

Every trace names its run in `meta`, so that the page can hide a run in all charts at once.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from daydream.report.gather import KINDS, Row, Run

Figure = dict[str, Any]
COLOURS = (
    "#4f7be0", "#e8950c", "#e0533d", "#2a9d8f", "#a463f2", "#3ca951", "#e377a8", "#8c6d46", "#5aa7e0", "#8a8f98",
)  # fmt: skip
"""Told apart on white and on near-black; the eleventh run takes the first colour with another dash and marker."""
DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "square", "diamond", "cross")
TICKS = 12  # numbers of classes that fit an axis
PER_CENT = {"title": {"text": "accuracy, %"}, "rangemode": "tozero"}


def style_of(index: int) -> tuple[str, str, str]:
    """Return the colour, dash and marker of the run at this place, the same in every chart."""
    turn = index // len(COLOURS) % len(DASHES)
    return COLOURS[index % len(COLOURS)], DASHES[turn], MARKERS[turn]


def comparison(runs: Sequence[Run]) -> list[Figure]:
    """Return the charts of a section, in pairs: NME and CNN side by side on equal axes."""
    pairs = (accuracy, forgetting, balance)
    figures = [figure for chart in pairs for figure in with_equal_axes([chart(runs, kind) for kind in KINDS])]
    grown = [parameters(runs)] if any(run.grows for run in runs) else []
    return [*figures, *grown, seconds_per_task(runs), images_per_second(runs)]


def accuracy(runs: Sequence[Run], kind: str) -> Figure:
    """The field's curve: top-1 on all classes seen, after each task."""
    traces = [
        line(i, run, run.measured(kind), lambda row: row[kind]["top1"], "%{y:.2f} %")
        for i, run in enumerate(runs)
        if run.measured(kind)
    ]
    return figure(f"{kind.upper()} accuracy after each task", "top-1 on all classes seen so far", traces, y=PER_CENT)


def forgetting(runs: Sequence[Run], kind: str) -> Figure:
    """How far old tasks fell from their best, after each task."""
    traces = []
    for i, run in enumerate(runs):
        rows = [
            {**row, "drop": drop}
            for row, drop in zip(run.measured(kind), run.forgetting(kind), strict=True)
            if drop is not None
        ]
        if rows:
            traces.append(line(i, run, rows, lambda row: row["drop"], "%{y:.2f} points"))
    y = {"title": {"text": "points lost"}, "rangemode": "tozero"}
    return figure(f"Forgetting, {kind.upper()}", "mean over old tasks of best accuracy less accuracy now", traces, y=y)


def balance(runs: Sequence[Run], kind: str) -> Figure:
    """New classes against old ones: a learner can trade one for the other at equal accuracy."""
    traces = []
    for i, run in enumerate(runs):
        rows = [row for row in run.measured(kind) if row[kind]["old"] is not None]
        if rows:
            new = line(i, run, rows, lambda row: row[kind]["new"], "new classes %{y:.2f} %")
            old = line(i, run, rows, lambda row: row[kind]["old"], "old classes %{y:.2f} %")
            faint = {**old["line"], "dash": "dot"}
            traces += [new, {**old, "line": faint, "marker": {**old["marker"], "symbol": "circle-open"}}]
    about = "filled: classes of the newest task; open, dotted: all older classes"
    return figure(f"New and old classes, {kind.upper()}", about, traces, y=PER_CENT)


def parameters(runs: Sequence[Run]) -> Figure:
    """What a network that grows costs: accuracy after each task against the parameters it is predicted with."""
    traces = []
    for i, run in enumerate(runs):
        rows = [row for row in run.measured("cnn") if "parameters" in row]
        if rows:
            told = line(i, run, rows, lambda row: row["cnn"]["top1"], "%{y:.2f} % by %{x:.3f} M")
            traces.append({**told, "x": [round(row["parameters"] / 1e6, 6) for row in rows]})
    layout = {"xaxis": {"title": {"text": "parameters, M"}, "rangemode": "tozero"}, "yaxis": PER_CENT}
    about = "top-1 of the head on all classes seen, after each task; the head's own parameters left out"
    return {"title": "CNN accuracy and parameters", "about": about, "data": traces, "layout": layout}


def seconds_per_task(runs: Sequence[Run]) -> Figure:
    """What each task took, evaluation and checkpoints included."""
    traces = []
    for i, run in enumerate(runs):
        rows = [{**row, "took": took} for row, took in zip(run.tasks, run.seconds_of_tasks(), strict=True)]
        if rows:
            traces.append(line(i, run, rows, lambda row: round(row["took"], 3), "%{y:.1f} s"))
    y = {"title": {"text": "seconds"}, "rangemode": "tozero"}
    return figure("Time per task", "all stages, evaluation, checkpoints", traces, y=y)


def images_per_second(runs: Sequence[Run]) -> Figure:
    """The speed of training in each task, over all its stages."""
    traces = []
    for i, run in enumerate(runs):
        spent = run.spent()
        rows = []
        for row in run.tasks:
            parts = [value for (task, _), value in spent.items() if task == row["task"]]
            seconds = sum(part.seconds for part in parts)
            if seconds:
                rows.append({**row, "speed": round(sum(part.images for part in parts) / seconds, 1)})
        if rows:
            traces.append(line(i, run, rows, lambda row: row["speed"], "%{y:,.0f} images/s"))
    y = {"title": {"text": "images per second"}, "rangemode": "tozero"}
    return figure("Speed", "training images per second, mean over the stages of a task", traces, y=y)


def line(index: int, run: Run, rows: Sequence[Row], value: Callable[[Row], float], hover: str) -> Figure:
    """One run's curve over the classes seen."""
    colour, dash, marker = style_of(index)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": run.name,
        "meta": index,
        "x": [row["classes"] for row in rows],
        "y": [round(value(row), 4) for row in rows],
        "customdata": [row["task"] + 1 for row in rows],
        "line": {"color": colour, "width": 2, "dash": dash},
        "marker": {"color": colour, "size": 7, "symbol": marker},
        "cliponaxis": False,
        "hovertemplate": f"{hover}, task %{{customdata}}",
    }


def figure(title: str, about: str, traces: Sequence[Figure], **axes: Mapping[str, Any]) -> Figure:
    """Return a chart over the classes seen; one without traces says so on the page."""
    seen = sorted({x for trace in traces for x in trace["x"]})
    xaxis = {"title": {"text": "classes seen"}, **({"tickvals": seen} if len(seen) <= TICKS else {})}
    layout = {"xaxis": xaxis, "yaxis": axes.get("y", {}), "hovermode": "x unified"}
    return {"title": title, "about": about, "data": list(traces), "layout": layout}


def with_equal_axes(figures: Sequence[Figure]) -> list[Figure]:
    """Give charts that are read side by side the same range."""
    values = [y for figure in figures for trace in figure["data"] for y in trace["y"]]
    if not values:
        return list(figures)
    margin = 0.06 * (max(values) - min(values)) or 1.0
    span = [min(values) - margin, max(values) + margin]
    if span[0] < 0.25 * span[1] and min(values) >= 0:
        span[0] = 0.0
    return [{**f, "layout": {**f["layout"], "yaxis": {**f["layout"]["yaxis"], "range": span}}} for f in figures]
