"""Time a training step: base task and increment of `replay` or `imagine`, eager, captured, compiled and captured.

    python benchmarks/step.py [--device cuda] [--batch 128 512] [--methods replay imagine] [--profile]

Random images of CIFAR's size, resident on the device; one table with the median over epochs, in milliseconds. With
`--profile`, also which kernels a step runs, how often, and how long they take.
"""

import argparse
import collections
import itertools
import statistics
import time
from dataclasses import replace

import torch

from daydream.components.imagination import Imagination
from daydream.components.imagination_settings import ImaginationSettings
from daydream.data.augment import CropFlip, Prepare
from daydream.data.images import ImageSet, Resident
from daydream.engine.feed import Feed
from daydream.engine.hardware import Hardware
from daydream.engine.lockstep import Lockstep
from daydream.engine.loop import Loop, Partial, Training
from daydream.methods.method import Setup
from daydream.methods.replay import Replay, ReplaySettings
from daydream.protocol.memory import Budget, Memory
from daydream.protocol.stream import Stream
from daydream.stages.stage import Stage, State


class Unwatched:
    """A watcher that never stops and keeps nothing."""

    def epoch(self, report: object) -> None: ...

    def stop_asked(self) -> bool:
        return False

    def wants_checkpoint(self, epoch: int) -> bool:
        return False

    def checkpoint(self, partial: Partial) -> None: ...


def random_stream(device: torch.device, base: int, step: int, per_class: int) -> Stream:
    labels = torch.arange(base + step).repeat_interleave(per_class)
    pixels = torch.randint(0, 256, (len(labels), 3, 32, 32), dtype=torch.uint8, device=device)
    images = ImageSet(Resident(pixels), labels, tuple(map(str, range(base + step))))
    return Stream(images, images, (base, step))


def stages(name: str, batch: int, device: torch.device, per_class: int) -> tuple[State, list[Stage]]:
    """Return the training stages of a base task of 50 classes and of an increment of 5, ready to begin the second."""
    prepare = Prepare((0.5,) * 3, (0.25,) * 3, 32)
    budget = Budget("total", 40 * 50)
    setup = Setup("resnet32", "stage3", budget, prepare, CropFlip(prepare), seed=1)
    method = Replay(ReplaySettings(batch_size=batch), setup)
    stream = random_stream(device, 50, 5, per_class)
    state = State(Memory.empty(budget), device)
    tasks = [method.stages(stream.task(i)) for i in range(2)]
    if name == "imagine":
        imagination = Imagination(ImaginationSettings(), method, stream.train)
        tasks = [imagination.stages(stream.task(i), tasks[i]) for i in range(2)]
    for stage in tasks[0]:
        assert stage.begin is not None
        stage.begin(state)
    if name == "imagine":
        finish = tasks[0][-1].finish
        assert finish is not None
        finish(state)
    return state, [tasks[0][0], tasks[1][0]]


def milliseconds(stage: Stage, state: State, hardware: Hardware, epochs: int) -> tuple[float, float, Lockstep]:
    """Return the median step time and the time to the first replay."""
    loop = Lockstep([Training(Loop(stage, state, hardware, Feed(stage, state, (0, 0), 1)), Unwatched())])
    start = time.perf_counter()
    loop.run_epoch(0, stage.steps - 5)
    first = time.perf_counter() - start
    times = []
    for epoch in range(epochs):
        start = time.perf_counter()
        loop.run_epoch(epoch)
        times.append(1000 * (time.perf_counter() - start) / stage.steps)
    assert loop.trainings, "the training diverged"
    return statistics.median(times), first, loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int, nargs="+", default=[128])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--per-class", type=int, default=500)
    parser.add_argument("--methods", nargs="+", default=["replay"], choices=["replay", "imagine"])
    parser.add_argument("--ways", nargs="+", default=None, help="e.g. bf16 bf16+capture bf16+compile+capture")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    gpu = Hardware.choose(given.device, "auto", None, None).capture
    ways = given.ways or (
        ["tf32", "bf16", "tf32+capture", "bf16+capture", "bf16+compile+capture", "bf16+kernels+capture"]
        if gpu
        else ["fp32", "bf16"]
    )
    print(f"{'method':<8} {'batch':>6} {'way':<22} {'base ms':>9} {'first s':>8} {'increment ms':>13} {'first s':>8}")
    for name, batch, way in itertools.product(given.methods, given.batch, ways):
        words = way.split("+")
        hardware = Hardware.choose(
            given.device, words[0], not {"compile", "kernels"}.isdisjoint(words), "capture" in words
        )
        hardware = replace(hardware, kernels="kernels" in words)
        hardware.set_up()
        state, (base, increment) = stages(name, batch, hardware.device, given.per_class)
        base_ms, base_first, loop = milliseconds(base, state, hardware, given.epochs)
        if given.profile:
            profile(loop)
        assert increment.begin is not None
        for net in state.nets.values():
            net.eval()
        increment.begin(state)
        inc_ms, inc_first, loop = milliseconds(increment, state, hardware, given.epochs)
        times = f"{base_ms:>9.2f} {base_first:>8.1f} {inc_ms:>13.2f} {inc_first:>8.1f}"
        print(f"{name:<8} {batch:>6} {way:<22} {times}", flush=True)
        if given.profile:
            profile(loop)


def profile(loop: Lockstep, steps: int = 10) -> None:
    """Print which kernels a step runs on the device, how often, and for how long in microseconds."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        loop.run_epoch(0, loop.stage.steps - steps)
    total, count = collections.Counter[str](), collections.Counter[str]()
    for event in found.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            total[event.name] += event.self_device_time_total
            count[event.name] += 1
    calls = sum(count.values()) / steps
    print(f"  {calls:.0f} kernels a step, {sum(total.values()) / steps:.0f} us in them")
    for kernel, spent in total.most_common(60):
        print(f"  {spent / steps:8.1f} us {count[kernel] / steps:6.1f} x  {kernel[:110]}")


if __name__ == "__main__":
    main()
