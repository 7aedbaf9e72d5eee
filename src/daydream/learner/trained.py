"""What a model whose network was trained cannot do, and why: one line each."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from daydream.data.images import ImageSet
from daydream.engine import Display
from daydream.errors import UserError
from daydream.learner.advice import Doubt, Outlook
from daydream.learner.pictures import Picture


class Trained:
    """Refuses what only an exact model can do."""

    def forget(self, *names: str) -> None:
        raise cannot("forget", "its network was trained on all pictures at once: learn the others anew")

    def forget_pictures(self, folder: str | Path) -> int:
        raise cannot("forget", "its network was trained on all pictures at once: learn the others anew")

    def forget_digests(self, digests: Tensor) -> None:
        raise cannot("forget", "its network was trained on all pictures at once: learn the others anew")

    def merge(self, names: Sequence[str], into: str) -> None:
        raise cannot("merge classes", "its network was trained to tell them apart: learn them anew as one")

    def move(self, digests: Tensor, to: str) -> None:
        raise cannot("move pictures", "its network was trained with them where they are: learn anew")

    def undo(self) -> None:
        raise cannot("undo", "its file keeps one state of the network: take a copy of the file before a lesson")

    def neighbours(self, picture: Picture, count: int) -> list[tuple[int, str, float]]:
        raise cannot("say which pictures are near", "it keeps no features, which change with each lesson")

    def doubts(self) -> list[Doubt]:
        raise cannot("doubt its pictures", "it has trained on them, so it finds them all likely")

    def ask_next(self, folder: str | Path, count: int, *, display: Display | None = None) -> tuple[ImageSet, Tensor]:
        raise cannot("say what to label next", "it keeps no features to compare pictures by")

    def outlook(self) -> Outlook:
        raise cannot("say what would help it", "it would have to be trained again without some pictures")


def cannot(what: str, why: str) -> UserError:
    return UserError(f"a model of the adapting learner cannot {what}: {why}")
