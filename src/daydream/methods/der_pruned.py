"""DER with pruning (CVPR 2021, section 3.3), without released code: starting values are HAT's, whose masks they are.

A gate on each inner channel of a block multiplies it by sigmoid(s e), with s rising from 1 / s_max to s_max within each
epoch; a sparsity loss shuts gates, and then the channels behind them are taken out. Our reading of what the paper
leaves open: the extractor as it was before stays in the state, uncounted, and the next one starts from it, all gates
open.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from daydream import rng
from daydream.errors import UserError
from daydream.methods.expanding import RECIPE, Expanding, ExpandingSettings
from daydream.methods.method import Setup, network
from daydream.nets.extractor import Extractor, newest
from daydream.nets.resnet import BACKBONES, parameter_count
from daydream.protocol.stream import Stream, Task
from daydream.settings import require, setting
from daydream.stages.gating import gated
from daydream.stages.stage import Stage, State


@dataclass(frozen=True, kw_only=True)
class PrunedDERSettings(ExpandingSettings):
    """Settings of DER with pruning."""

    sparsity: float = setting(0.75, "weight of the sparsity loss; 0 is no pruning at all (HAT's)")
    keep: float = setting(
        0.22,
        "share of an extractor's weights that the sparsity loss steers to, turning round below it; with 0 it never "
        "does (paper, whose parameters come to 0.35, 0.37 and 0.22 in 2, 5 and 10 steps)",
    )
    sharpness: float = setting(400.0, "sharpness of the masks at the end of an epoch, s_max (HAT's)", expert=True)
    gate_lr: float = setting(10.0, "learning rate of the gates, as a multiple of --lr (ours)", expert=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.sparsity >= 0, f"--sparsity {self.sparsity} must not be negative")
        require(0 <= self.keep < 1, f"--keep {self.keep} must be at least 0 and below 1")
        require(self.sharpness >= 1, f"--sharpness {self.sharpness} must be at least 1")
        require(self.gate_lr > 0, f"--gate-lr {self.gate_lr} must be above 0")


class PrunedDER(Expanding[PrunedDERSettings]):
    """DER whose extractors, the first too, lose channels after they are trained."""

    Settings = PrunedDERSettings
    recipe = "cross-entropy and sparsity; rate x0.1 at 60, 120 and 160 of 200"

    def __init__(self, settings: PrunedDERSettings, setup: Setup) -> None:
        super().__init__(settings, setup)
        self.prunes = settings.sparsity > 0
        self.source = "unpruned" if self.prunes else "net"
        if not self.prunes:
            self.recipe = RECIPE

    def check(self, stream: Stream) -> None:
        if self.setup.backbone not in BACKBONES:
            raise UserError(
                f"der-pruned takes channels out of the blocks of {', '.join(BACKBONES)}, and does not know those of "
                f"{self.setup.backbone}: use --method der"
            )

    def expected_parameters(self, task: Task) -> tuple[int, int]:
        """Return what `parameters` will count at most."""
        net = Extractor(self.setup.backbone, self.head, (task.num_seen,), self.setup.cut)
        head = parameter_count(net.head)
        return (parameter_count(net) - head) * (task.index + 1), head * (task.index + 1)

    def stages(self, task: Task) -> list[Stage]:
        train, *rest = super().stages(task)
        return [self.gated(train), self.prune(), *rest] if self.prunes else [train, *rest]

    def extractor(self, task: Task, inputs: int | None = None) -> Extractor:
        with rng.seeded(self.setup.seed, "init", task.index):
            sizes, backbone, cut = (task.num_seen,), self.setup.backbone, self.setup.cut
            return Extractor(backbone, self.head, sizes, cut, inputs, gated=self.prunes)

    def gated(self, stage: Stage) -> Stage:
        """Return a training stage with gates, which train too, and the sparsity loss."""
        own = {name: getattr(self.settings, name) for name in ("sparsity", "keep", "sharpness", "gate_lr")}
        return replace(gated(stage, **own), shared_as=stage.shared_as and {**stage.shared_as, **own})

    def prune(self) -> Stage:
        """Return the stage that takes the closed channels out of the newest extractor."""

        def begin(state: State) -> None:
            net = newest(state.nets)
            state.nets["unpruned"], state.nets["net"] = net.ungated(), net.pruned()

        def report(state: State) -> Mapping[str, float]:
            net, unpruned = network(state), network(state, "unpruned")
            return {"kept": (parameter_count(net) - parameter_count(net.head)) / parameter_count(unpruned)}

        return Stage(name="prune", begin=begin, report=report)
