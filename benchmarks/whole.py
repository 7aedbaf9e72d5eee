"""Time whole runs, command start to end, with an empty compilation cache: one alone, and several class orders at once.

    python benchmarks/whole.py [--orders 3] [--ways together beside] [--each] [--out DIR] -- FLAGS OF daydream run

"alone" is the first order by itself. "together" is `--orders N --together`, one process; "beside" is N processes at the
same time, on one GPU through NVIDIA MPS where it is there. `--each` also runs the other orders alone, to compare
accuracies: an order's must be those of its run alone, within noise. The full-size question, three orders in under 1.8
times one:

    python benchmarks/whole.py --out runs/whole -- --data cifar100 --root DIR --method imagine \
        --unlabeled imagenet32:PILE --base 50 --steps 10 --memory 2000
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from daydream.experiment.config import RunSettings
from daydream.experiment.together import first_orders
from daydream.reproduce.executors.mps import shared_gpu
from daydream.reproduce.executors.processes import threads
from daydream.storage.run_folder import RunFolder

COMMAND = [sys.executable, "-m", "daydream", "run", "--quiet"]


def carry_out(commands: Sequence[Sequence[str]], environment: dict[str, str]) -> float:
    """Run commands at the same time, with caches of their own; return the seconds until the last has ended."""
    with tempfile.TemporaryDirectory() as cache:
        places = {name: f"{cache}/{name}" for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
        began = time.perf_counter()
        running = [subprocess.Popen(words, env={**os.environ, **places, **environment}) for words in commands]
        codes = [process.wait() for process in running]
        if any(codes):
            sys.exit(f"a run failed: exit codes {codes}")
        return time.perf_counter() - began


def alone(flags: Sequence[str], orders: Sequence[str], out: Path) -> tuple[float, list[Path]]:
    """Run each order by itself; the seconds are the first one's."""
    folders = [out / f"alone-{place}" for place, _ in enumerate(orders, 1)]
    spent = [
        carry_out([[*COMMAND, *flags, "--order", order, "--out", str(folder)]], {})
        for order, folder in zip(orders, folders, strict=True)
    ]
    return spent[0], folders


def together(flags: Sequence[str], orders: Sequence[str], out: Path) -> tuple[float, list[Path]]:
    whole = out / "together"
    spent = carry_out([[*COMMAND, *flags, "--orders", str(len(orders)), "--together", "--out", str(whole)]], {})
    return spent, [whole / f"order-{place}" for place, _ in enumerate(orders, 1)]


def beside(flags: Sequence[str], orders: Sequence[str], out: Path) -> tuple[float, list[Path]]:
    folders = [out / f"beside-{place}" for place, _ in enumerate(orders, 1)]
    commands = [
        [*COMMAND, *flags, "--order", order, "--out", str(folder)]
        for order, folder in zip(orders, folders, strict=True)
    ]
    with shared_gpu("cuda" if torch.cuda.is_available() else "cpu", print) as environment:
        return carry_out(commands, {**threads(len(orders)), **environment}), folders


WAYS = {"together": together, "beside": beside}


def accuracies(folders: Sequence[Path]) -> str:
    """Return the average NME, or else CNN, of each run."""
    results = [RunFolder(folder).result or {} for folder in folders]
    return ", ".join(f"{result.get('average_nme') or result['average_cnn']:.2f}" for result in results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=3)
    parser.add_argument("--ways", nargs="+", default=["together"], choices=WAYS)
    parser.add_argument("--each", action="store_true", help="run every order alone too")
    parser.add_argument("--out", type=Path, help="keep the runs, and whole.json, in this folder")
    parser.add_argument("flags", nargs="*", help="flags of `daydream run`, after --")
    given = parser.parse_args()
    data = dict(zip(given.flags, given.flags[1:], strict=False)).get("--data", RunSettings().data)
    orders = first_orders(data, given.orders, part="--labelled" in given.flags)
    with contextlib.ExitStack() as kept:
        out = given.out or Path(kept.enter_context(tempfile.TemporaryDirectory()))
        out.mkdir(parents=True, exist_ok=True)
        one, folders = alone(given.flags, orders if given.each else orders[:1], out)
        rows: list[dict[str, Any]] = [{"way": "alone", "runs": 1, "seconds": one, "accuracies": accuracies(folders)}]
        for way in given.ways:
            spent, folders = WAYS[way](given.flags, orders, out)
            rows.append({"way": way, "runs": len(orders), "seconds": spent, "accuracies": accuracies(folders)})
        device = RunFolder(folders[0]).config["device"]
        if given.out:
            (out / "whole.json").write_text(
                json.dumps({"flags": given.flags, "device": device, "rows": rows}, indent=2)
            )
    table = Table(
        "way", "runs", "seconds", "times one", "average accuracy of each order", title=f"whole runs ({device})"
    )
    for row in rows:
        cells = [f"{row['seconds']:.1f}", f"{row['seconds'] / one:.2f}", row["accuracies"]]
        table.add_row(row["way"], str(row["runs"]), *cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
