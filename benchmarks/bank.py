"""All class generators as one bank against a Python loop over plain modules, one for each class.

    python benchmarks/bank.py [--device cuda] [--classes 10 50 100] [--samples 20] [--width 128]

Forward, and forward with backward, in train mode; maps of 64 channels and 8 x 8 pixels, as ResNet-32 has them at the
cut. float32 on a CPU; on a GPU bf16, as it is and captured as a CUDA graph. An update of the generators has 20 samples
of a class; a class of a batch of exemplars has about 2. "alone" are the bank's convolutions with nothing between them;
"torch's" is the bank whose convolutions go back by torch and not by our kernels, on a GPU. GFLOP/s are of the bank's
convolutions: where the loop keeps a device busy, the bank cannot be faster than the loop, whatever its form.
"""

import copy
import itertools
import statistics
from collections.abc import Callable, Sequence

import torch
from timing import arguments, captured, cells, seconds, show
from torch import Tensor, nn

from daydream.engine.hardware import Hardware
from daydream.nets.generators import ClassConv, GeneratorBank, side_by_side
from daydream.nets.resnet import to_channels_last

CHANNELS, SIDE = 64, 8


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(self.conv1(x)).relu()
        return torch.relu(self.norm2(self.conv2(y)) + x)


def generator(width: int) -> nn.Sequential:
    """Return the generator of one class, as anyone would write it."""
    reduce = [] if width == 2 * CHANNELS else [nn.Conv2d(2 * CHANNELS, width, 1, bias=False)]
    return nn.Sequential(*reduce, Block(width), Block(width), nn.Conv2d(width, CHANNELS, 1, bias=False))


def convolutions_of(bank: GeneratorBank) -> list[ClassConv]:
    return [module for module in bank.modules() if isinstance(module, ClassConv)]


def ways(hardware: Hardware) -> list[tuple[str, Callable[[Callable[[], object]], Callable[[], object]]]]:
    """Return how a call is run: as it is and, on a GPU, captured."""
    plain = (hardware.precision, lambda call: call)
    return [plain, (f"{hardware.precision}, captured", captured)] if hardware.capture else [plain]


def rows_of(classes: int, samples: int, width: int, hardware: Hardware, repeat: int) -> list[Sequence[str]]:
    device = hardware.device
    bank = GeneratorBank(classes, CHANNELS, 2, 0 if width == 2 * CHANNELS else width).to(device).train()
    if hardware.kernels:
        bank.use_kernels()
    by_torch = copy.deepcopy(bank)
    for conv in convolutions_of(by_torch):
        conv.kernels = False
    alone = [generator(width).to(device).train() for _ in range(classes)]
    for each in alone:
        to_channels_last(each)
    m, u = (torch.randn(classes, samples, CHANNELS, SIDE, SIDE, device=device).requires_grad_() for _ in range(2))
    weights = sum(p.numel() for name, p in bank.named_parameters() if "norm" not in name)

    def one_by_one() -> Tensor:
        both = torch.cat([m, u], dim=2)
        return torch.stack([each(both[c]) for c, each in enumerate(alone)])

    def convolutions() -> Tensor:
        x = side_by_side(m, u, channels_last=device.type == "cuda")
        for conv in convolutions_of(bank):
            x = conv(x, None)
        return x

    def forward(call: Callable[[], Tensor]) -> Tensor:
        with hardware.autocast():
            return call()

    found: list[Sequence[str]] = []
    for (way, run), back in itertools.product(ways(hardware), (False, True)):
        times = []
        calls = [one_by_one, lambda: bank(m, u), convolutions]
        for call in [*calls, lambda: by_torch(m, u)] if hardware.kernels and back else calls:

            def work(call: Callable[[], Tensor] = call, back: bool = back) -> None:
                made = forward(call)
                if back:
                    made.float().square().mean().backward()

            times.append(seconds(run(work), device.type, repeat))
        loop, ours, floor, *other = map(statistics.median, times)
        rate = 2 * (3 if back else 1) * weights * samples * SIDE**2 / ours / 1e9
        what = "forward + backward" if back else "forward"
        shape = [str(classes), str(samples), str(width), what, way]
        pair = [*cells(times[0])[:2], *cells(times[1])[:2]]
        rest = [f"{1000 * floor:.2f}", f"{1000 * other[0]:.2f}" if other else "", f"{rate:,.0f}"]
        found.append([*shape, *pair, *rest, f"{loop / ours:.1f} x"])
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--classes", type=int, nargs="+", default=[10, 50, 100])
    parser.add_argument("--samples", type=int, nargs="+", default=[20], help="of a class")
    parser.add_argument("--width", type=int, nargs="+", default=[128], help="channels inside a generator")
    given = parser.parse_args()
    hardware = Hardware.choose(given.device, "auto", None, None)
    hardware.set_up()
    rows: list[Sequence[str]] = []
    for width, samples, classes in itertools.product(given.width, given.samples, given.classes):
        rows += rows_of(classes, samples, width, hardware, given.repeat)
    shape = ["classes", "samples", "width", "what", "way"]
    heads = [*shape, "loop ms", "spread", "bank ms", "spread", "alone ms", "torch's ms", "GFLOP/s", "gain"]
    show("generators as a bank, and one by one", given.device, heads, rows)


if __name__ == "__main__":
    main()
