"""DER: "DER: Dynamically Expandable Representation for Class Incremental Learning" (CVPR 2021), released code's values.

All of it stands in `expanding.py`, which `der-pruned` builds on. Ours alone: the backbone is the run's (the released
ResNet-32 has projecting shortcuts and a last ReLU), a batch holds new images and exemplars in fixed numbers, and the
length of the warm-up goes with that of the training.
"""

from dataclasses import dataclass

from daydream.methods.expanding import Expanding, ExpandingSettings


@dataclass(frozen=True, kw_only=True)
class DERSettings(ExpandingSettings):
    """Settings of DER."""


class DER(Expanding[DERSettings]):
    """An extractor for each task, a head over all of them."""

    Settings = DERSettings
