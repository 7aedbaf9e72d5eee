"""What a run does besides training steps: augment, judge, herd, mine, write and read a checkpoint.

    python benchmarks/parts.py [--images 10000] [--pile 50000] [--classes 100] [--generators 20]

Random images of CIFAR's size; ResNet-32.
"""

import tempfile
from pathlib import Path

import torch
from timing import arguments, cells, seconds, show

from daydream import checkpoint, mining
from daydream.data.augment import CropFlip, Prepare
from daydream.data.images import ImageSet, Resident
from daydream.inference import over_images
from daydream.memory import Budget, Memory, herd
from daydream.nets.generators import GeneratorBank
from daydream.nets.network import Network
from daydream.runs import load_checkpoint, save_checkpoint
from daydream.stage import State


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--pile", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--generators", type=int, default=20, help="classes with a generator in the checkpoint")
    given = parser.parse_args()
    device = given.device
    prepare = Prepare((0.5,) * 3, (0.25,) * 3, 32)
    augment = CropFlip(prepare)
    labels = torch.arange(given.images) % given.classes
    pixels = torch.randint(0, 256, (given.images, 3, 32, 32), dtype=torch.uint8, device=device)
    images = ImageSet(Resident(pixels), labels, tuple(map(str, range(given.classes))))
    net = Network("resnet32", "proxy", (given.classes,)).to(device).eval()
    draws = {name: values[0].to(device) for name, values in augment.draw(torch.Generator(), 1, 512).items()}
    features = torch.randn(given.images, 64, device=device)
    scores = torch.randn(given.pile, given.classes, device=device) * 3

    state = State(Memory.empty(Budget("total", 2000)), torch.device(device))
    state.nets = {"net": net, "generators": GeneratorBank(given.generators, 64).to(device)}
    info, components = checkpoint.pack(state)
    size = sum(v.numel() * v.element_size() for part in components.values() for v in part.values()) / 1e6

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "checkpoint"
        work = {
            "augment a batch of 512": (lambda: augment(pixels[:512], draws), 512, "images"),
            f"judge {given.images:,} images": (
                lambda: over_images(lambda x: (net(x),), images, prepare), given.images, "images"
            ),
            f"herd 20 of {given.images // given.classes} images of {given.classes} classes": (
                lambda: herd(features, labels, 20), given.images, "images"
            ),
            f"mine a pile of {given.pile:,} by its scores": (
                lambda: mining.most_certain(scores, 2), given.pile, "images"
            ),
            f"write a checkpoint of {size:.0f} MB": (lambda: save_checkpoint(place, info, components), size, "MB"),
            "read it": (lambda: load_checkpoint(place), size, "MB"),
        }  # fmt: skip
        rows = [
            [name, *cells(seconds(call, device, given.repeat), amount, unit)]
            for name, (call, amount, unit) in work.items()
        ]
    show("beside training", device, ("what", "median ms", "fastest – slowest", "rate"), rows)


if __name__ == "__main__":
    main()
