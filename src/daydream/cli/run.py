"""The commands `run` and `resume`."""

import json
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daydream.cli import flags
from daydream.cli.common import Json, Quiet, console, free_folder, stoppable

if TYPE_CHECKING:
    from daydream.engine import Display
    from daydream.experiment.experiment import Experiment

log = logging.getLogger("daydream")
LONG = 20_000
"""Steps of a run that earn back the minute that compilation takes on a CPU, many times over."""
TITLES = {"parts": "Parts that most methods can carry", "imagination": "Imagination", "pile": "The unlabelled pile"}


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the commands to the app; the flags of `run` depend on the method and the data set it is given."""
    app.command("run")(run_command(words[1:]) if words[:1] == ["run"] else run)
    app.command("resume")(resume)


def run_command(words: Sequence[str]) -> Any:
    """Return the command `run` with the flags of the chosen data set and method."""
    from daydream.experiment.config import RunSettings, sections_of

    data = flags.given(words, "--data", RunSettings().data)
    method = flags.given(words, "--method", RunSettings().method)
    titles = {"run": "The run", "data": f"The data set {data}", "method": f"The method {method}", **TITLES}
    epochs = flags.given(words, "--base-epochs", "")
    found = sections_of(data, method, flags.given(words, "--backbone", ""), int(epochs) if epochs.isdecimal() else None)
    sections = [flags.Section(key, titles[key], settings) for key, settings in found.items()]
    return flags.command(sections, run, flags.asks_for_all(words))


def run(
    *,
    out: Annotated[str, typer.Option(help="folder of the run; by default a new one under runs/")] = "",
    orders: Annotated[
        int | None,
        typer.Option(
            help="a run for each of the first N class orders of the data set, in OUT/order-1, ...", metavar="N"
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option(help="a run for each of these seeds, in OUT/seed-1, ...", metavar="N,N,...")
    ] = "",
    together: Annotated[
        bool,
        typer.Option("--together", help="train the runs of --orders and --seeds side by side, to fill one GPU"),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the whole plan and stop")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    help_all: flags.HelpAll = False,
    values: Annotated[dict[str, Any] | None, typer.Option(hidden=True, parser=json.loads)] = None,
) -> None:
    """Train a method through all tasks of a stream. `--method NAME --help` shows that method's settings too."""
    from daydream.engine.distributed import team
    from daydream.experiment.config import make_config
    from daydream.experiment.experiment import Experiment

    assert values is not None
    config = make_config(**values)
    if idle := config.carried.without_effect():
        log.warning("%s: no effect, as nothing in this run uses it", " ".join(idle))
    if orders is not None or seeds or together:
        from daydream.cli.together import Wanted, run_members

        run_members(config, Wanted(orders, seeds, together), out, dry_run, quiet, as_json)
        return
    with team().in_turn():
        experiment = Experiment(config)
    if experiment.hardware.could_be_faster and experiment.num_steps >= LONG:
        log.info("a long run for a CPU: --precision bf16 --compile takes about two thirds of the time on this one")
    if dry_run:
        show_plan(experiment)
        return
    folder = Path(out) if out else free_folder(Path("runs"), name_of(experiment))
    train(lambda display: experiment.start(folder, display), folder, quiet, as_json)


def show_plan(experiment: "Experiment") -> None:
    """Print what a run will do."""
    from daydream.cli.tables import plan_table
    from daydream.experiment import base_task
    from daydream.experiment.naming import headline

    base_from = experiment.config.run.base_from
    if base_from:
        base_task.read(experiment, Path(base_from))
    console().print(headline(experiment), plan_table(experiment), sep="\n", highlight=False)


def name_of(experiment: "Experiment") -> str:
    """Return what the folder of a run is called where its user names none."""
    from daydream.experiment.naming import method_name

    chosen = experiment.config.run
    return f"{chosen.data}-{method_name(chosen.method).replace('.py:', '-')}-seed{chosen.seed}"


def train(
    start: "Callable[[Display], dict[str, Any]]", folder: Path, quiet: bool, as_json: bool, tables: bool = True
) -> dict[str, Any]:
    """Train with progress and signals in place; print the result."""
    from daydream.cli.progress import make_display
    from daydream.engine.distributed import team
    from daydream.report import write_own_page
    from daydream.report.run_tables import print_run
    from daydream.storage.run_folder import RunFolder, resume_command

    screen = console()
    with stoppable(f"go on with: {resume_command(folder)}") as switch:
        display = make_display(switch, console(stderr=True) if as_json else screen, quiet)
        try:
            result = start(display)
        finally:
            display.close()
    if not team().leads:
        return result
    page = write_own_page(folder)
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
    elif not quiet and tables:
        lines = [f"run: {folder}", *([f"report: {page}"] if page else [])]
        print_run(screen, RunFolder(folder), *lines)
    return result


def resume(
    run: Annotated[Path, typer.Argument(help="folder of a run")], quiet: Quiet = False, as_json: Json = False
) -> None:
    """Go on with a run that was stopped or killed, from its last checkpoint."""
    from daydream.engine.distributed import team
    from daydream.experiment.config import check_importing, config_from_json
    from daydream.experiment.experiment import Experiment
    from daydream.storage.run_folder import RunFolder

    folder = RunFolder.open(run)
    check_importing(folder)
    if folder.result is not None:
        sys.stderr.write(f"{run} is finished already\n")
    with team().in_turn():
        experiment = Experiment(config_from_json(folder.config))
    train(lambda display: experiment.resume(folder, display), run, quiet, as_json)
