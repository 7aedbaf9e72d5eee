"""What is not training: how long the command takes to start, and where the time of a run of the demo goes.

    python benchmarks/startup.py [--device cpu] [--run replay] [--runs 3] [--epochs 26 10]

Times whole processes: `daydream --help`, `import daydream`, `import torch` beside them; then one run of the demo, split
into start-up (until the first step), training (the sum of its epochs, by metrics.jsonl) and the rest (herding,
evaluation, checkpoints, the end). `--epochs` shortens its base task and its increments.
"""

import functools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from timing import arguments, cells, seconds, show

from daydream.experiment.demo import RUNS

COMMAND = [sys.executable, "-m", "daydream"]
ALONE = [name for name, run in RUNS.items() if "base_from" not in run["run"]]


class Split(NamedTuple):
    """The seconds of a run."""

    whole: float
    start_up: float
    training: float


def carry_out(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def run_split(flags: list[str], folder: Path) -> Split:
    """Run a command that trains, and tell where its time went."""
    log = folder / "metrics.jsonl"
    began = time.perf_counter()
    first = None
    with subprocess.Popen([*COMMAND, "run", *flags, "--out", str(folder), "--quiet"]) as process:
        while process.poll() is None:
            if first is None and log.exists() and "\n" in log.read_text():
                first = time.perf_counter()
            time.sleep(0.01)
    whole = time.perf_counter() - began
    if process.returncode or first is None:
        sys.exit(f"the run ended with status {process.returncode}")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    epochs = [row["seconds"] for row in rows if row["kind"] == "epoch"]
    return Split(whole, first - epochs[0] - began, sum(epochs))


def flags_of(name: str, device: str, epochs: list[int]) -> list[str]:
    """Return the flags of a run of the demo."""
    run = RUNS[name]
    values = run["run"] | run["method"] | {"device": device}
    values |= dict(zip(("base_epochs", "epochs"), epochs, strict=False))
    return [word for key, value in values.items() for word in (f"--{key.replace('_', '-')}", str(value))]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--run", default="replay", choices=ALONE)
    parser.add_argument("--epochs", type=int, nargs="+", default=[], help="of the base task, and of an increment")
    parser.add_argument("--runs", type=int, default=1, help="how often the run is carried out")
    given = parser.parse_args()
    commands = {
        "daydream --help": [*COMMAND, "--help"],
        "import daydream": [sys.executable, "-c", "import daydream"],
        "import torch": [sys.executable, "-c", "import torch"],
    }
    starts = [
        [name, *cells(seconds(functools.partial(carry_out, command), "cpu", given.repeat))[:2]]
        for name, command in commands.items()
    ]
    show("to start", "cpu", ("what", "median ms", "fastest – slowest"), starts)
    flags = flags_of(given.run, given.device, given.epochs)
    with tempfile.TemporaryDirectory() as place:
        runs = [run_split(flags, Path(place) / str(number)) for number in range(given.runs)]
    parts = {
        "start-up, until the first step": [run.start_up for run in runs],
        "training": [run.training for run in runs],
        "herding, evaluation, checkpoints, the end": [run.whole - run.start_up - run.training for run in runs],
        "whole": [run.whole for run in runs],
    }
    whole = sum(parts["whole"])
    rows = [[name, *cells(spent)[:2], f"{100 * sum(spent) / whole:.0f}%"] for name, spent in parts.items()]
    show(f"the demo's run of {given.run}", given.device, ("what", "median ms", "fastest – slowest", "share"), rows)


if __name__ == "__main__":
    main()
