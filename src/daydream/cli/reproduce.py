"""The command `reproduce`: a table or figure as a grid of runs. Heavy imports wait until it runs."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from daydream.cli import flags
from daydream.cli.common import Json, Quiet, console, stoppable
from daydream.errors import UserError
from daydream.settings import require

if TYPE_CHECKING:
    from daydream.engine.display import StopSwitch
    from daydream.reproduce.cost import Cost
    from daydream.reproduce.jobs import Executor, Job, Outcome
    from daydream.reproduce.plan import Plan
    from daydream.reproduce.protocols import GridSettings
    from daydream.reproduce.runner import Tally

GRIDS = "table1, ablation, piles, counterparts, depth, tradeoffs, features, standin, dream, parts, controls or memory"
DRAWN = ("parts", "memory")
"""Grids of which a picture is drawn."""


class Format(StrEnum):
    text = "text"
    md = "md"


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the command to the app."""
    app.command("reproduce")(reproduce_command(words) if words[:1] == ["reproduce"] else reproduce)


def reproduce_command(words: Sequence[str]) -> Any:
    """Return the command with its flags."""
    from daydream.reproduce.protocols import GridSettings

    return flags.command([flags.Section("grid", "The grid", GridSettings)], reproduce, flags.asks_for_all(words))


@dataclass(frozen=True)
class Shown:
    """How a grid is told of: where, in which form, and whether at all while it runs."""

    screen: Console
    form: Format
    as_json: bool
    quiet: bool

    def say(self, line: str) -> None:
        if not self.quiet:
            self.screen.print(line, highlight=False, markup=False, soft_wrap=True)


def reproduce(
    *,
    grid: Annotated[str, typer.Argument(metavar="GRID", help=f"a table or figure: {GRIDS}", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="folder of all grids of a scale; by default runs/reproduce/SCALE")
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            help="folder of finished runs made elsewhere, or of their results, that count as done; "
            "may be repeated, the first that has a run counts",
        ),
    ] = None,
    classes: Annotated[
        list[str] | None, typer.Option("--class", help="of `features`: a class to draw; may be repeated")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show the runs and what they cost, and stop")] = False,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="show the table, or --cells of it, as it stands, and stop")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="start without asking")] = False,
    form: Annotated[Format, typer.Option("--format", help="the table as text or as markdown")] = Format.text,
    quiet: Quiet = False,
    as_json: Json = False,
    help_all: flags.HelpAll = False,
    values: Annotated[dict[str, Any] | None, typer.Option(hidden=True, parser=json.loads)] = None,
) -> None:
    """Reproduce a table or figure of the paper: plan the runs, say what they cost, run what is left, compare.

    Stopped, it goes on where it was when called again. What is done is not run again, in any grid of the same --out.
    """
    from daydream.reproduce.protocols import GridSettings
    from daydream.reproduce.results import document
    from daydream.settings import from_dict

    assert values is not None
    asked = from_dict(GridSettings, values["grid"])
    shown = Shown(console(stderr=as_json or form is Format.md), form, as_json, quiet)
    plan = planned(grid, asked, out, source or [], classes or [], whole=not no_run)
    if no_run:
        show_table({**document(plan, asked.choices.scale, {}), **draw_grid(plan)}, shown)
        return
    check_before(plan, asked, classes or [])
    with stoppable(SAME) as switch:
        cost = show_plan(plan, shown, dry_run, switch, asked.jobs)
    if dry_run:
        return
    if plan.pending and not yes and not asked.choices.scale.quick:
        ask(len(plan.pending))
    tally = carry_out(plan, cost, asked, shown)
    show_results(plan, asked, tally, classes or [], shown)
    if tally.failures:
        raise typer.Exit(1)


SAME = "the same command goes on from here"


def planned(
    grid: str, asked: "GridSettings", out: Path | None, sources: list[Path], classes: list[str], whole: bool
) -> "Plan":
    """Return what is to be run; the `whole` grid is shown, or only the cells that are asked for."""
    from daydream.reproduce import grids
    from daydream.reproduce.executors import ray
    from daydream.reproduce.imported_results import find_results
    from daydream.reproduce.plan import make_plan

    if asked.engine == "ray":
        ray.require_installed()
    require(not classes or grid == "features", "--class chooses what `features` draws; the other grids draw no class")
    require(
        grid != "standin" or not asked.unlabeled, "--unlabeled: the pile of `standin` is what --root leaves unlabelled"
    )
    require(grid != "features" or not sources, "--from: `features` is drawn from a run's folder: give it as --out")
    folder = out or Path("runs") / "reproduce" / asked.scale
    require(not folder.exists() or folder.is_dir(), f"--out {folder} is a file: name a folder")
    every = grids.build(grid, asked.choices)
    chosen = grids.select(every, asked.words("cells"), asked.words("methods"))
    found = [find_results(source) for source in sources]
    if grid in DRAWN:
        from daydream.report.look import check_picture

        check_picture(Path(f"{grid}.png"))
    orders = asked.choices.scale.orders[: asked.orders]
    return make_plan(grid, every if whole else chosen, chosen, orders, folder, found)


def check_before(plan: "Plan", asked: "GridSettings", classes: list[str]) -> None:
    """Refuse what could not be carried out before anything runs."""
    if any(job.result is None for job in plan.chosen):
        check_pile(plan.chosen)
    if plan.grid == "features":
        check_features(plan, classes)


def carry_out(plan: "Plan", cost: "Cost", asked: "GridSettings", shown: Shown) -> "Tally":
    """Run what is left, one run after the other or several at once."""
    from daydream.reproduce.executors import ray

    at_once, teller = min(asked.jobs, len(plan.pending)), Teller(cost, shown)
    with stoppable(SAME) as switch, ExitStack() as held:
        executor = in_process(shown, switch)
        if asked.engine == "ray":
            executor = ray.OnRay(asked.gpu_share, lambda: switch.asked)
        elif at_once > 1:
            executor = held.enter_context(side_by_side(at_once, asked.device, teller, switch))
        return run_plan(plan, cost, executor, teller)


def check_pile(jobs: "Sequence[Job]") -> None:
    """Refuse a pile that is missing or cannot be read before anything runs."""
    from daydream.data import source
    from daydream.data.unlabeled import load_pile
    from daydream.experiment.config import make_config

    for job in jobs:
        config = make_config(**job.values)
        if config.carried.needs_pile:
            root = Path(config.run.root) if config.run.root else None
            size = getattr(config.data, "image_size", getattr(source(config.run.data), "SIZE", 32))
            load_pile(config.pile, config.run.data, root, config.data, size)
            return


def check_features(plan: "Plan", classes: list[str]) -> None:
    """Refuse a picture that could not be drawn before anything runs for it."""
    from daydream.experiment.config import make_config
    from daydream.report.look import check_picture, choose
    from daydream.reproduce.plan import Sketch

    check_picture(Path("features.png"))
    sketch = Sketch(make_config(**plan.chosen[0].values))
    able = sum(sketch.stream.sizes[: min(sketch.num_tasks, len(sketch.stream) - 1)])
    choose(sketch.stream, able, classes, None)


def show_plan(plan: "Plan", shown: Shown, dry_run: bool, switch: "StopSwitch", jobs: int) -> "Cost":
    """Print what is left to run and what it will cost on this machine."""
    from daydream.reproduce.cost import estimate
    from daydream.reproduce.results import clock

    if dry_run:
        shown = replace(shown, quiet=False)
    say, screen, quiet = shown.say, shown.screen, shown.quiet
    done = len(plan.chosen) - len(plan.pending)
    say(f"{plan.grid}: {len(plan.chosen)} runs, {done} done, {len(plan.pending)} to do, in {plan.out}")
    cost = estimate(plan, say, switch)
    if plan.pending and not quiet:
        table = Table("cell", "run", "steps", "base task", "about")
        for number, wave in enumerate(plan.waves):
            for entry in wave:
                known = entry.job.folder in cost.seconds
                steps = sum(stretch.steps for stretch in entry.stretches if not (number and stretch.shared))
                about = clock(cost.seconds[entry.job.folder]) if known else "unknown"
                base = "shared" if number else "its own"
                table.add_row(entry.job.name, Path(entry.job.folder).name, f"{steps:,}", base, about)
        screen.print(table, highlight=False)
    for kind, reason in cost.failed.items():
        say(f"not timed: {kind}: {reason}")
    say(f"about {clock(cost.total)} in all{' one after the other' if jobs > 1 else ''}, as timed on this machine")
    return cost


def ask(count: int) -> None:
    """Have the user agree, where there is one."""
    if not sys.stdin.isatty():
        raise UserError("there is no terminal to ask at: start with --yes, or look first with --dry-run")
    if not typer.confirm(f"start {count} runs?", err=True):
        raise typer.Exit(0)


def in_process(shown: Shown, switch: "StopSwitch") -> "Executor":
    """Return what carries out one job after the other, here."""
    from daydream.cli.progress import make_display
    from daydream.reproduce.jobs import InProcess

    quiet = shown.quiet or not shown.screen.is_terminal
    return InProcess(lambda: make_display(switch, shown.screen, quiet))


@contextmanager
def side_by_side(at_once: int, device: str, teller: "Teller", switch: "StopSwitch") -> "Iterator[Executor]":
    """Yield what carries out several jobs at once, and see to it that they can share a GPU."""
    from daydream.engine import Hardware
    from daydream.reproduce.executors.mps import shared_gpu
    from daydream.reproduce.executors.processes import SideBySide

    chosen = Hardware.choose(device, "auto", None, None).device
    with shared_gpu(str(chosen), teller.say) as environment:
        yield SideBySide(at_once, environment, lambda: switch.asked, teller.goes_on)


def run_plan(plan: "Plan", cost: "Cost", executor: "Executor", teller: "Teller") -> "Tally":
    """Run what is left, a line for each run that ends."""
    from daydream.reproduce.runner import carry_out

    try:
        plan.runs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {plan.out} cannot be written: {error.strerror}") from error
    cost.keep(plan.out)
    return carry_out(plan, executor, teller.ends)


class Teller:
    """Tells of each run that ends what it gave, and how long the others will take; of several at once, what begins."""

    def __init__(self, cost: "Cost", shown: Shown) -> None:
        self.shown = shown
        self.began, self.total, self.left = time.monotonic(), cost.total, dict(cost.seconds)
        self.running = set[str]()

    def say(self, line: str) -> None:
        self.shown.say(line)

    def goes_on(self, job: "Job", what: str) -> None:
        """Tell what happens to a run that others run beside."""
        self.running.add(job.folder)
        self.say(f"{job.name}: {what}")

    def ends(self, outcome: "Outcome", tally: "Tally") -> None:
        from daydream.reproduce.results import clock

        self.left.pop(outcome.job.folder, None)
        self.running.discard(outcome.job.folder)
        head = f"{tally.done} of {tally.jobs}: {outcome.job.name}"
        if outcome.result is None:
            sys.stderr.write(f"{head} failed: {' '.join(outcome.error.split())}\n")
        else:
            kind = outcome.result["reports"]
            gave = f"average {kind.upper()} {outcome.result[f'average_{kind}']:.2f}"
            self.say(f"{head}: {gave}, {clock(outcome.result['seconds'])}; about {clock(self.rest())} left")

    def rest(self) -> float:
        """Return the seconds that are left at the pace so far, if runs under way are half done."""
        left = sum(seconds / (1 + (folder in self.running)) for folder, seconds in self.left.items())
        spent, done = time.monotonic() - self.began, self.total - left
        return left * (spent / done if done else 1.0)


def show_results(plan: "Plan", asked: "GridSettings", tally: "Tally", classes: list[str], shown: Shown) -> None:
    """Print ours beside the paper's, and draw what a grid has a picture of."""
    from daydream.reproduce.runner import write_results

    found: dict[str, Any] = {**write_results(plan, asked.choices.scale, tally), **draw_grid(plan)}
    drawn = draw_features(plan, classes) if plan.grid == "features" and not tally.failures else None
    show_table({**found, "features": drawn} if drawn else found, shown)
    if shown.as_json:
        return
    if shown.form is Format.text:
        shown.screen.print(f"results: {plan.out / plan.grid / 'results.json'}", highlight=False)
    if drawn:
        from daydream.cli.tables import look_table

        shown.screen.print(look_table(drawn), highlight=False)


def show_table(found: dict[str, Any], shown: Shown) -> None:
    """Print a grid as data or as a table, and where its picture is."""
    from daydream.reproduce.results import markdown_table, text_table

    if shown.as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    if shown.form is Format.md:
        sys.stdout.write(markdown_table(found))
    else:
        shown.screen.print(text_table(found), highlight=False)
    if "picture" in found:
        shown.screen.print(f"picture: {found['picture']}", highlight=False, soft_wrap=True)


def draw_features(plan: "Plan", classes: list[str]) -> dict[str, Any]:
    """Draw Figure 1b from the run of the first class order."""
    from daydream.report.look import look_at

    return look_at(Path(plan.chosen[0].folder), classes, None, plan.out / plan.grid / "features.png")


def draw_grid(plan: "Plan") -> dict[str, str]:
    """Draw what is finished of a grid that has a picture; return where."""
    from daydream.reproduce import memory_picture, picture

    draw = {"parts": picture.draw, "memory": memory_picture.draw}.get(plan.grid)
    place = plan.out / plan.grid / f"{plan.grid}.png"
    return {"picture": str(place)} if draw and draw(plan, place) else {}
