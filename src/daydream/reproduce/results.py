"""A grid's results: ours over the class orders run, beside the paper's or each other, as data and as tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from daydream.experiment.config import environment
from daydream.methods import METHODS, load_method
from daydream.reproduce import paper
from daydream.reproduce.gains import averages, spread, verdicts
from daydream.reproduce.grids import OWN, REMARKS
from daydream.reproduce.jobs import Job, Outcome
from daydream.reproduce.own_grids import BESIDE
from daydream.reproduce.plan import Plan
from daydream.reproduce.protocols import Cell, Scale


@dataclass(frozen=True)
class Ours:
    """What the runs of a cell gave."""

    accuracy: str
    """nme or cnn."""
    mean: float
    deviation: float | None
    """Standard deviation over class orders; None for one."""
    orders: int


def summarize(results: Sequence[Mapping[str, Any]]) -> Ours | None:
    """Return mean and deviation of the accuracy a method reports, averaged over tasks; None where nothing was run."""
    if not results:
        return None
    kind = results[0]["reports"]
    found = [result[f"average_{kind}"] for result in results]
    return Ours(kind, *spread(found), len(found))


def document(plan: Plan, scale: Scale, failures: Mapping[str, Outcome]) -> dict[str, Any]:
    """Return all there is to know about a grid as it stands, as plain data."""
    return {
        "grid": plan.grid,
        "scale": scale.name,
        "orders": list(plan.orders),
        "protocol": protocol(plan, scale),
        "cells": [_cell(cell, plan, scale, failures) for cell in plan.cells],
        "statements": list(paper.statements(plan.grid)),
        "verdicts": verdicts(plan),
        "environment": environment(),
    }


def _cell(cell: Cell, plan: Plan, scale: Scale, failures: Mapping[str, Outcome]) -> dict[str, Any]:
    jobs = plan.jobs[cell.name]
    runs = [_run(job, plan.out, failures.get(job.folder)) for job in jobs]
    ours = summarize([job.result for job in jobs if job.result is not None])
    whole = ours is not None and not any(job.values["run"]["tasks"] for job in jobs)
    comparable = scale.comparable and whole and cell.budget in ("total", "none")
    return {
        "name": cell.name,
        "row": cell.row,
        "method": cell.method,
        "steps": cell.steps,
        "memory": jobs[0].values["run"]["memory"] if jobs and cell.memory else cell.memory,
        "accuracy": ours and ours.accuracy,
        "mean": ours and round(ours.mean, 4),
        "deviation": None if ours is None or ours.deviation is None else round(ours.deviation, 4),
        "orders": ours.orders if ours else 0,
        "averages": averages(jobs, plan.jobs.get(cell.beside, [])),
        "beside": cell.beside,
        "paper": cell.paper,
        "paper_mark": cell.mark,
        "paper_budget": cell.budget,
        "paper_memory": cell.memory,
        "difference": round(ours.mean - cell.paper, 4) if comparable and ours and cell.paper is not None else None,
        "state": _state(jobs, ours, runs),
        "runs": runs,
    }


def _run(job: Job, out: Path, failure: Outcome | None) -> dict[str, Any]:
    result = job.result
    where = {"result": job.made} if job.made else {"folder": str(Path(job.folder).relative_to(out))}
    found: dict[str, Any] = {"order": job.values["run"]["order"], **where}
    if result is not None:
        keys = ("average_nme", "average_cnn", "last_nme", "last_cnn", "seconds", "parameters")
        grown = {"mean_parameters": result.get("mean_parameters", result["parameters"])}
        known = {**{key: result[key] for key in keys}, **grown, "device": result["config"]["device"]}
        return {**found, **known}
    return {**found, "error": failure.error, "trace": failure.trace} if failure else found


def _state(jobs: Sequence[Job], ours: Ours | None, runs: Sequence[Mapping[str, Any]]) -> str:
    if not jobs:
        return "not implemented"
    if any("error" in run for run in runs):
        return "failed"
    done = ours.orders if ours else 0
    if done == len(jobs):
        return "done"
    return "not run" if not done else f"{done} of {len(jobs)} orders"


def protocol(plan: Plan, scale: Scale) -> str:
    """Say in one line what was run, so that nobody compares what does not compare."""
    runs = [job.values for jobs in plan.jobs.values() for job in jobs]
    run = runs[0]["run"]
    counts = {values["run"]["steps"] for values in runs}
    steps = f" and {min(counts)} steps" if len(counts) == 1 else ""
    sizes = sorted({values["run"]["memory"] for values in runs}, reverse=True)
    *most, least = (f"{size:,}" for size in sizes)
    memory = f"{', '.join(most)} and {least}" if most else least
    rule = "of each class" if run["budget"] == "per_class" else "by the rule total for every method"
    limits = {values["run"]["tasks"] for values in runs} - {None}
    tasks = f", the first {min(limits)} tasks" if limits else ""
    labelled = runs[0]["data"].get("labelled")
    piles = {values.get("pile", {}).get("unlabeled", "").partition(":")[0] for values in runs} - {""}
    pile = f"{' and '.join(sorted(piles))} the pile" if piles else "the others the pile"
    data = f"{run['data']}, classes {labelled} labelled and {pile}" if labelled else run["data"]
    line = (
        f"{data}, {run['base']} base classes{steps}, memory {memory} {rule}, "
        f"{run['backbone']}, seed {run['seed']}{tasks}"
    )
    line += f"; {REMARKS[plan.grid]}" if plan.grid in REMARKS else ""
    if not scale.comparable:
        return f"{line}; a miniature: its numbers do not compare with the paper's"
    return f"{line}; no difference to the paper is given, its runs see all tasks" if limits else line


def text_table(found: Mapping[str, Any]) -> RenderableType:
    """Show a grid for the terminal."""
    heads, rows = _lines(found)
    table = Table(*heads)
    for row in rows:
        table.add_row(*row)
    return Group(Text(_title(found), style="bold"), Text(found["protocol"]), table, *map(Text, _remarks(found)))


def markdown_table(found: Mapping[str, Any]) -> str:
    """Write a grid for a document."""
    heads, rows = _lines(found)
    lines = [f"**{_title(found)}.** {found['protocol']}.", ""]
    lines += [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]
    lines += ["", *(f"- {remark}" for remark in _remarks(found))]
    return "\n".join(lines).rstrip() + "\n"


def _title(found: Mapping[str, Any]) -> str:
    return f"{found['grid']}, scale {found['scale']}, class orders {', '.join(found['orders'])}"


def _lines(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of the table: steps and memory only where they vary."""
    cells = found["cells"]
    if found["grid"] in OWN:
        return _own_lines(cells)
    varying = [key for key in ("steps", "memory") if len({cell[key] for cell in cells}) > 1]
    heads = ["cell", "row", *varying, "accuracy", "ours", "the paper", "difference", "state"]
    rows = []
    for cell in cells:
        rows.append(
            [
                cell["name"],
                cell["row"],
                *("–" if cell[key] is None else f"{cell[key]:,}" for key in varying),
                (cell["accuracy"] or "–").upper(),
                _with_deviation(cell["mean"], cell["deviation"]),
                "–" if cell["paper"] is None else f"{cell['paper']:.2f}{cell['paper_mark']}",
                "–" if cell["difference"] is None else f"{cell['difference']:+.2f}",
                cell["state"],
            ]
        )
    return heads, rows


def _own_lines(cells: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of a table of our own: both accuracies, and what sets a variant apart."""
    kept = ["memory"] if len({cell["memory"] for cell in cells}) > 1 else []
    heads = ["cell", "row", *kept, "NME", "difference", "CNN", "difference", "state"]
    rows = []
    for cell in cells:
        numbers = []
        for kind in ("nme", "cnn"):
            found = cell["averages"][kind]
            numbers.append(_with_deviation(found["mean"], found["deviation"]))
            numbers.append(_with_deviation(found["difference_mean"], found["difference_error"], "+"))
        rows.append([cell["name"], cell["row"], *(str(cell[key]) for key in kept), *numbers, cell["state"]])
    return heads, rows


def _with_deviation(mean: float | None, deviation: float | None, sign: str = "") -> str:
    if mean is None:
        return "–"
    return f"{mean:{sign}.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def _remarks(found: Mapping[str, Any]) -> list[str]:
    """Return what a reader must know beside the numbers."""
    lines = [f"the paper: {statement}" for statement in found["statements"]]
    if found["grid"] in OWN:
        lines.append(
            f"a difference is to {BESIDE[found['grid']]}, order by order where both were run; after ± stands its "
            "standard error, after an average the standard deviation over orders"
        )
    lines += found["verdicts"]
    lines += _of_the_paper(found)
    for cell in found["cells"]:
        for run in cell["runs"]:
            if "error" in run:
                lines.append(f"failed: {cell['name']}, order {run['order']}: {' '.join(run['error'].split())}")
    return lines


RULES = {
    "per_class": "{rows}: the paper's numbers belong to runs with 20 exemplars per class, so no difference is given",
    "unstated": "{rows}: the memory rule behind the paper's numbers is not stated, so no difference is given",
}
MARKS = {"†": "re-run by the paper's authors with public code", "‡": "their method with MixUp for its generators"}


def _of_the_paper(found: Mapping[str, Any]) -> list[str]:
    """Return what must be known of the paper's numbers in a grid, where it has any."""
    printed = [cell for cell in found["cells"] if cell["paper"] is not None]
    if not printed:
        return []
    lines = ["the paper's numbers are means over three class orders"]
    if any(cell["method"] in ("imagine", "mixup", "dream") for cell in printed):
        lines.append(
            "the paper's pile is ImageNet, 1.28 million images of 1,000 classes; ours is what --unlabeled names"
        )
    for budget, words in RULES.items():
        rows = dict.fromkeys(_named(cell, printed) for cell in printed if cell["paper_budget"] == budget)
        lines += [words.format(rows=", ".join(rows))] if rows else []
    read = dict.fromkeys(c["row"] for c in printed if c["method"] in METHODS and load_method(c["method"]).reading)
    lines += [f"{row}: ours is a reading of a paper without code, no reproduction of its numbers" for row in read]
    marks = {cell["paper_mark"] for cell in printed}
    return lines + [f"{mark} {words}" for mark, words in MARKS.items() if mark in marks]


def _named(cell: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    """Name a cell's row, with its memory where the row has numbers of several memory rules."""
    rules = {other["paper_budget"] for other in others if other["row"] == cell["row"]}
    return cell["row"] if len(rules) == 1 else f"{cell['row']} with {cell['paper_memory']:,}"


def clock(seconds: float) -> str:
    """Say a time in words short enough for a plan."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
