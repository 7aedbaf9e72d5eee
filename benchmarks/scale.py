"""Time and memory as classes, memory, pile and images grow: what is worse than linear?

    python benchmarks/scale.py [--device cuda] [--most 100] [--images 10000] [--only classes pile]

Each row is one size. `holds` is what is kept between calls (weights, images, scores), `peak` what a call takes on top
at most. `growth` is the ratio of times to the row above over the ratio of sizes: 1 is linear, below 1 better. Sizes
more than `--most` times the smallest are left out (10 takes under a minute on a CPU with `--images 200 --repeat 2`).
"""

import ctypes
import itertools
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from step import Unwatched, random_stream
from timing import arguments, cells, seconds, show
from torch import Tensor, nn

from daydream.components import mining
from daydream.components.imagination import Imagination
from daydream.components.imagination_settings import ImaginationSettings
from daydream.data.augment import CropFlip, Prepare
from daydream.data.images import ImageSet, Resident
from daydream.engine.feed import Feed
from daydream.engine.hardware import Hardware
from daydream.engine.lockstep import Lockstep
from daydream.engine.loop import Loop, Training
from daydream.methods.method import Setup
from daydream.methods.replay import Replay, ReplaySettings
from daydream.nets.generators import GeneratorBank
from daydream.nets.network import Network
from daydream.protocol.inference import over_images
from daydream.protocol.memory import Budget, Memory, herd
from daydream.stages.stage import State
from daydream.storage import state as checkpoint
from daydream.storage.checkpoint_files import load_checkpoint, save_checkpoint

AXES = ("classes", "images", "memory", "pile", "side")
CHANNELS, NEW = 64, 5
BUDGET = Budget("total", 2000)


class Work(NamedTuple):
    """A call, and the bytes that are kept between calls of it."""

    call: Callable[[], object]
    holds: int


class Question(NamedTuple):
    axis: str
    what: str
    sizes: tuple[int, ...]
    make: Callable[[int], Work]
    cost: Callable[[int], int] = int
    """The size that a linear time is linear in: of images of a side, their pixels."""


def size_of(*given: Tensor | nn.Module) -> int:
    tensors = itertools.chain.from_iterable(
        [part] if isinstance(part, Tensor) else part.state_dict().values() for part in given
    )
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class Sizes:
    """What is measured; each method makes the work of one size."""

    def __init__(self, hardware: Hardware, images: int, folder: Path) -> None:
        self.hardware, self.device, self.images = hardware, hardware.device, images
        self.place = folder / "checkpoint"
        self.updates = 5 if hardware.capture else 1  # the fourth step is captured, from then on it is replayed

    def pictures(self, count: int, side: int = 32) -> Tensor:
        return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, device=self.device)

    def bank(self, classes: int, side: int = 32) -> Work:
        """Counterparts of a batch of 56 exemplars, 2 of each."""
        bank = GeneratorBank(classes, CHANNELS).to(self.device).eval().requires_grad_(False)
        m, u = torch.randn(2, 56, 2, CHANNELS, side // 4, side // 4, device=self.device)
        which = torch.arange(56, device=self.device) % classes

        def call() -> Tensor:
            with torch.no_grad(), self.hardware.autocast():
                mixed: Tensor = bank(m, u, which)
            return mixed

        return Work(call, size_of(bank))

    def update(self, classes: int) -> Work:
        """Updates of the generators of 5 new classes, beside so many old ones."""
        prepare = Prepare((0.5,) * 3, (0.25,) * 3, 32)
        setup = Setup("resnet32", "stage3", BUDGET, prepare, CropFlip(prepare), seed=1)
        stream = random_stream(self.device, classes, NEW, 20)
        task = stream.task(1)
        method = Replay(ReplaySettings(), setup)
        state = State(Memory(BUDGET, *self.exemplars(range(classes, classes + NEW), 4)), self.device)
        state.nets["net"] = Network("resnet32", "proxy", (classes, NEW)).to(self.device).eval()
        pile = ImageSet(Resident(self.pictures(500)), torch.zeros(500, dtype=torch.int64), ("unknown",))
        stage = Imagination(ImaginationSettings(generator_updates=self.updates), method, pile).generators(task)
        assert stage.begin is not None
        stage.begin(state)
        steps = Lockstep([Training(Loop(stage, state, self.hardware, Feed(stage, state, (0, 0), 1)), Unwatched())])
        return Work(lambda: steps.run_epoch(0), sum(map(size_of, state.nets.values())))

    def exemplars(self, classes: range, each: int) -> tuple[Tensor, Tensor, Tensor]:
        labels = torch.arange(classes.start, classes.stop).repeat_interleave(each)
        return self.pictures(len(labels)), labels, torch.arange(each).repeat(len(classes))

    def mine(self, pile: int, classes: int = 100) -> Work:
        scores = torch.randn(pile, classes, device=self.device) * 3
        return Work(lambda: mining.most_certain(scores, 2), size_of(scores))

    def herd(self, each: int) -> Work:
        """5 classes of so many images, 20 kept of each."""
        features = torch.randn(NEW * each, CHANNELS, device=self.device)
        labels = torch.arange(NEW).repeat_interleave(each)
        return Work(lambda: herd(features, labels, 20), size_of(features))

    def remember(self, memory: int) -> Work:
        """5 classes of 500 images join a memory that holds 20 of each class, and would hold as many after."""
        old = memory // 20
        held = Memory(Budget("per_class", 20), *self.exemplars(range(old), 20))
        new = ImageSet(
            Resident(self.pictures(NEW * 500)), old + torch.arange(NEW).repeat_interleave(500), ("class",) * (old + NEW)
        )
        features = torch.randn(NEW * 500, CHANNELS, device=self.device)
        return Work(lambda: held.updated(new, features, old + NEW), size_of(held.images))

    def judge(self, classes: int = 100, side: int = 32) -> Work:
        net = Network("resnet32", "proxy", (classes,)).to(self.device).eval()
        pictures = self.pictures(self.images, side)
        images = ImageSet(Resident(pictures), torch.zeros(self.images, dtype=torch.int64), ("class",))
        prepare = Prepare((0.5,) * 3, (0.25,) * 3, side)

        def call() -> object:
            with self.hardware.autocast():
                return over_images(lambda x: (net(x),), images, prepare)

        return Work(call, size_of(net, pictures))

    def checkpoint(self, classes: int) -> tuple[State, int]:
        state = State(Memory.empty(BUDGET), self.device)
        state.nets = {
            "net": Network("resnet32", "proxy", (classes,)).to(self.device),
            "generators": GeneratorBank(classes, CHANNELS).to(self.device),
        }
        return state, size_of(*state.nets.values())

    def write(self, classes: int) -> Work:
        state, size = self.checkpoint(classes)

        def call() -> None:
            shutil.rmtree(self.place, ignore_errors=True)  # what is there already would not be written again
            save_checkpoint(self.place, *checkpoint.pack(state))

        return Work(call, size)

    def read(self, classes: int) -> Work:
        work = self.write(classes)
        work.call()
        return Work(lambda: load_checkpoint(self.place), work.holds)

    def questions(self) -> Iterator[Question]:
        classes, sides = (10, 30, 100, 300, 1000), (32, 64, 128)
        yield Question("classes", "counterparts of 56 exemplars x 2", classes, self.bank)
        yield Question("classes", f"updates of {NEW} new generators: {self.updates}", classes, self.update)
        yield Question("classes", "mine a pile of 10,000", classes, lambda count: self.mine(10_000, count))
        yield Question("classes", f"judge {self.images:,} images", classes, self.judge)
        yield Question("classes", "write a checkpoint with generators", classes, self.write)
        yield Question("classes", "read it", classes, self.read)
        yield Question("images", f"herd {NEW} classes of so many", (500, 5000, 50_000), self.herd)
        yield Question("memory", f"remember {NEW} classes of 500", (2000, 20_000, 200_000), self.remember)
        yield Question("pile", "mine it, 100 classes", (10_000, 100_000, 1_000_000), self.mine)
        yield Question("side", f"judge {self.images:,} images", sides, lambda s: self.judge(side=s), lambda s: s * s)
        yield Question("side", "counterparts of 56 x 2", sides, lambda s: self.bank(50, s), lambda s: s * s)


def resident(what: str) -> int:
    """Return a line of the process's memory, in bytes: VmRSS now, VmHWM at most."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return 1024 * int(line.split()[1])


def peak(call: Callable[[], object], device: torch.device) -> int:
    """Return what a call takes at most beyond what was there before it, in bytes; 0 where the system does not tell."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    restart = Path("/proc/self/clear_refs")
    if not restart.exists():
        call()
        return 0
    ctypes.CDLL(None).malloc_trim(0)  # pages kept from earlier calls would hide what this one takes
    restart.write_text("5")  # VmHWM starts anew
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


def answer(question: Question, hardware: Hardware, most: int, repeat: int) -> Iterator[list[str]]:
    """Return a row for each size that is at most `most` times the smallest."""
    smallest, before = min(map(question.cost, question.sizes)), None
    for size in question.sizes:
        cost = question.cost(size)
        if cost <= most * smallest:
            call, holds = question.make(size)
            taken = peak(call, hardware.device)
            times = seconds(call, hardware.device.type, repeat)
            middle = statistics.median(times)
            growth = "" if before is None else f"{middle / before[0] * before[1] / cost:.2f}"
            before = (middle, cost)
            spent = [f"{holds / 1e6:,.1f}", f"{taken / 1e6:,.1f}"]
            yield [question.what, question.axis, f"{size:,}", *cells(times)[:2], *spent, growth]
            del call  # with all it holds, before the next size is made


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--most", type=int, default=100, help="times the smallest size")
    parser.add_argument("--images", type=int, default=10_000, help="to judge")
    parser.add_argument("--only", nargs="+", default=AXES, choices=AXES, help="what grows")
    given = parser.parse_args()
    hardware = Hardware.choose(given.device, "auto", False, None)
    hardware.set_up()
    with tempfile.TemporaryDirectory() as folder:
        asked = [q for q in Sizes(hardware, given.images, Path(folder)).questions() if q.axis in given.only]
        rows = [row for question in asked for row in answer(question, hardware, given.most, given.repeat)]
    heads = ("what", "of", "size", "median ms", "fastest – slowest", "holds MB", "peak MB", "growth")
    show(f"as sizes grow, {hardware.describe()}", given.device, heads, rows)


if __name__ == "__main__":
    main()
