"""The report as one page that opens offline: charts by Plotly, whose script is in the page.

Its Python package brings that script (4.8 MB) and its licence, and nothing else of it is used: a figure is plain data.
"""

import importlib.util
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from daydream import __version__
from daydream.errors import UserError
from daydream.experiment.naming import command_of
from daydream.report.charts import Figure, comparison, style_of
from daydream.report.features import undrawn
from daydream.report.gather import Run, Section, sections
from daydream.report.paired import HEADING, verdicts
from daydream.report.run_charts import charts_of
from daydream.report.summary import MEASURES, lines_of

NEEDS = ("jinja2", "plotly")
HOW = "pip install 'daydream[report]'"


def installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in NEEDS)


def render(runs: Sequence[Run], features: Mapping[str, list[Figure] | str]) -> str:
    """Return the page of these runs; `features` are the feature pictures by a run's path, or why there are none."""
    import jinja2

    loader = jinja2.PackageLoader("daydream.report")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    parts = sections(runs)
    drawn = [{"charts": comparison(part.runs), "runs": [detail(run, features) for run in part.runs]} for part in parts]
    return environment.get_template("page.html").render(
        version=__version__,
        runs=runs,
        sections=[about(part) for part in parts],
        measures=MEASURES,
        paired=HEADING,
        drawn=as_script(drawn),
        plotly=(resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8"),
    )


def about(section: Section) -> dict[str, Any]:
    """Return a section's tables."""
    lines = lines_of(section.runs)
    return {
        "title": section.title,
        "runs": [(run, *style_of(i)) for i, run in enumerate(section.runs)],
        "means": [line for line in lines if len(line.runs) > 1],
        "against_paper": [line for line in lines if line.paper],
        "verdicts": verdicts(lines),
    }


def detail(run: Run, features: Mapping[str, list[Figure] | str]) -> dict[str, Any]:
    """Return what the page shows of one run alone."""
    found = features.get(str(run.path), undrawn(run))
    shown = found if isinstance(found, list) else []
    notes = [] if run.confusion else ["Confusion: not in this run's metrics.jsonl; it is written after the last task."]
    notes += [] if shown else [f"Features: {found}"]
    versions = {**run.config.get("environment", {}), "machine": run.config.get("device", "not known")}
    return {
        "charts": [*charts_of(run), *shown],
        "notes": notes,
        "command": command(run),
        "facts": {"folder": str(run.path), "status": run.status, "protocol": run.protocol, **versions},
        "config": {"run": run.settings, **run.components},
    }


def command(run: Run) -> str:
    """Return the command that repeats a run; a method of one's own may have moved since."""
    try:
        return command_of(run.config)
    except UserError as error:
        return f"# not known: {error}"


def as_script(value: Any) -> str:
    """Return JSON that may stand inside a script element."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
