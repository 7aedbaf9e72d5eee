"""Strong augmentation of every training image: see `data/strong.py`.

With a blank square of half the side (`--erase 0.5`, Cutout of 16 pixels of 32) it is the like of what FOSTER's numbers
were trained with, which take AutoAugment for it.
"""

from collections.abc import Mapping
from dataclasses import replace

from daydream.data.strong import Strong
from daydream.stages.stage import Batches, Stage, State


def strengthened(stage: Stage) -> Stage:
    """Return a stage whose images are augmented strongly, in all of its streams."""

    def streams(state: State) -> Mapping[str, Batches]:
        return {name: replace(own, augment=Strong(own.augment)) for name, own in stage.streams(state).items()}

    shared_as = stage.shared_as and {**stage.shared_as, "augment": "strong"}
    return replace(stage, streams=streams, shared_as=shared_as)
