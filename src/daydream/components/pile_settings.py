"""The settings of the unlabelled pile: where it comes from, which of it is used, and what is taught on it."""

from dataclasses import dataclass
from typing import Literal

from daydream.data.unlabeled import PileSource
from daydream.settings import flag, require, setting


@dataclass(frozen=True, kw_only=True)
class TeachingSettings:
    """What is taught on unlabelled images, in runs and in lessons."""

    pile_teach: bool = setting(
        False,
        "teach on unlabelled images: what the old network says of them stays, at weights that suit memory and classes",
    )
    pile_distill: float | None = setting(
        None,
        "weight of feature distillation on unlabelled images, times sqrt(seen / new); by default 0.5 beside "
        "generators and with --pile-teach, else 0",
        expert=True,
    )
    pile_labels: float = setting(
        0.0, "weight of the pile's cross-entropy on predicted classes in the mean over all samples", expert=True
    )
    pile_soft: float = setting(
        0.0,
        "weight of the pile's cross-entropy on the old network's answers (soft labels) in the mean over all samples; "
        "with --pile-teach 0 is what suits",
        expert=True,
    )
    pile_batch: int | None = setting(
        None,
        "unlabelled images in a step, where there are no counterparts; by default two for each exemplar, with "
        "--pile-teach half as many as real images",
        expert=True,
    )
    pile_base: float = setting(
        0.0,
        "weight of naming the quarter an unlabelled image is turned by, in the base task (ICLR 2018); 0 is without",
        expert=True,
    )
    mining: Literal["entropy", "uniform"] = setting(
        "entropy", "which unlabelled images: the most certain ones, or any", expert=True
    )

    def __post_init__(self) -> None:
        weight = self.pile_distill
        require(weight is None or weight >= 0, f"--pile-distill {weight} must not be negative")
        size = self.pile_batch
        require(size is None or size >= 1, f"--pile-batch {size} must be at least 1")
        for name in ("pile_labels", "pile_soft", "pile_base"):
            require(getattr(self, name) >= 0, f"{flag(name)} {getattr(self, name)} must not be negative")


@dataclass(frozen=True, kw_only=True)
class PileSettings(PileSource, TeachingSettings):
    """The pile of a run."""

    def __post_init__(self) -> None:
        PileSource.__post_init__(self)
        TeachingSettings.__post_init__(self)
