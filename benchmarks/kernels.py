"""Time the kernels of ResNet-32's stages on a GPU, each alone and one of four at the same time, and the whole network.

    python benchmarks/kernels.py [--batch 128 240] [--many 30]

Microseconds: medians of `--repeat` replays of a CUDA graph with `--many` launches of a kernel one after the other, or
so on four streams. Of a batch at most 128 make the statistics of batch norms.
"""

import statistics
from collections.abc import Callable

import torch
from timing import arguments, captured, seconds, show
from torch import Tensor, nn

from daydream.kernels import launches
from daydream.nets.network import Network

SIDES = {16: 32, 32: 16, 64: 8}  # of maps, by their channels
AT_ONCE = 4
HOSTS = 128


def on_streams(call: Callable[[int], object], streams: list[torch.cuda.Stream]) -> None:
    """Ask for a call on each stream at the same time, and wait for all."""
    here = torch.cuda.current_stream()
    for stream in streams:
        stream.wait_stream(here)
    for place, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            call(place)
    for stream in streams:
        here.wait_stream(stream)


def both(call: Callable[[int], object], many: int, repeat: int) -> str:
    """Return how long a call takes, alone and one of four at once; it is told which of the four it is."""
    streams = [torch.cuda.Stream() for _ in range(AT_ONCE)]

    def in_turn(place: int) -> None:
        for _ in range(many):
            call(place)

    alone = seconds(captured(lambda: in_turn(0)), "cuda", repeat)
    four = seconds(captured(lambda: on_streams(in_turn, streams)), "cuda", repeat)
    shares = statistics.median(alone) / many, statistics.median(four) / many / AT_ONCE
    return " / ".join(f"{1e6 * share:,.1f}" for share in shares)


def calls(channels: int, batch: int, device: str) -> dict[str, Callable[[int], object]]:
    """Return the kernels of a layer of so many channels, read and written, as calls."""
    side = SIDES[channels]
    shape = (batch, channels, side, side)
    last, half = torch.channels_last, torch.bfloat16

    def maps() -> Tensor:
        return torch.randn(shape, device=device).to(half).contiguous(memory_format=last)

    x, y, a = maps(), maps(), maps()
    weight = torch.randn(channels, channels, 3, 3, device=device).to(half).contiguous(memory_format=last)
    norm, gate = nn.BatchNorm2d(channels).to(device), torch.ones(4, channels, device=device)
    sums = launches.no_sums(1, channels, torch.device(device))[0]
    parts = torch.empty(launches.WEIGHTS[channels].chunks, weight.numel(), device=device)
    hosts = min(batch, HOSTS)
    return {
        "forward": lambda _: launches.convolve(x, weight, y, sums=sums, counted=hosts),
        "evaluation": lambda _: launches.convolve(x, weight, y, norm=norm, relu=True),
        "back": lambda _: launches.convolve(x, weight, y, back=True, owner=a, gate=gate, sums=sums),
        "for weights": lambda _: launches.weigh(x, a, 1, parts),
    }


def network(batch: int, device: str) -> dict[str, Callable[[int], object]]:
    """Return passes of whole networks, one for each of those at once."""
    nets = [Network("resnet32", "proxy", (50,)).to(device).train() for _ in range(AT_ONCE)]
    for net in nets:
        assert net.lower.use_kernels()
        assert net.upper.use_kernels()
    x = torch.randn(batch, 3, 32, 32, device=device).contiguous(memory_format=torch.channels_last)
    hosts = min(batch, HOSTS)

    def trained(place: int) -> None:
        net = nets[place]
        with torch.autocast("cuda", torch.bfloat16), net.lower.hosting(hosts), net.upper.hosting(hosts):
            z = net.upper(net.lower(x))
        for parameter in net.parameters():
            parameter.grad = None
        z.float().square().mean().backward()

    @torch.no_grad()
    def evaluated(place: int) -> None:
        net = nets[place].eval()
        with torch.autocast("cuda", torch.bfloat16):
            net.upper(net.lower(x))
        net.train()

    return {"forward and back": trained, "evaluation": evaluated}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[128, 240])
    parser.add_argument("--many", type=int, default=30, help="launches of a kernel in a graph")
    given = parser.parse_args()
    if not given.device.startswith("cuda"):
        parser.error("these kernels need a GPU")
    heads = ("alone / one of four, us", *(f"batch {batch}" for batch in given.batch))
    rows = []
    for channels, side in SIDES.items():
        by_batch = [calls(channels, batch, given.device) for batch in given.batch]
        for name in by_batch[0]:
            times = [both(made[name], given.many, given.repeat) for made in by_batch]
            rows.append([f"{channels} channels of {side} x {side}, {name}", *times])
    by_batch = [network(batch, given.device) for batch in given.batch]
    for name in by_batch[0]:
        rows.append([f"whole network, {name}", *(both(made[name], 1, given.repeat) for made in by_batch)])
    show("kernels of ResNet-32's stages", given.device, heads, rows)


if __name__ == "__main__":
    main()
