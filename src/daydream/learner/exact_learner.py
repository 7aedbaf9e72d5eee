"""The exact learner on folders of pictures: a frozen network, an exact model, one file.

learner = ExactLearner.create()
learner.learn("photos/spring")
learner.save("model.daydream")
label, probability = ExactLearner.load("model.daydream").predict("photo.jpg")[0]
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream.data import cache as decoded
from daydream.data.augment import Prepare
from daydream.data.decoded import Decoded
from daydream.data.images import ImageSet
from daydream.data.sources.folder import MEAN, STD
from daydream.engine import Display, Hardware
from daydream.errors import UserError
from daydream.export.classifier import Classifier
from daydream.learner import advice, exact, exact_file, history
from daydream.learner.embedding import Embedder, FeatureCache
from daydream.learner.exact import ExactModel
from daydream.learner.exact_file import Content
from daydream.learner.exact_words import SIDES
from daydream.learner.history import History, Record
from daydream.learner.opening import USUAL
from daydream.learner.pictures import Picture, stored
from daydream.learner.quick_files import make_ready
from daydream.learner.reading import Labelled, Seen, check_folder, read_classes, read_folder, read_tests
from daydream.learner.reports import ClassReport, TestReport, report
from daydream.nets.efficientnet_lite import normalisation
from daydream.nets.frozen import FROZEN, check_side, is_timm, licence_of, look_of
from daydream.nets.network import Network
from daydream.nets.pretrained import PUBLISHED
from daydream.nets.resnet import parameter_count
from daydream.nets.ridge import Ridge
from daydream.settings import require

log = logging.getLogger("daydream")

SIDE = 64
"""Of pictures for a network without published weights."""


class ExactLearner:
    """A frozen network, what is known by it, and what happened to it."""

    kind: Literal["exact"] = "exact"

    def __init__(self, embed: Embedder, origin: str, model: ExactModel | None, keep_features: bool) -> None:
        self.embed, self.origin, self.model, self.keep_features = embed, origin, model, keep_features
        self.past: History = ()
        self.earlier: tuple[History, ...] = ()

    @classmethod
    def create(
        cls,
        backbone: str | None = None,
        *,
        image_size: int | None = None,
        keep_features: bool = True,
        cache: FeatureCache | None = None,
        device: str = "cpu",
    ) -> "ExactLearner":
        """Return a learner that knows nothing.

        Pictures are brought to the side the weights were trained at, small ones too: of 500 pictures of 64 pixels,
        left out in turn, 77% were recognised at 224 pixels and 68% at 128, for a third of the time.
        """
        name = backbone or USUAL
        low, high = SIDES
        within = image_size is None or low <= image_size <= high
        require(within, f"--image-size {image_size} must lie between {low} and {high}")
        net, prepare = made(name, image_size)
        return cls(Embedder(net.to(_device(device)), prepare, cache), name, None, keep_features)

    @classmethod
    def load(cls, path: str | Path, *, cache: FeatureCache | None = None, device: str = "cpu") -> "ExactLearner":
        """Read a model file. Nothing in it can run code."""
        learner = cls.of(exact_file.load(Path(path), _device(device)), cache)
        if learner.embed.identity != learner.taught.embedding:
            raise UserError(f"{path} is damaged (its features are of another network than its own)")
        return learner

    @classmethod
    def of(cls, content: Content, cache: FeatureCache | None = None) -> "ExactLearner":
        """Return the learner that a file's content is of."""
        embed, model = Embedder(content.net, content.prepare, cache), content.model
        learner = cls(embed, content.origin, model, model.known.features is not None)
        learner.past, learner.earlier = content.history, content.earlier
        return learner

    @property
    def content(self) -> Content:
        """Return all that its file holds."""
        return Content(self.embed.net, self.origin, self.embed.prepare, self.taught, self.past, self.earlier)

    def save(self, path: str | Path) -> None:
        """Write the model file, whole or not at all; a new one is its owner's alone."""
        exact_file.save(Path(path), self.content)

    @property
    def taught(self) -> ExactModel:
        """Return the model of a learner that has had a lesson."""
        if self.model is None:
            raise UserError("the learner knows no class yet: let it learn a folder first")
        return self.model

    @property
    def names(self) -> tuple[str, ...]:
        return self.model.names if self.model is not None else ()

    @property
    def size(self) -> int:
        """Return the side of pictures as they are stored."""
        return self.embed.prepare.size

    @property
    def about(self) -> str:
        """Say in one line which network it is, whose licence and how large."""
        known, count = PUBLISHED.get(self.origin.split("@")[0]), parameter_count(self.embed.net)
        weights = f", weights from {known.origin} ({known.licence})" if known is not None else ""
        licence = licence_of(self.origin)
        weights = weights or (f", published weights (licence: {licence})" if licence else "")
        return f"{self.origin}{weights}, {count / 1e6:.1f} M parameters, frozen, at {self.size} pixels"

    @property
    def settings(self) -> dict[str, Any]:
        """Return what it was made with, as its flags have it."""
        return {"backbone": self.origin, "image_size": self.size, "keep_features": int(self.keep_features)}

    @property
    def classes(self) -> list[ClassReport]:
        """Return what is known of each class, in order of arrival."""
        return history.class_reports(self.past, self.taught)

    @property
    def history(self) -> list[Record]:
        """Return lessons and changes, the oldest first."""
        return list(self.past)

    # Lessons.

    def learn(
        self,
        folder: str | Path,
        unlabeled: str | Path | None = None,
        test: str | Path | None = None,
        *,
        display: Display | None = None,
    ) -> Record:
        """Learn the classes of a folder, a sub-folder each; a lesson that fails changes nothing.

        `test` holds test pictures of known classes, which are not learnt: they are measured, and calibrate a model that
        keeps no features. Unlabelled pictures are of no use to a lesson; `ask_next` says which of them to label.
        """
        if unlabeled is not None:
            check_folder(Path(unlabeled))
            log.info("unlabelled pictures teach a frozen network nothing; `daydream next` says which of them to label")
        shown, start = display or Display(), time.perf_counter()
        lesson = read_classes(Path(folder), self.embed, self.size, shown)
        names = (*self.names, *(name for name in lesson.names if name not in self.names))
        tests = None if test is None else read_tests(Path(test), names, self.embed, self.size, shown)
        model = self._taught(lesson if tests is None else _apart(lesson, tests))
        measured = None
        if tests is not None:
            judged, model = self._measured(model, tests)
            measured = judged.accuracy
        before = 0 if self.model is None else len(self.model.known.labels)
        said = {
            "new": len(model.names) - len(self.names),
            "images": len(model.known.labels) - before,
            "seconds": round(time.perf_counter() - start, 1),
            "test": measured,
        }
        if self.model is not None and model.known is self.model.known:  # nothing that it had not
            self.model = model
            return history.recorded(self.past, model, "lesson", **said)[-1]
        self._becomes(model, history.recorded(self.past, model, "lesson", **said))
        return self.past[-1]

    def _taught(self, lesson: Labelled) -> ExactModel:
        return exact.learn(
            self.model,
            self.embed.identity,
            lesson.names,
            lesson.labels,
            lesson.seen.digests,
            lesson.seen.features,
            keep_features=self.keep_features,
        )

    def _measured(self, model: ExactModel, tests: Labelled) -> tuple[TestReport, ExactModel]:
        """Judge test pictures, by which a model without features is calibrated first."""
        fresh = ~torch.isin(tests.seen.digests, model.known.digests)
        if not bool(fresh.any()):
            raise UserError("all of these test pictures have been learnt: give others")
        features, labels = tests.seen.features[fresh], tests.labels[fresh]
        if model.known.features is None:
            model = exact.calibrated(model, features, labels)
        return report(exact.probabilities(model, features), labels, model.names), model

    def _becomes(self, model: ExactModel, past: History) -> None:
        self.earlier = (*self.earlier, self.past)[-len(model.earlier) :] if model.earlier else ()
        self.model, self.past = model, past

    # Changes.

    def forget(self, *names: str) -> None:
        """Forget classes: their features, digests, the states before, and what the caches hold of them."""
        gone = torch.zeros(len(self.taught.known.labels), dtype=torch.bool)
        for name in names:
            gone |= exact.pictures_of(self.taught, name)
        self._forget(gone, None)

    def forget_pictures(self, folder: str | Path) -> int:
        """Forget the pictures under a folder, whatever their class; return how many were known."""
        seen = read_folder(Path(folder), None, self.size, Display())
        known = self.taught.known
        gone = torch.isin(known.digests, seen.digests)
        if not bool(gone.any()):
            raise UserError(
                f"none of the {len(seen.paths)} pictures under {folder} is among those the model has learnt"
            )
        again = None
        if known.sums is not None:
            place = dict(zip(seen.digests.tolist(), seen.paths, strict=True))
            pictures = stored([place[digest] for digest in known.digests[gone].tolist()], self.size)
            again = self.embed.computed(pictures)
        self._forget(gone, again)
        return int(gone.sum())

    def forget_digests(self, digests: Tensor) -> None:
        """Forget pictures by their digests, each of which must be known."""
        self._forget(exact.pictures_with(self.taught, digests), None)

    def _forget(self, gone: Tensor, again: Tensor | None) -> None:
        digests = self.taught.known.digests[gone]
        model = exact.forget(self.taught, gone, again)
        if self.embed.cache is not None:
            self.embed.cache.forget(digests)
        decoded.drop()
        self._becomes(model, history.forgotten(self.past, model))

    def rename(self, name: str, to: str) -> None:
        """Give a class another name."""
        model = exact.rename(self.taught, name, to)
        self._becomes(model, history.recorded(history.renamed(self.past, {name: to}), model, "rename"))

    def merge(self, names: Sequence[str], into: str) -> None:
        """Make one class of several."""
        model = exact.merge(self.taught, names, into)
        past = history.renamed(self.past, dict.fromkeys(names, into))
        self._becomes(model, history.recorded(past, model, "merge"))

    def move(self, digests: Tensor, to: str) -> None:
        """Give pictures, by their digests, another class, new or known."""
        moved = exact.pictures_with(self.taught, digests)
        model = exact.move(self.taught, moved, to)
        if model is not self.taught:
            self._becomes(model, history.recorded(self.past, model, "move", images=int(moved.sum())))

    def undo(self) -> None:
        """Go back to before the last lesson, renaming, merging or move."""
        self.model = exact.undo(self.taught)
        *earlier, self.past = self.earlier
        self.earlier = tuple(earlier)

    # What it says of pictures.

    def probabilities(self, pictures: Picture | Sequence[Picture]) -> Tensor:
        """Return calibrated probabilities [N, C] of pictures; classes in the order of `names`."""
        return exact.probabilities(self.taught, self._features(pictures))

    def judged(self, images: ImageSet) -> Tensor:
        """Return calibrated probabilities [N, C] of images stored as the learner stores them."""
        return exact.probabilities(self.taught, self.embed.computed(images.pixels, padded=False))

    def told(self, images: ImageSet) -> tuple[Tensor, Tensor]:
        """Return probabilities [N, C] of images stored as the learner stores them, and how known each looks [N]."""
        features = self.embed.computed(images.pixels, padded=False)
        return exact.probabilities(self.taught, features), exact.looks(self.taught, features)

    def looks(self, pictures: Picture | Sequence[Picture]) -> Tensor:
        """Return how known pictures look [N], which a rejection is compared with."""
        return exact.looks(self.taught, self._features(pictures))

    def predict(self, pictures: Picture | Sequence[Picture]) -> list[tuple[str, float]]:
        """Return, for each picture, its most likely class and the probability of it."""
        best = self.probabilities(pictures).max(1)
        names = [self.names[label] for label in best.indices.tolist()]
        return list(zip(names, best.values.tolist(), strict=True))

    def rejection(self, share: float) -> float:
        """Return the `looks` below which a picture is likely of no known class; a share of known ones is below too."""
        return exact.rejection(self.taught, share)

    def neighbours(self, picture: Picture, count: int) -> list[tuple[int, str, float]]:
        """Return the nearest pictures it has learnt: digest, class and cosine, the nearest first."""
        known = self.taught.known
        if known.features is None:
            raise UserError("this model keeps no features, so it cannot say which pictures are near")
        cosines = F.normalize(known.features, dim=1) @ F.normalize(self._features(picture), dim=1)[0]
        near = cosines.topk(min(count, len(cosines)))
        return [
            (int(known.digests[i]), known.names[int(known.labels[i])], value)
            for i, value in zip(near.indices.tolist(), near.values.tolist(), strict=True)
        ]

    def _features(self, pictures: Picture | Sequence[Picture]) -> Tensor:
        return self.embed.computed(stored(pictures, self.size), padded=False)

    def test(self, folder: str | Path, *, display: Display | None = None) -> TestReport:
        """Judge a folder of test pictures, a sub-folder per known class."""
        tests = read_tests(Path(folder), self.taught.names, self.embed, self.size, display or Display())
        judged, self.model = self._measured(self.taught, tests)
        return judged

    def doubts(self) -> list[advice.Doubt]:
        """Return pictures that are likely mislabelled, doubled or odd."""
        return advice.doubts(self.taught)

    def ask_next(self, folder: str | Path, count: int, *, display: Display | None = None) -> tuple[ImageSet, Tensor]:
        """Return the pictures of a pile, by their paths, and the index of those to label next."""
        seen = read_folder(Path(folder), self.embed, self.size, display or Display())
        images = ImageSet(Decoded(seen.paths, self.size), torch.zeros(len(seen.paths), dtype=torch.int64), ("",))
        return images, advice.ask_next(self.taught, seen.features, count)

    def outlook(self) -> advice.Outlook:
        """Say how good it is, and what would help most."""
        return advice.outlook(self.taught)

    # Taking it elsewhere.

    def make_ready(self) -> None:
        """Let later predictions of its file start without torch, where onnxruntime is installed."""
        make_ready(self.embed, self.taught.judged.ridge.projection)

    @property
    def classifier(self) -> Classifier:
        """Return the network with its ridge regression as a head, and all that is needed to use it elsewhere."""
        temperature = exact.temperature_of(self.taught)
        net = with_ridge(self.embed.net, self.taught.judged.ridge)
        return Classifier(net, self.embed.prepare, self.names, temperature, self.size)

    def export_onnx(self, path: str | Path) -> None:
        """Write network and head as ONNX, the preprocessing in its metadata."""
        self.classifier.write_onnx(Path(path))

    def export_state_dict(self, path: str | Path) -> None:
        """Write network and head as safetensors; `daydream.export.classifier.load_exported` reads the file too."""
        self.classifier.write_safetensors(Path(path))


def made(name: str, image_size: int | None) -> tuple[Network, Prepare]:
    """Return a frozen network, and how its pictures are prepared: as its weights were trained, where they say so."""
    published = PUBLISHED.get(name.split("@")[0])
    if not is_timm(name):
        net = Network(name, "linear")
        side = image_size or (published.size if published is not None else SIDE)
        return net.requires_grad_(False), Prepare(*normalisation(name, MEAN, STD), side)
    net = Network(FROZEN + name, "linear").eval()
    look = look_of(net.upper.get_submodule("stage4"))
    side = image_size or look.size
    check_side(name, net.upper, side)
    return net.requires_grad_(False), Prepare(look.mean, look.std, side)


def _device(device: str) -> torch.device:
    return Hardware.choose(device, "fp32", compile=False, capture=None).device


def with_ridge(net: Network, ridge: Ridge) -> Network:
    """Return a copy of a network whose head is a ridge regression on its features."""
    head = "unit" if ridge.projection is None else "projected"
    backbone, _, cut = net.kinds
    made = Network(backbone, head, (len(ridge.bias),), cut)
    weights = {name: value for name, value in net.state_dict().items() if not name.startswith("head.")}
    weights |= {"head.weights.0": ridge.weight[:, None].float(), "head.biases.0": ridge.bias.float()}
    if ridge.projection is not None:
        weights["head.projection"] = ridge.projection.matrix(net.head.dim)
    made.load_state_dict(weights)
    return made.eval().requires_grad_(False)


def _apart(lesson: Labelled, tests: Labelled) -> Labelled:
    """Return a lesson without its test pictures."""
    keep = ~torch.isin(lesson.seen.digests, tests.seen.digests)
    kept = lesson.labels[keep]
    for label, name in enumerate(lesson.names):
        if not bool((kept == label).any()):
            raise UserError(f"class '{name}' has no picture that is not a test picture too")
    seen, rows = lesson.seen, keep.nonzero().squeeze(1)
    paths = tuple(seen.paths[i] for i in rows.tolist())
    return Labelled(lesson.names, kept, Seen(paths, seen.digests[keep], seen.features[keep], seen.index[keep]))
