"""The command `reproduce`: a table or figure as a grid of runs. Heavy imports wait until it runs."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from daydream.cli.models import Json, Quiet
from daydream.cli.screen import console
from daydream.errors import UserError
from daydream.settings import require

if TYPE_CHECKING:
    from daydream.experiment.progress import StopSwitch
    from daydream.reproduce.cost import Cost
    from daydream.reproduce.jobs import Executor, Job, Outcome
    from daydream.reproduce.plan import Plan
    from daydream.reproduce.protocols import Cell, Choices
    from daydream.reproduce.runner import Tally

GRIDS = "table1, ablation, piles, counterparts, depth, tradeoffs, features, standin, dream or parts"


class ScaleName(StrEnum):
    full = "full"
    small = "small"
    smoke = "smoke"


class EngineName(StrEnum):
    process = "process"
    ray = "ray"


class Format(StrEnum):
    text = "text"
    md = "md"


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("reproduce")(reproduce)


def reproduce(
    grid: Annotated[str, typer.Argument(metavar="GRID", help=f"a table or figure: {GRIDS}", show_default=False)],
    scale: Annotated[
        ScaleName,
        typer.Option(
            help="full: the paper's protocol on CIFAR-100; small: 30 of its classes, the others the pile, and a small "
            "network, for a CPU; smoke: in miniature on shapes, in minutes"
        ),
    ] = ScaleName.full,
    root: Annotated[str, typer.Option(help="folder or archive of CIFAR-100; of `standin`, of Tiny-ImageNet")] = "",
    unlabeled: Annotated[str, typer.Option(help="the pile, e.g. imagenet32:DIR: see `daydream run --help`")] = "",
    out: Annotated[
        Path | None, typer.Option(help="folder of all grids of a scale; by default runs/reproduce/SCALE")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="folder of finished runs made elsewhere, or of their results, that count as done"),
    ] = None,
    cells: Annotated[str, typer.Option(help="only these cells: names or patterns, e.g. 'imagine-*,ucir-5-2000'")] = "",
    methods: Annotated[str, typer.Option(help="only these methods, separated by commas")] = "",
    orders: Annotated[int, typer.Option(help="class orders to run and average over, 1 to 3: the paper's own")] = 1,
    tasks: Annotated[
        int | None,
        typer.Option(help="stop each run after so many tasks; by default 4 for piles, counterparts, depth, tradeoffs"),
    ] = None,
    pile_classes: Annotated[
        str, typer.Option(help="of `piles`: the numbers of classes", metavar="N,N,...")
    ] = "500,300,100",
    classes: Annotated[
        list[str] | None, typer.Option("--class", help="of `features`: a class to draw; may be repeated")
    ] = None,
    seed: Annotated[int, typer.Option(help="seed of every run")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")] = "auto",
    precision: Annotated[str, typer.Option(help="auto, bf16, tf32 or fp32: see `daydream run --help`")] = "auto",
    compiles: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="compile the network; by default on a GPU only")
    ] = None,
    engine: Annotated[
        EngineName,
        typer.Option(help="process: on this machine; ray: on the cluster RAY_ADDRESS names, or on a local one"),
    ] = EngineName.process,
    jobs: Annotated[int, typer.Option(help="runs at once on this machine, each in its own process", metavar="N")] = 1,
    gpu_share: Annotated[float, typer.Option(help="with --engine ray: how much of a GPU a run is given")] = 1.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show the runs and what they cost, and stop")] = False,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="show the table, or --cells of it, as it stands, and stop")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="start without asking")] = False,
    form: Annotated[Format, typer.Option("--format", help="the table as text or as markdown")] = Format.text,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Reproduce a table or figure of the paper: plan the runs, say what they cost, run what is left, compare.

    Stopped, it goes on where it was when called again. What is done is not run again, in any grid of the same --out.
    """
    from daydream.reproduce import grids, protocols
    from daydream.reproduce.executors import ray as ray_engine
    from daydream.reproduce.imported_results import find_results
    from daydream.reproduce.plan import make_plan
    from daydream.reproduce.results import document

    choices = protocols.Choices(
        scale=protocols.SCALES[scale],
        root=root,
        unlabeled=unlabeled,
        tasks=tasks,
        seed=seed,
        device=device,
        precision=precision,
        compile=compiles,
        pile_classes=numbers(pile_classes),
    )
    require(jobs >= 1, f"--jobs {jobs} must be at least 1: the runs at once on this machine")
    require(jobs == 1 or engine is EngineName.process, "--jobs is for this machine; with --engine ray use --gpu-share")
    require(gpu_share == 1 or engine is EngineName.ray, "--gpu-share is for --engine ray; here use --jobs")
    require(gpu_share > 0, f"--gpu-share {gpu_share} must be above 0, e.g. 0.25 for four runs on a GPU")
    if engine is EngineName.ray:
        ray_engine.require_installed()
    require(1 <= orders <= 3, f"--orders {orders} must be 1, 2 or 3: the paper has three class orders")
    require(not classes or grid == "features", "--class chooses what `features` draws; the other grids draw no class")
    require(grid != "standin" or not unlabeled, "--unlabeled: the pile of `standin` is what --root leaves unlabelled")
    require(grid != "features" or not source, "--from: `features` is drawn from a run's folder: give it as --out")
    folder = out or Path("runs") / "reproduce" / scale.value
    require(not folder.exists() or folder.is_dir(), f"--out {folder} is a file: name a folder")
    every = grids.build(grid, choices)
    chosen = grids.select(every, words(cells), words(methods))
    found = find_results(source) if source else None
    shown = chosen if no_run else every
    plan = make_plan(grid, shown, chosen, choices.scale.orders[:orders], folder, found)
    screen = console(stderr=as_json or form is Format.md)
    if grid == "parts":
        from daydream.report.look import check_picture

        check_picture(Path("parts.png"))
    if no_run:
        show_table({**document(plan, choices.scale, {}), **draw_parts(plan)}, screen, form, as_json)
        return
    if any(job.result is None for job in plan.chosen):
        check_pile(choices, chosen)
    if grid == "features":
        check_features(plan, classes or [])
    with stoppable() as switch:
        cost = show_plan(plan, screen, quiet and not dry_run, switch, jobs)
    if dry_run:
        return
    if plan.pending and not yes and not choices.scale.quick:
        ask(len(plan.pending))
    at_once, teller = min(jobs, len(plan.pending)), Teller(cost, screen, quiet)
    with stoppable() as switch, ExitStack() as held:
        executor = in_process(screen, quiet, switch)
        if engine is EngineName.ray:
            executor = ray_engine.OnRay(gpu_share, lambda: switch.asked)
        elif at_once > 1:
            executor = held.enter_context(side_by_side(at_once, device, teller, switch))
        tally = run_plan(plan, cost, executor, teller)
    show_results(plan, choices, tally, classes or [], screen, form, as_json)
    if tally.failures:
        raise typer.Exit(1)


@contextmanager
def stoppable() -> "Iterator[StopSwitch]":
    """Let Ctrl-C and SIGTERM stop what is inside after a checkpoint, and then end the command."""
    from daydream.engine import Interrupted
    from daydream.experiment.progress import stop_switch

    with stop_switch() as switch:
        try:
            yield switch
        except Interrupted as stop:
            sys.stderr.write("stopped; the same command goes on from here\n")
            raise typer.Exit(143 if switch.signal == signal.SIGTERM else 130) from stop


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str) -> tuple[int, ...]:
    found = words(text)
    if not found or not all(word.isdecimal() and int(word) for word in found):
        raise UserError(f"--pile-classes {text} must be whole numbers above 0, separated by commas")
    return tuple(map(int, found))


def check_pile(choices: "Choices", cells: "list[Cell]") -> None:
    """Refuse a pile that is missing or cannot be read before anything runs."""
    from daydream.data import source
    from daydream.data.unlabeled import load_pile
    from daydream.experiment.config import make_config

    for cell in cells:
        if cell.values and make_config(**cell.values).needs_pile:
            config = make_config(**{**cell.values, "pile": {"unlabeled": choices.unlabeled}})
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


def show_plan(plan: "Plan", screen: Console, quiet: bool, switch: "StopSwitch", jobs: int) -> "Cost":
    """Print what is left to run and what it will cost on this machine."""
    from daydream.reproduce.cost import estimate
    from daydream.reproduce.results import clock

    def say(line: str) -> None:
        if not quiet:
            screen.print(line, highlight=False, markup=False, soft_wrap=True)

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


def in_process(screen: Console, quiet: bool, switch: "StopSwitch") -> "Executor":
    """Return what carries out one job after the other, here."""
    from daydream.cli.progress import make_progress
    from daydream.reproduce.jobs import InProcess

    return InProcess(lambda: make_progress(switch, screen, quiet or not screen.is_terminal))


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

    def __init__(self, cost: "Cost", screen: Console, quiet: bool) -> None:
        self.screen, self.quiet = screen, quiet
        self.began, self.total, self.left = time.monotonic(), cost.total, dict(cost.seconds)
        self.running = set[str]()

    def say(self, line: str) -> None:
        if not self.quiet:
            self.screen.print(line, highlight=False, markup=False, soft_wrap=True)

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


def show_results(
    plan: "Plan",
    choices: "Choices",
    tally: "Tally",
    classes: list[str],
    screen: Console,
    form: Format,
    as_json: bool,
) -> None:
    """Print ours beside the paper's, and draw what a grid has a picture of."""
    from daydream.reproduce.runner import write_results

    found: dict[str, Any] = {**write_results(plan, choices.scale, tally), **draw_parts(plan)}
    drawn = draw_features(plan, classes) if plan.grid == "features" and not tally.failures else None
    show_table({**found, "features": drawn} if drawn else found, screen, form, as_json)
    if as_json:
        return
    if form is Format.text:
        screen.print(f"results: {plan.out / plan.grid / 'results.json'}", highlight=False)
    if drawn:
        from daydream.cli.tables import look_table

        screen.print(look_table(drawn), highlight=False)


def show_table(found: dict[str, Any], screen: Console, form: Format, as_json: bool) -> None:
    """Print a grid as data or as a table, and where its picture is."""
    from daydream.reproduce.results import markdown_table, text_table

    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    if form is Format.md:
        sys.stdout.write(markdown_table(found))
    else:
        screen.print(text_table(found), highlight=False)
    if "picture" in found:
        screen.print(f"picture: {found['picture']}", highlight=False, soft_wrap=True)


def draw_features(plan: "Plan", classes: list[str]) -> dict[str, Any]:
    """Draw Figure 1b from the run of the first class order."""
    from daydream.report.look import look_at

    return look_at(Path(plan.chosen[0].folder), classes, None, plan.out / plan.grid / "features.png")


def draw_parts(plan: "Plan") -> dict[str, str]:
    """Draw what is finished of the grid `parts`; return where."""
    from daydream.reproduce.picture import draw

    picture = plan.out / plan.grid / "parts.png"
    return {"picture": str(picture)} if plan.grid == "parts" and draw(plan, picture) else {}
