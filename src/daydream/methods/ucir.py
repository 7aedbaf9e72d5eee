"""UCIR: "Learning a Unified Classifier Incrementally via Rebalancing" (CVPR 2019), with its released code's values.

All of it stands in `unified.py`, which other methods build on. The class-balanced fine-tuning of the released ImageNet
script is `--finetune-epochs 20`; its CIFAR script has none. Ours alone: the backbone is the run's, and a batch holds
new images and exemplars in fixed numbers.
"""

from dataclasses import dataclass

from daydream.methods.unified import Unified, UnifiedSettings


@dataclass(frozen=True, kw_only=True)
class UCIRSettings(UnifiedSettings):
    """Settings of UCIR."""


class UCIR(Unified[UCIRSettings]):
    """Cross-entropy, less-forget and margin ranking over a cosine head."""

    Settings = UCIRSettings
