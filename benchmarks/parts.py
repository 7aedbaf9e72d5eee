"""What a run does besides training steps: augment, judge, herd, mine, write and read a checkpoint.

    python benchmarks/parts.py [--device cuda] [--images 10000] [--pile 1281167] [--classes 100] [--generators 20]

Random images of CIFAR's size; ResNet-32. The pile is mined by scores that are there: making them is judging its images.
"""

import shutil
import tempfile
from pathlib import Path

import torch
from timing import arguments, cells, seconds, show

from daydream.components import mining
from daydream.data.augment import CropFlip, Prepare
from daydream.data.images import ImageSet, Resident
from daydream.nets.generators import GeneratorBank
from daydream.nets.network import Network
from daydream.protocol import evaluate
from daydream.protocol.inference import over_images
from daydream.protocol.memory import Budget, Memory, herd
from daydream.stages.stage import State
from daydream.storage import state as checkpoint
from daydream.storage.checkpoint_files import load_checkpoint, save_checkpoint


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument(
        "--pile", type=int, default=1_281_167, help="unlabelled images, by default as many as ImageNet's"
    )
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
    batch = pixels[:512]
    draws = {name: values[0].to(device) for name, values in augment.draw(torch.Generator(), 1, len(batch)).items()}
    features = torch.randn(given.images, 64, device=device)
    scores = torch.randn(given.pile, given.classes, device=device) * 3
    judged = torch.randn(given.images, given.classes, device=device)
    means = torch.nn.functional.normalize(torch.randn(given.classes, 64, device=device), dim=1)

    state = State(Memory.empty(Budget("total", 2000)), torch.device(device))
    state.nets = {"net": net, "generators": GeneratorBank(given.generators, 64).to(device)}
    info, components = checkpoint.pack(state)
    size = sum(v.numel() * v.element_size() for part in components.values() for v in part.values()) / 1e6

    def marks() -> None:
        for found in (judged, evaluate.nearest_mean_scores(features, means)):
            evaluate.accuracy(found, labels, (given.classes,))
            evaluate.confusion(found, labels)

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "checkpoint"

        def write() -> None:
            shutil.rmtree(place, ignore_errors=True)  # what is there already would not be written again
            save_checkpoint(place, info, components)

        work = {
            f"augment a batch of {len(batch)}": (lambda: augment(batch, draws), len(batch), "images"),
            f"judge {given.images:,} images": (
                lambda: over_images(lambda x: (net(x),), images, prepare), given.images, "images"
            ),
            "their accuracy and confusion, CNN and NME": (marks, given.images, "images"),
            f"herd 20 of {given.images // given.classes} images of {given.classes} classes": (
                lambda: herd(features, labels, 20), given.images, "images"
            ),
            f"mine a pile of {given.pile:,} by its scores": (
                lambda: mining.most_certain(scores, 2), given.pile, "images"
            ),
            f"write a checkpoint of {size:.0f} MB": (write, size, "MB"),
            "read it": (lambda: load_checkpoint(place), size, "MB"),
        }  # fmt: skip
        rows = [
            [name, *cells(seconds(call, device, given.repeat), amount, unit)]
            for name, (call, amount, unit) in work.items()
        ]
    show("beside training", device, ("what", "median ms", "fastest – slowest", "rate"), rows)


if __name__ == "__main__":
    main()
