"""The settings of imagination, and the forms of the generators' losses that they name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from daydream.settings import flag, require, setting
from daydream.stages import losses as loss


class Form(NamedTuple):
    """A form of the generators' losses: the two losses, and the trade-offs that belong to it."""

    contrast: Callable[[Tensor, Tensor], Tensor]
    decouple: Callable[[Tensor, Tensor], Tensor]
    decoupling: float
    lr: float


FORMS = {
    # The paper prints no trade-offs: these were searched on held-out images (docs/notebook/generator-losses.md).
    "paper": Form(loss.semantic_contrast, loss.semantic_decoupling, decoupling=0.01, lr=0.01),
    "pooled": Form(loss.pooled_contrast, loss.pooled_decoupling, decoupling=2.0, lr=0.1),  # released code
    "relative": Form(loss.relative_contrast, loss.relative_decoupling, decoupling=1.0, lr=0.01),
}


@dataclass(frozen=True, kw_only=True)
class ImaginationSettings:
    """Settings of the generators and of what they imagine."""

    imagine: bool = setting(False, "carry generators and replay what they imagine (always on for --method imagine)")
    counterparts: int = setting(2, "imagined counterparts per exemplar in a batch, n; 0 is the method without (paper)")
    counterparts_from: Literal["generators", "hard", "exemplars", "real", "nothing"] = setting(
        "generators",
        "what makes counterparts: generators, or the exemplar's map moved up the network's loss (hard); or, as a "
        "control, the exemplar's own map, real maps of its class (an oracle: no learner has them), nothing",
        expert=True,
    )
    imagined_weight: float = setting(
        1.0, "weight of the counterparts' cross-entropy in the mean over all samples", expert=True
    )
    generator_epochs: int = setting(40, "epochs of generator training, of 25 updates (released code)", expert=True)
    generator_updates: int = setting(25, "updates in an epoch of generator training (released code)", expert=True)
    generator_lr: float | None = setting(
        None,
        "learning rate, x0.1 after 1/2, 3/4 and 7/8 of the epochs; by default 0.01 (paper; searched; relative) or 0.1 "
        "(pooled; released code)",
        expert=True,
    )
    generator_depth: int = setting(2, "residual blocks of a generator, d (paper, section 4.4)", expert=True)
    generator_width: int | None = setting(
        None, "channels inside a generator; by default 128, or all if fewer", expert=True
    )
    generator_start: Literal["noise", "exemplar"] = setting(
        "noise",
        "what an untrained generator gives: noise (paper), or the exemplar, to which it then learns to add",
        expert=True,
    )
    generator_form: Literal["paper", "pooled", "relative"] = setting(
        "paper",
        "losses as printed, as in the released code, or as printed in units of the maps (relative; lessons)",
        expert=True,
    )
    generator_losses: Literal["ce", "sc", "sc+sdc", "sc+sdc+cyc"] = setting(
        "sc+sdc+cyc",
        "which losses train a generator beside cross-entropy (the rows of the paper's ablation)",
        expert=True,
    )
    decoupling: float | None = setting(
        None,
        "weight of the decoupling losses, lambda; by default 0.01 (paper; searched), 2 (pooled; released code) or 1 "
        "(relative)",
        expert=True,
    )
    cycle: float = setting(0.3, "weight of the cycle losses, lambda_cyc (released code)", expert=True)

    def __post_init__(self) -> None:
        for name in ("counterparts", "decoupling", "cycle", "imagined_weight"):
            value = getattr(self, name)
            require(value is None or value >= 0, f"{flag(name)} {value} must not be negative")
        for name in ("generator_depth", "generator_epochs", "generator_updates"):
            require(getattr(self, name) >= 1, f"{flag(name)} {getattr(self, name)} must be at least 1")
        width = self.generator_width
        require(width is None or width >= 1, f"--generator-width {width} must be at least 1")
        lr = self.generator_lr
        require(lr is None or lr > 0, f"--generator-lr {lr} must be above 0")
