"""`daydream run` with --orders or --seeds: several runs of one configuration, and their mean."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from rich.table import Table

from daydream.cli.common import console, free_folder, stoppable
from daydream.errors import UserError
from daydream.escapes import visible
from daydream.settings import require

if TYPE_CHECKING:
    from daydream.experiment.config import Config
    from daydream.experiment.together import Ended, Member


class Wanted(NamedTuple):
    """The flags that ask for several runs."""

    orders: int | None
    seeds: str
    together: bool


def run_members(config: "Config", wanted: Wanted, out: str, dry_run: bool, quiet: bool, as_json: bool) -> None:
    """Train a run for each class order and seed; print each and their mean."""
    from daydream.engine.distributed import team
    from daydream.experiment.config import RunSettings
    from daydream.experiment.naming import method_name
    from daydream.experiment.together import first_orders, make_members
    from daydream.report import write_own_page

    chosen, count = config.run, wanted.orders
    require(
        count is not None or bool(wanted.seeds),
        "--together trains several runs side by side: name them with --orders N or --seeds N,N,...",
    )
    require(team().size == 1, "--orders and --seeds train their runs in one process: leave out torchrun")
    require(
        count is None or chosen.order == "auto", f"--order {chosen.order} and --orders {count}: give one of the two"
    )
    require(
        not wanted.seeds or chosen.seed == RunSettings().seed,
        f"--seed {chosen.seed} and --seeds {wanted.seeds}: give one of the two",
    )
    orders = () if count is None else first_orders(chosen.data, count, part=bool(getattr(config.data, "labelled", "")))
    seeds = numbers(wanted.seeds) if wanted.seeds else ()
    parts = [*([f"{len(orders)}orders"] if orders else []), *([f"{len(seeds)}seeds"] if seeds else [])]
    name = "-".join([chosen.data, method_name(chosen.method).replace(".py:", "-"), *parts])
    folder = Path(out) if out else free_folder(Path("runs"), name)
    members = make_members(config, orders, seeds, folder)
    if dry_run:
        show_plan(members)
        return
    outcomes = train(members, wanted.together, folder, quiet, as_json)
    for member in members:
        if outcomes[member.name].result is not None:
            write_own_page(member.folder)
    show(members, outcomes, quiet, as_json)
    if any(outcome.result is None for outcome in outcomes.values()):
        raise typer.Exit(1)


def numbers(text: str) -> tuple[int, ...]:
    """Read the seeds."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words) or len({int(word) for word in words}) < len(words):
        raise UserError(f"--seeds {text} must be different whole numbers separated by commas, e.g. 1,2,3")
    return tuple(map(int, words))


def show_plan(members: "Sequence[Member]") -> None:
    """Print the runs, and the plan that is the same for all of them."""
    from daydream.cli.tables import plan_table
    from daydream.experiment.naming import headline

    lines = [f"{member.folder}: {headline(member.experiment)}" for member in members]
    console().print(*lines, plan_table(members[0].experiment), sep="\n", highlight=False)


def train(members: "Sequence[Member]", together: bool, folder: Path, quiet: bool, as_json: bool) -> "dict[str, Ended]":
    """Train with progress and signals in place."""
    from daydream.cli.progress import Beside, Shared, make_display
    from daydream.experiment.together import train_members

    with stoppable(f"the same command with --out {folder} goes on from here") as switch:
        shared = Shared(make_display(switch, console(stderr=as_json), quiet))
        try:
            return train_members(members, together, lambda member: Beside(shared, member.name))
        finally:
            shared.shown.close()


def show(members: "Sequence[Member]", outcomes: "Mapping[str, Ended]", quiet: bool, as_json: bool) -> None:
    """Print what every run gave, their mean and standard deviation, and what went wrong."""
    from daydream.report.summary import MEASURES, spread

    for name, outcome in outcomes.items():
        if outcome.result is None:
            sys.stderr.write(f"{name} failed: {visible(' '.join(outcome.error.split()))}\n")
    results = [outcome.result for outcome in outcomes.values() if outcome.result is not None]
    spreads = {key: spread([result[key] for result in results]) for key in MEASURES if all_know(key, results)}
    if as_json:
        rows = [
            {"run": str(member.folder), "result": outcomes[member.name].result, "error": outcomes[member.name].error}
            for member in members
        ]
        means: dict[str, Any] = {key: asdict(found) for key, found in spreads.items()}
        sys.stdout.write(json.dumps({"runs": rows, "means": means}) + "\n")
        return
    if quiet:
        return
    table = Table("run", "order", "seed", *MEASURES.values(), "seconds")
    for member in members:
        run, result = member.experiment.config.run, outcomes[member.name].result
        cells = ["failed"] if result is None else [cell(result[key]) for key in (*MEASURES, "seconds")]
        table.add_row(str(member.folder), run.order, str(run.seed), *cells)
    if results:
        table.add_section()
        cells = [spreads[key].text() if key in spreads else "–" for key in MEASURES]
        table.add_row(f"mean of {len(results)}", "", "", *cells)
    console().print(table, highlight=False)


def all_know(measure: str, results: Sequence[Mapping[str, Any]]) -> bool:
    return bool(results) and all(result[measure] is not None for result in results)


def cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
