"""Tables for the terminal: a plan, a run, a list of runs, a comparison."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from daydream.errors import UserError
from daydream.experiment.naming import command_of, data_name, summary_of, variants
from daydream.storage.run_folder import RunFolder, resume_command

if TYPE_CHECKING:
    from daydream.experiment.experiment import Experiment

log = logging.getLogger("daydream")


def number(value: float | None, places: int = 2) -> str:
    return "–" if value is None else f"{value:.{places}f}"


def plan_table(experiment: "Experiment") -> RenderableType:
    """Show the whole plan of a run: tasks, stages, steps, exemplars."""
    table = Table("task", "classes", "images", "exemplars before", "stage", "epochs", "steps an epoch", "steps in all")
    for row in experiment.plan():
        for i, stage in enumerate(row.stages):
            cells = (
                [str(row.task + 1), str(row.classes), f"{row.images:,}", f"{row.exemplars:,}"] if i == 0 else [""] * 4
            )
            count = (
                [str(stage.epochs), f"{stage.steps:,}", f"{stage.epochs * stage.steps:,}"] if stage.epochs else [""] * 3
            )
            table.add_row(*cells, stage.name, *count)
    body, head = experiment.parameters()
    report = f"reports {experiment.method.reports.upper()} accuracy (CNN and NME are both measured)"
    closing = f"{experiment.num_steps:,} steps; {body:,} parameters at inference and {head:,} in the head; {report}"
    return Group(table, Text(f"{closing}; {experiment.hardware.describe()}"))


def summary_or_none(run: RunFolder) -> dict[str, Any] | None:
    """Return a run's line in a list; one whose files are damaged is named, and its neighbours are still listed."""
    try:
        return summary_of(run)
    except UserError as error:
        log.warning("%s is left out: %s", run.path, error)
        return None


def list_table(runs: Sequence[tuple[RunFolder, Mapping[str, Any]]]) -> Table:
    """Show runs, a line each; accuracy as average / last."""
    table = Table("run", "method", "protocol", "memory", "seed", "status", "NME", "CNN")
    for (_, row), method in zip(runs, variants([run.config for run, _ in runs]), strict=True):
        tests = "" if row["evaluated_on"] == "test" else " (validation)"
        table.add_row(
            row["run"],
            method,
            f"{row['data']} {row['base']} + {row['steps']} steps, {row['order']}{tests}",
            f"{row['memory']} {row['budget']}",
            str(row["seed"]),
            row["status"],
            *(f"{number(row[f'average_{kind}'])} / {number(row[f'last_{kind}'])}" for kind in ("nme", "cnn")),
        )
    return table


def comparison_table(results: Sequence[tuple[str, dict[str, Any], Path]]) -> Table:
    """Show finished runs beside each other."""
    table = Table(
        "method", "avg NME", "avg CNN", "last NME", "last CNN", "forgetting NME", "forgetting CNN", "seconds", "run"
    )
    for name, result, path in results:
        keys = ("average_nme", "average_cnn", "last_nme", "last_cnn", "forgetting_nme", "forgetting_cnn")
        table.add_row(name, *(number(result[key]) for key in keys), number(result["seconds"], 0), str(path))
    return table


def look_table(found: Mapping[str, Any]) -> RenderableType:
    """Show what `daydream look` measured, a line per class and one over all."""
    heads = (
        "class", "distance to real mean", "spread", "of exemplars", "of real data", "classified as its class",
        "nearest to its class",
    )  # fmt: skip
    table = Table(*heads)
    for name, row in found["classes"].items():
        table.add_row(name, *look_cells(row))
    table.add_section()
    table.add_row("overall", *look_cells(found["overall"]))
    return Group(
        Text(f"{found['run']}, {found['stands']}: counterparts, by the run's current network", style="bold"),
        Text("distances between normalised features (0 to 2); a spread is the mean distance to the own class mean"),
        table,
        Text(f"picture: {found['picture']}"),
    )


def look_cells(row: Mapping[str, float]) -> list[str]:
    keys = ("distance", "spread", "exemplar_spread", "real_spread")
    shares = (f"{number(row[key], 1)} %" if key in row else "–" for key in ("accuracy", "nearest"))
    return [*(number(row[key], 3) for key in keys), *shares]


def print_run(screen: Console, run: RunFolder, *lines: str) -> None:
    """Print one run, and below it its command on one line, however long, so that it can be copied."""
    screen.print(run_table(run), *lines, sep="\n", highlight=False)
    screen.print(command_of(run.config), style="dim", soft_wrap=True, highlight=False)


def run_table(run: RunFolder) -> RenderableType:
    """Show one run: what it is, its tasks, its averages."""
    config, result = run.config, run.result
    row = summary_of(run)
    table = Table("task", "classes", "exemplars", "CNN", "new", "old", "top-5", "NME", "new", "old", "top-5")
    for task in [r for r in run.metrics() if r["kind"] == "task"]:
        cells = [str(task["task"] + 1), str(task["classes"]), str(task["exemplars"])]
        for kind in ("cnn", "nme"):
            found = task[kind] or {}
            cells += [number(found.get(key)) for key in ("top1", "new", "old", "top5")]
        table.add_row(*cells)
    title = f"{row['method']} on {data_name(config)}: {row['base']} classes + {row['steps']} steps, "
    title += f"order {row['order']}, "
    title += f"memory {row['memory']} {row['budget']}, {row['backbone']}, seed {row['seed']}, {row['status']}"
    lines: list[RenderableType] = [
        Text(title, style="bold"),
        Text(f"accuracy in per cent on {row['evaluated_on']} images"),
        table,
    ]
    if result:
        for name in ("nme", "cnn"):
            values = (result[f"average_{name}"], result[f"last_{name}"], result[f"forgetting_{name}"])
            average, last, drop = map(number, values)
            lines.append(Text(f"{name.upper()}: average {average}, last {last}, forgetting {drop}"))
        counts = f"{result['parameters']:,} parameters at inference and {result['head_parameters']:,} in the head"
        if result.get("mean_parameters", result["parameters"]) != result["parameters"]:
            each = ", ".join(f"{task['parameters']:,}" for task in result["tasks"])
            counts += f"; task by task {each}, their mean {result['mean_parameters']:,}"
        lines.append(Text(f"{counts}, {result['seconds']:.0f} s, {config['device']}"))
    else:
        lines.append(Text(f"not finished: {resume_command(run.path)}"))
    return Group(*lines)
