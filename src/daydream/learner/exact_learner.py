"""The exact learner on folders of pictures: a frozen network, an exact model, one file.

learner = ExactLearner.create()
learner.learn("photos/spring")
learner.save("model.exact")
label, probability = ExactLearner.load("model.exact").predict("photo.jpg")[0]

The file is safetensors: the network's weights, the model's tensors, JSON in its metadata. Nothing in it can run code.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError, safe_open
from torch import Tensor

from daydream import atomic
from daydream.data.augment import Prepare
from daydream.data.decode import decode, square
from daydream.data.images import ImageSet, Resident
from daydream.data.sources.folder import MEAN, STD
from daydream.errors import UserError
from daydream.learner import advice, exact
from daydream.learner.calibration import expected_calibration_error
from daydream.learner.embedding import Embedder, FeatureCache, pixel_digests
from daydream.learner.exact import ExactModel
from daydream.learner.exact_file import packed, unpacked
from daydream.learner.intake import read_known, read_labelled, read_pile
from daydream.nets.efficientnet_lite import normalisation
from daydream.nets.network import Network, architecture
from daydream.nets.pretrained import PUBLISHED
from daydream.settings import require
from daydream.storage.tensor_file import write_tensors

FORMAT = "daydream exact 1"
BACKBONE = "efficientnet-lite0"
DAMAGE = (SafetensorError, UserError, LookupError, ValueError, TypeError, AssertionError, RuntimeError, AttributeError)
"""What reading a damaged file may raise."""
SIDE = 64
"""Of pictures for a network without published weights."""
Picture = str | Path | Image.Image | NDArray[np.uint8]


@dataclass(frozen=True)
class Taught:
    """What a lesson brought."""

    pictures: int
    """That were not known before."""
    new: tuple[str, ...]
    accuracy: float | None
    """Mean over classes on pictures left out, in per cent; None where there are too few."""


@dataclass(frozen=True)
class Tested:
    """How a learner does on test pictures, in per cent."""

    accuracy: float
    per_class: dict[str, float]
    calibration_error: float


class ExactLearner:
    """A frozen network and what is known by it."""

    def __init__(self, embed: Embedder, size: int, model: ExactModel | None, keep_features: bool) -> None:
        self.embed, self.size, self.model, self.keep_features = embed, size, model, keep_features

    @classmethod
    def create(
        cls,
        backbone: str = BACKBONE,
        *,
        size: int | None = None,
        keep_features: bool = True,
        cache: FeatureCache | None = None,
        device: str = "cpu",
    ) -> "ExactLearner":
        """Return a learner that knows nothing.

        Pictures are brought to the side the weights were trained at, small ones too: of 500 pictures of 64 pixels,
        left out in turn, 77% were recognised at 224 pixels and 68% at 128, for a third of the time.
        """
        require(size is None or 8 <= size <= 1024, f"--image-size {size} must lie between 8 and 1024")
        published = PUBLISHED.get(backbone)
        chosen = size or (published.size if published is not None else SIDE)
        net = Network(backbone, "linear").requires_grad_(False).to(device)
        prepare = Prepare(*normalisation(backbone, MEAN, STD), chosen)
        return cls(Embedder(net, prepare, cache), chosen, None, keep_features)

    @property
    def taught(self) -> ExactModel:
        """Return the model of a learner that has had a lesson."""
        if self.model is None:
            raise UserError("the learner knows no class yet: let it learn a folder first")
        return self.model

    @property
    def about(self) -> str:
        """Say in one line which network it is, whose licence and how large."""
        backbone = self.embed.net.kinds[0].removesuffix("+untrained").split("@")[0]
        size = sum(value.numel() for value in self.embed.net.state_dict().values())
        known = PUBLISHED.get(backbone)
        origin = f", weights from {known.origin} ({known.licence})" if known is not None else ""
        return f"{backbone}{origin}, {size / 1e6:.1f} M parameters, at {self.size} pixels"

    def learn(self, folder: str | Path) -> Taught:
        """Learn the classes of a folder, a sub-folder each; a lesson that fails changes nothing."""
        known = self.model.names if self.model is not None else ()
        images = read_labelled(Path(folder), known, self.size)
        features, digests = self.embed(images.pixels), pixel_digests(images.pixels)
        before = 0 if self.model is None else len(self.model.known.labels)
        self.model = exact.learn(
            self.model,
            self.embed.identity,
            images.class_names,
            images.labels,
            digests,
            features,
            keep_features=self.keep_features,
        )
        new = tuple(name for name in self.model.names if name not in known)
        return Taught(len(self.model.known.labels) - before, new, exact.accuracy(self.model))

    def forget(self, *names: str) -> None:
        """Forget classes: their features, digests, the states before, and what the cache holds of them."""
        for name in names:
            self._forget(exact.pictures_of(self.taught, name), None)

    def forget_pictures(self, folder: str | Path) -> int:
        """Forget the pictures under a folder, whatever their class; return how many were known."""
        pixels = read_pile(Path(folder), self.size).pixels
        digests = pixel_digests(pixels)
        gone = exact.pictures_with(self.taught, digests.unique())
        again = None
        if self.taught.known.sums is not None:
            features = dict(zip(digests.tolist(), self.embed.computed(pixels), strict=True))
            again = torch.stack([features[digest] for digest in self.taught.known.digests[gone].tolist()])
        self._forget(gone, again)
        return int(gone.sum())

    def _forget(self, gone: Tensor, again: Tensor | None) -> None:
        digests = self.taught.known.digests[gone]
        self.model = exact.forget(self.taught, gone, again)
        if self.embed.cache is not None:
            self.embed.cache.forget(digests)

    def undo(self) -> None:
        """Go back to before the last lesson, renaming or merging."""
        self.model = exact.undo(self.taught)

    def rename(self, name: str, to: str) -> None:
        """Give a class another name."""
        self.model = exact.rename(self.taught, name, to)

    def merge(self, names: Sequence[str], into: str) -> None:
        """Make one class of several."""
        self.model = exact.merge(self.taught, names, into)

    def probabilities(self, pictures: Picture | Sequence[Picture]) -> Tensor:
        """Return calibrated probabilities [N, C] of pictures; classes in the order of `taught.names`."""
        several = [pictures] if isinstance(pictures, str | Path | Image.Image | np.ndarray) else list(pictures)
        names = self.taught.names
        if not several:
            return torch.zeros(0, len(names), dtype=torch.float64)
        pixels = torch.from_numpy(np.stack([_pixels(picture, self.size) for picture in several]))
        return exact.probabilities(self.taught, self.embed.computed(Resident(pixels)))

    def predict(self, pictures: Picture | Sequence[Picture]) -> list[tuple[str, float]]:
        """Return, for each picture, its most likely class and the probability of it."""
        best = self.probabilities(pictures).max(1)
        names = [self.taught.names[label] for label in best.indices.tolist()]
        return list(zip(names, best.values.tolist(), strict=True))

    def test(self, folder: str | Path) -> Tested:
        """Judge a folder of test pictures, a sub-folder per known class."""
        images = read_known(Path(folder), self.taught.names, self.size)
        features = self.embed(images.pixels)
        if self.taught.judged.temperature is None:
            self.model = exact.calibrated(self.taught, features, images.labels)
        p = exact.probabilities(self.taught, features)
        right = (p.argmax(1) == images.labels).double()
        present = images.labels.unique().tolist()
        per_class = {self.taught.names[label]: 100 * float(right[images.labels == label].mean()) for label in present}
        return Tested(100 * float(right.mean()), per_class, 100 * expected_calibration_error(p, images.labels))

    def doubts(self) -> list[advice.Doubt]:
        """Return pictures that are likely mislabelled, doubled or odd."""
        return advice.doubts(self.taught)

    def ask_next(self, folder: str | Path, count: int) -> tuple[ImageSet, Tensor]:
        """Return the pictures of a pile, and the index of those to label next."""
        pile = read_pile(Path(folder), self.size)
        return pile, advice.ask_next(self.taught, self.embed(pile.pixels), count)

    def outlook(self) -> advice.Outlook:
        """Say how good it is, and what would help most."""
        return advice.outlook(self.taught)

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        words, tensors = packed(self.taught)
        net = self.embed.net
        tensors |= {f"net/{k}": v for k, v in net.state_dict().items() if not k.startswith("head.")}
        content = {"model": words, "backbone": architecture(net.kinds[0]), "prepare": asdict(self.embed.prepare)}
        metadata = {"format": FORMAT, "about": json.dumps(content)}
        try:
            with atomic.replacing(Path(path)) as part:
                write_tensors(part, tensors, metadata)
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: str | Path, *, cache: FeatureCache | None = None, device: str = "cpu") -> "ExactLearner":
        """Read a file back; one that is damaged or none of ours is said in one line."""
        if Path(path).exists() and not Path(path).is_file():
            raise UserError(f"{path} cannot be read: it is no file but a folder, a device or a pipe")
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            require(metadata.get("format") == FORMAT, "it is no model of the exact learner")
            return cls._of(json.loads(metadata["about"]), tensors, cache, device)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
        except DAMAGE as error:
            reason = " ".join(str(error).split())[:120]
            raise UserError(f"{path} is damaged or no model ({reason}); take a copy of it that is whole") from error

    @classmethod
    def _of(
        cls, about: dict[str, Any], tensors: dict[str, Tensor], cache: FeatureCache | None, device: str
    ) -> "ExactLearner":
        backbone, look = about["backbone"], about["prepare"]
        require(architecture(backbone) == backbone, "it asks for weights from elsewhere")
        net = Network(backbone, "linear").requires_grad_(False)
        weights = {name.removeprefix("net/"): value for name, value in tensors.items() if name.startswith("net/")}
        net.load_state_dict(weights)
        prepare = Prepare(tuple(look["mean"]), tuple(look["std"]), int(look["size"]))
        model = unpacked(about["model"], tensors)
        embed = Embedder(net.to(device), prepare, cache)
        require(embed.identity == model.embedding, "its features are of another network than its own")
        return cls(embed, prepare.size, model, model.known.features is not None)


def _pixels(picture: Picture, canvas: int) -> NDArray[np.uint8]:
    """Return a picture as the learner stores it."""
    if isinstance(picture, Image.Image):
        return square(picture, canvas)
    if isinstance(picture, np.ndarray):
        return square(Image.fromarray(picture), canvas)
    try:
        return decode(str(picture), canvas)
    except Exception as error:  # a damaged file can raise nearly anything
        raise UserError(f"{picture} cannot be read as a picture: {' '.join(str(error).split())}") from error
