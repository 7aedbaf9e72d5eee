"""A model to teach or to ask, whichever learner it is: a new one, or one read from its file.

Imports no torch until it makes one, so that a command or a page may ask for it at once.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from daydream.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from daydream.data.images import ImageSet
    from daydream.engine import Display
    from daydream.export.classifier import Classifier
    from daydream.learner.advice import Doubt, Outlook
    from daydream.learner.history import Record
    from daydream.learner.model import LessonRecord
    from daydream.learner.pictures import Picture
    from daydream.learner.reports import ClassReport, TestReport

log = logging.getLogger("daydream")

USUAL = "efficientnet-lite0"
"""The network of the exact learner where none is named."""


class Teachable(Protocol):
    """What both learners can be asked; what one cannot do it says in one line."""

    @property
    def kind(self) -> Literal["exact", "adapting"]: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def size(self) -> int:
        """Side of pictures as they are stored."""
        ...

    @property
    def classes(self) -> "list[ClassReport]": ...
    @property
    def history(self) -> "Sequence[Record | LessonRecord]": ...
    @property
    def classifier(self) -> "Classifier": ...
    def learn(
        self,
        folder: str | Path,
        unlabeled: str | Path | None = None,
        test: str | Path | None = None,
        *,
        display: "Display | None" = None,
    ) -> "Record | LessonRecord":
        """Learn the classes of a folder; a lesson that fails changes nothing."""
        ...

    def probabilities(self, pictures: "Picture | Sequence[Picture]") -> "Tensor": ...
    def predict(self, pictures: "Picture | Sequence[Picture]") -> list[tuple[str, float]]: ...
    def judged(self, images: "ImageSet") -> "Tensor":
        """Return probabilities [N, C] of images stored at `size`."""
        ...

    def told(self, images: "ImageSet") -> "tuple[Tensor, Tensor]":
        """Return probabilities [N, C] of images stored at `size`, and how known each looks [N]."""
        ...

    def looks(self, pictures: "Picture | Sequence[Picture]") -> "Tensor":
        """Return how known pictures look [N]: below `rejection`, one is likely of no known class."""
        ...

    def rejection(self, share: float) -> float: ...
    def test(self, folder: str | Path, *, display: "Display | None" = None) -> "TestReport": ...
    def neighbours(self, picture: "Picture", count: int) -> list[tuple[int, str, float]]: ...
    def forget(self, *names: str) -> None: ...
    def forget_pictures(self, folder: str | Path) -> int: ...
    def forget_digests(self, digests: "Tensor") -> None: ...
    def rename(self, name: str, to: str) -> None: ...
    def merge(self, names: Sequence[str], into: str) -> None: ...
    def move(self, digests: "Tensor", to: str) -> None: ...
    def undo(self) -> None: ...
    def doubts(self) -> "list[Doubt]": ...
    def ask_next(
        self, folder: str | Path, count: int, *, display: "Display | None" = None
    ) -> "tuple[ImageSet, Tensor]": ...
    def outlook(self) -> "Outlook": ...
    def export_onnx(self, path: str | Path) -> None: ...
    def export_state_dict(self, path: str | Path) -> None: ...
    def save(self, path: str | Path) -> None: ...


def create(
    *,
    device: str = "auto",
    backbone: str | None = None,
    image_size: int | None = None,
    keep_features: bool | int = True,
    **settings: Any,
) -> Teachable:
    """Return a learner that knows nothing: the exact one, or with `method=` the adapting one.

    A backbone that is named stays frozen, whatever its weights. With none named and no published weights here, the
    adapting learner trains a network of its own.
    """
    if settings.get("method") is None and (backbone is not None or learner_for(None, None) == "exact"):
        from daydream.learner.embedding import FeatureCache
        from daydream.learner.exact_learner import ExactLearner

        if others := ", ".join(sorted(settings.keys() - {"method"})):
            raise UserError(f"{others}: of the adapting learner; name its method too, such as method='replay'")
        return ExactLearner.create(
            backbone, image_size=image_size, keep_features=bool(keep_features), cache=FeatureCache(), device=device
        )
    from daydream.learner.learner import Learner

    return Learner.create(device=device, backbone=backbone, image_size=image_size, **settings)


def load(path: str | Path, *, device: str = "auto") -> Teachable:
    """Read a model file of either learner. Nothing in it can run code."""
    if is_exact(Path(path)):
        from daydream.learner.embedding import FeatureCache
        from daydream.learner.exact_learner import ExactLearner

        return ExactLearner.load(path, cache=FeatureCache(), device=device)
    from daydream.learner.learner import Learner

    return Learner.load(path, device=device)


def is_exact(path: Path) -> bool:
    """Say whether a file is a model of the exact learner, by its first bytes: those of safetensors."""
    if not os.path.isfile(path):
        return False
    try:
        with path.open("rb") as file:
            return file.read(9)[8:] == b"{"
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error


def learner_for(method: str | None, backbone: str | None) -> Literal["exact", "adapting"]:
    """Return which learner a new model gets: the exact one where the network has weights worth keeping frozen."""
    from daydream.nets.efficientnet_lite import FAMILY
    from daydream.nets.frozen import HUB
    from daydream.nets.network import STAGES, check_backbone
    from daydream.nets.pretrained import INSTALL, installed
    from daydream.nets.timm_backbone import PRETRAINED

    if method is not None:
        return "adapting"
    if backbone is not None and (backbone.startswith((FAMILY, HUB)) or backbone.endswith(PRETRAINED)):
        return "exact"
    if backbone is not None:
        check_backbone(backbone, STAGES[2])
        log.info("%s has no published weights here, so it is trained: by the method replay, or imagine", backbone)
        return "adapting"
    if installed(USUAL):
        return "exact"
    log.warning("there are no published weights here (%s), so a small network is trained: it takes longer", INSTALL)
    return "adapting"
