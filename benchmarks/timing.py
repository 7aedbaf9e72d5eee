"""What the benchmarks share: time a call, print a table with median and spread."""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from rich.console import Console
from rich.table import Table


def arguments(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeat", type=int, default=7, help="timed calls of each, after one that is not timed")
    return parser


def seconds(call: Callable[[], object], device: str, repeat: int) -> list[float]:
    """Return the times of `repeat` calls, the device's work included, after one call that is not timed."""
    found = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        call()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return found[1:]


def captured(call: Callable[[], object]) -> Callable[[], None]:
    """Return a call's work on the GPU as one CUDA graph to be replayed, as the engine runs its steps."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        call()
    return graph.replay


def cells(times: Sequence[float], amount: float = 0.0, of: str = "") -> list[str]:
    """Return median and spread in milliseconds, and, given an amount, how much of it a second."""
    middle = statistics.median(times)
    shown = [f"{1000 * middle:.2f}", f"{1000 * min(times):.2f} – {1000 * max(times):.2f}"]
    return [*shown, f"{amount / middle:,.0f} {of}/s" if amount else ""]


def machine(device: str) -> str:
    """Name the machine for a table's title."""
    name = torch.cuda.get_device_name() if device.startswith("cuda") else f"CPU, {torch.get_num_threads()} threads"
    return f"{name}, torch {torch.__version__}"


def show(title: str, device: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(*heads, title=f"{title} ({machine(device)})", title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console(width=140).print(table)
