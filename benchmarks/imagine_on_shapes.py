"""Does imagination help on `shapes`? Paired over seeds, with everything else equal and the base task shared.

    python benchmarks/imagine_on_shapes.py [--seeds 1 2 3 4 5 6 7 8] [--with imagine pile-distill] [--out runs/paired]

Prints, for each seed, the average NME and CNN accuracy of `replay` and of what it is compared with: `imagine`, or
`replay` with distillation on the pile alone. Then the mean paired differences with their standard errors. About 6
minutes a seed on one CPU core; finished runs are read, not run again.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

from rich.console import Console

from daydream.engine import Display
from daydream.experiment.config import make_config
from daydream.experiment.experiment import Experiment
from daydream.storage.run_folder import RunFolder

RUN = {"backbone": "resnet10", "base": 10, "steps": 5, "memory": 100, "budget": "total"}
RECIPE = {"base_epochs": 40, "epochs": 40, "batch_size": 32, "lr": 0.1}
IMAGINATION = {"generator_width": 32, "generator_epochs": 16}


VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "imagine": {"run": {"method": "imagine"}, "imagination": IMAGINATION},
    "pile-distill": {"run": {"method": "replay"}, "pile": {"pile_distill": 0.5}},
}


def result(folder: Path, run: dict[str, Any], **components: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a run, running it or what is left of it."""
    experiment = Experiment(make_config({**RUN, **run}, {}, RECIPE, **components))
    progress = Display()
    if (folder / "config.json").exists():
        return experiment.resume(RunFolder(folder), progress)
    return experiment.start(folder, progress)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 9)))
    parser.add_argument("--with", dest="variants", nargs="+", default=["imagine"], choices=VARIANTS)
    parser.add_argument("--out", type=Path, default=Path("runs/paired"))
    given = parser.parse_args()
    console = Console()
    found: dict[tuple[str, str], list[float]] = {}
    for seed in given.seeds:
        plain = given.out / f"replay-{seed}"
        before = result(plain, {"method": "replay", "seed": seed})
        for name in given.variants:
            components = dict(VARIANTS[name])
            run = {**components.pop("run"), "seed": seed, "base_from": str(plain)}
            after = result(given.out / f"{name}-{seed}", run, **components)
            pairs = {kind: (before[f"average_{kind}"], after[f"average_{kind}"]) for kind in ("nme", "cnn")}
            for kind, (a, b) in pairs.items():
                found.setdefault((name, kind), []).append(b - a)
            told = ", ".join(f"{kind.upper()} {a:.2f} -> {b:.2f}" for kind, (a, b) in pairs.items())
            console.print(f"seed {seed}, {name}: {told}")
    for (name, kind), gains in found.items():
        error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
        console.print(
            f"average {kind.upper()}: {name} - replay = {statistics.mean(gains):+.2f}, standard error {error:.2f}"
        )


if __name__ == "__main__":
    main()
