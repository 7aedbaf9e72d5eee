"""Time the steps of several runs trained together against those of one alone, and compare their weights.

    python benchmarks/together.py [--device cuda] [--runs 1 2 3 5] [--batch 128] [--methods replay imagine]

Random images of CIFAR's size, others for each run. Times are of a step of all runs: median and spread over epochs, and
how many times that of one run. The difference is the largest between a weight, a statistic or a momentum of a run
trained together and of the same run trained alone, after `--steps` steps from the same state (three as they are, then
one that is captured, the others replayed); beside it, that between training alone and alone once more, which is what
the device's own order of additions does.
"""

import copy
import itertools
import statistics
import time
from collections.abc import Sequence

import torch
from step import Unwatched, stages
from timing import arguments, show
from torch import Tensor

from daydream.engine.feed import Feed
from daydream.engine.hardware import Hardware
from daydream.engine.lockstep import Lockstep
from daydream.engine.loop import Loop, Training
from daydream.stages.stage import Stage, State

Begun = tuple[Stage, State]


def lockstep(members: Sequence[Begun], hardware: Hardware, first_seed: int = 1) -> Lockstep:
    """Return the stages of runs side by side, each on a copy of its state and with random numbers of its own."""
    loops = []
    for seed, (stage, begun) in enumerate(members, first_seed):
        state = copy.deepcopy(begun)
        loops.append(Loop(stage, state, hardware, Feed(stage, state, (0, 0), seed)))
    return Lockstep([Training(loop, Unwatched()) for loop in loops])


def run_epoch(runs: Lockstep, first: int = 0) -> None:
    count = len(runs.trainings)
    runs.run_epoch(0, first)
    assert len(runs.trainings) == count, "a training diverged"


def after(runs: Lockstep, steps: int) -> list[dict[str, Tensor]]:
    """Take steps; return all that trains of each run."""
    assert steps <= runs.stage.steps, f"--steps {steps} is more than the {runs.stage.steps} of an epoch"
    run_epoch(runs, runs.stage.steps - steps)
    found = []
    for loop in runs.loops:
        tensors = {f"{net}.{key}": v for net, part in loop.state.nets.items() for key, v in part.state_dict().items()}
        found.append({key: value.double().cpu() for key, value in (tensors | loop.optimizer.state()).items()})
    return found


def largest_difference(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    assert ours.keys() == theirs.keys()
    return max(float((value - theirs[key]).abs().max()) for key, value in ours.items() if value.numel())


def differences(members: Sequence[Begun], hardware: Hardware, steps: int) -> tuple[float, float]:
    """Return the largest difference between together and alone, and between alone and alone again."""
    together = after(lockstep(members, hardware), steps)
    once, again = (
        [after(lockstep([member], hardware, seed), steps)[0] for seed, member in enumerate(members, 1)]
        for _ in range(2)
    )
    return max(map(largest_difference, together, once)), max(map(largest_difference, again, once))


def milliseconds(members: Sequence[Begun], hardware: Hardware, epochs: int) -> list[float]:
    """Return the time of a step of all runs, for each epoch after one that is not timed."""
    runs, times = lockstep(members, hardware), []
    for _ in range(epochs + 1):
        start = time.perf_counter()
        run_epoch(runs)
        times.append(1000 * (time.perf_counter() - start) / runs.stage.steps)
    return times[1:]


def begun(method: str, task: int, batch: int, hardware: Hardware, per_class: int) -> Begun:
    """Return a run at the beginning of its base task, or of its first increment, on images of its own."""
    state, both = stages(method, batch, hardware.device, per_class)
    begin = both[task].begin
    if task:
        assert begin is not None
        begin(state)
    return both[task], state


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 2, 3, 5])
    parser.add_argument("--batch", type=int, nargs="+", default=[128])
    parser.add_argument("--methods", nargs="+", default=["replay", "imagine"], choices=["replay", "imagine"])
    parser.add_argument("--way", default="auto", help="e.g. fp32, tf32+capture, bf16+compile+capture")
    parser.add_argument("--per-class", type=int, default=500)
    parser.add_argument("--steps", type=int, default=8, help="before weights are compared")
    given = parser.parse_args()
    way, *flags = given.way.split("+")
    wanted = (None, None) if way == "auto" else ("compile" in flags, "capture" in flags)
    hardware = Hardware.choose(given.device, way, *wanted)
    hardware.set_up()
    rows = []
    for method, batch, task in itertools.product(given.methods, given.batch, (0, 1)):
        torch.manual_seed(1)
        members = [begun(method, task, batch, hardware, given.per_class) for _ in range(max(given.runs))]
        alone = statistics.median(milliseconds(members[:1], hardware, given.repeat))
        for count in given.runs:
            times = milliseconds(members[:count], hardware, given.repeat)
            middle = statistics.median(times)
            apart, again = differences(members[:count], hardware, given.steps)
            spread = f"{min(times):.2f} – {max(times):.2f}"
            where = [method, "increment" if task else "base", str(batch), str(count)]
            rows.append([*where, f"{middle:.2f}", spread, f"{middle / alone:.2f}", f"{apart:.1e}", f"{again:.1e}"])
            print(" ".join(rows[-1]), flush=True)
    heads = ("method", "stage", "batch", "runs", "step ms", "spread", "x one", "difference", "alone, again")
    show(f"several runs together, {hardware.describe()}", str(hardware.device), heads, rows)


if __name__ == "__main__":
    main()
