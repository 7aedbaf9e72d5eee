"""All class generators as one bank against a Python loop over classes: forward, and forward with backward.

    python benchmarks/bank.py [--classes 10 50 100] [--samples 20] [--width 128]

Maps of 64 channels and 8 x 8 pixels, as ResNet-32 has them at the cut; bf16 on a GPU, float32 on a CPU.
"""

import statistics
from collections.abc import Callable

import torch
from timing import arguments, cells, seconds, show
from torch import Tensor

from daydream.nets.generators import GeneratorBank


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--classes", type=int, nargs="+", default=[10, 50, 100])
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--width", type=int, default=128)
    given = parser.parse_args()
    device, rows = given.device, []
    width = 0 if given.width == 128 else given.width
    for classes in given.classes:
        bank = GeneratorBank(classes, 64, 2, width).to(device).train()
        alone = [GeneratorBank(1, 64, 2, width).to(device).train() for _ in range(classes)]
        m, u = torch.randn(2, classes, given.samples, 64, 8, 8, device=device)

        def together(bank: GeneratorBank = bank, m: Tensor = m, u: Tensor = u) -> Tensor:
            return bank(m, u)

        def one_by_one(alone: list[GeneratorBank] = alone, m: Tensor = m, u: Tensor = u) -> Tensor:
            return torch.cat([each(m[[c]], u[[c]]) for c, each in enumerate(alone)])

        for way in ("forward", "forward + backward"):
            medians = []
            for name, call in (("loop", one_by_one), ("bank", together)):

                def work(call: Callable[[], Tensor] = call, way: str = way) -> None:
                    with torch.autocast(device.split(":")[0], torch.bfloat16, enabled=device.startswith("cuda")):
                        found = call()
                    if way != "forward":
                        found.float().square().mean().backward()

                times = seconds(work, device, given.repeat)
                medians.append(statistics.median(times))
                gain = f"{medians[0] / medians[1]:.1f} x" if len(medians) == 2 else ""
                rows.append([str(classes), way, name, *cells(times, classes * given.samples, "maps"), gain])
    heads = ("classes", "what", "how", "median ms", "fastest – slowest", "rate", "bank is faster by")
    show(f"generators, {given.samples} samples of a class, width {given.width}", device, heads, rows)


if __name__ == "__main__":
    main()
