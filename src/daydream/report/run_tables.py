"""Tables of runs as text: one run, or several beside each other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from daydream import atomic
from daydream.experiment.naming import command_of, data_name, summary_of
from daydream.storage.run_folder import RunFolder, resume_command


def number(value: float | None, places: int = 2) -> str:
    return "–" if value is None else f"{value:.{places}f}"


def comparison_table(results: Sequence[tuple[str, dict[str, Any], Path]]) -> Table:
    """Show finished runs beside each other."""
    table = Table(
        "method", "avg NME", "avg CNN", "last NME", "last CNN", "forgetting NME", "forgetting CNN", "seconds", "run"
    )
    for name, result, path in results:
        keys = ("average_nme", "average_cnn", "last_nme", "last_cnn", "forgetting_nme", "forgetting_cnn")
        table.add_row(name, *(number(result[key]) for key in keys), number(result["seconds"], 0), str(path))
    return table


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
        mean = result.get("mean_parameters")
        if mean not in (None, result["parameters"]):
            each = ", ".join(f"{task['parameters']:,}" for task in result.get("tasks", []) if "parameters" in task)
            counts += f"; task by task {each}, their mean {mean:,}"
        lines.append(Text(f"{counts}, {result['seconds']:.0f} s, {config['device']}"))
    else:
        lines.append(Text(f"not finished: {resume_command(run.path)}"))
    return Group(*lines)


def as_text(table: RenderableType, width: int = 120) -> str:
    """Return a table as plain text."""
    console = Console(width=width, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def write_table(run: RunFolder) -> Path:
    """Write a run's own table beside its result; return where."""
    path = run.path / "table.txt"
    atomic.write_text(path, as_text(run_table(run)))
    return path
