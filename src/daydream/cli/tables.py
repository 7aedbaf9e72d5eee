"""Tables for the terminal: a plan, a run, a list of runs, a comparison."""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from daydream.errors import UserError
from daydream.experiment.naming import summary_of, variants
from daydream.report.run_tables import number
from daydream.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from daydream.experiment.experiment import Experiment
    from daydream.report.compare import Comparison

log = logging.getLogger("daydream")


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
    kept = experiment.method.keeps_exemplars
    measured = "CNN and NME are both measured" if kept else "NME is not measured: no exemplars are kept"
    report = f"reports {experiment.method.reports.upper()} accuracy ({measured})"
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


def compared_table(found: "Comparison") -> RenderableType:
    """Show two sides of runs, what sets them apart, and the verdicts."""
    table = Table("accuracy", "A", "B", "B less A", "with 95 % between")
    for kind, one in found.found.items():
        a, b = found.means[kind]
        between = "–" if one.interval is None else "{:+.2f} and {:+.2f}".format(*one.interval)
        table.add_row(f"average {kind.upper()}", number(a), number(b), one.text(), between)
    lines = [f"A: {found.names[0]}; B: {found.names[1]}; {found.pairs} paired by class order and seed"]
    lines += [f"they differ in {name}: {a} in A, {b} in B" for name, (a, b) in found.differs.items()]
    lines += [
        f"{len(runs)} of {side} left out, without a partner: {', '.join(runs)}"
        for side, runs in zip("AB", found.alone, strict=True)
        if runs
    ]
    verdicts = [Text(one.verdict(kind.upper()), style="bold") for kind, one in found.found.items()]
    return Group(*map(Text, lines), table, *verdicts)
