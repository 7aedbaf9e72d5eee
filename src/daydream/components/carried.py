"""One composition: a method and what it carries, for runs and for lessons alike."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from daydream.components.component import Component
from daydream.components.controls import EqualWeights, ExemplarCopies, RealMaps
from daydream.components.hard import HardCounterparts
from daydream.components.imagination import Imagination
from daydream.components.mixup import PixelMixup
from daydream.components.parts import Parts
from daydream.components.pile import FromPile, Teaching
from daydream.components.pile_base import PileInBase
from daydream.components.pile_teaching import PileTeaching
from daydream.components.settings import CarriedSettings
from daydream.data.images import ImageSet
from daydream.methods.method import Method
from daydream.protocol.stream import Stream, Task
from daydream.stages.stage import Kinds, Stage

COMPONENTS: tuple[type[Component], ...] = (Parts, PileInBase, PileTeaching, Imagination, PixelMixup)
"""All that can be carried, the innermost around a method's stages first."""
COUNTERPARTS: Mapping[str, type[Imagination]] = {
    "generators": Imagination,
    "hard": HardCounterparts,
    "pixels": PixelMixup,
    "exemplars": ExemplarCopies,
    "real": RealMaps,
    "nothing": EqualWeights,
}
"""What brings counterparts, by what they come from."""


def kinds_of(method: type[Method[Any]]) -> Kinds:
    """Return the builders of every network that the state of a method and of what it carries may hold."""
    added = {name: builder for component in COMPONENTS for name, builder in component.kinds.items()}
    return {**method.kinds, **added}


class Carried:
    """A method and what it carries: parts, unlabelled images, imagination."""

    def __init__(self, method: Method[Any], settings: CarriedSettings, pile: ImageSet | None) -> None:
        self.method, self.settings = method, settings
        self.components: Sequence[Component] = list(self._load(pile))

    def _load(self, pile: ImageSet | None) -> Sequence[Component]:
        settings, found = self.settings, list[Component]()
        if settings.parts:
            found.append(Parts(settings.parts, self.method))
        given = settings.pile
        if not (settings.imagines or settings.teaches_on_pile or settings.turns_pile):
            return found
        assert pile is not None, "what is carried needs unlabelled images"
        teaching = Teaching(
            distill=settings.pile_distill,
            labels=given.pile_labels,
            soft=given.pile_soft,
            mining=given.mining,
            batch=given.pile_batch,
            suited=given.pile_teach,
            base=given.pile_base,
        )
        if settings.turns_pile:
            found.append(PileInBase(self.method, pile, teaching))
        if settings.imagines:
            found.append(COUNTERPARTS[settings.imagines](settings.imagination, self.method, pile, teaching))
        elif settings.teaches_on_pile:
            found.append(PileTeaching(self.method, pile, teaching))
        return found

    def check(self, stream: Stream) -> None:
        """Raise the user's mistake if the stream does not fit the method or what it carries."""
        self.method.check(stream)
        for component in self.components:
            component.check(stream)

    def stages(self, task: Task) -> list[Stage]:
        """Return the stages of a task: the method's, with what each component adds."""
        return reduce(
            lambda stages, component: component.stages(task, stages), self.components, self.method.stages(task)
        )

    @property
    def kinds(self) -> Kinds:
        return kinds_of(type(self.method))

    @property
    def parts(self) -> Parts | None:
        return next((component for component in self.components if isinstance(component, Parts)), None)

    @property
    def from_pile(self) -> FromPile | None:
        """Return the component that uses unlabelled images in increments."""
        users = (component for component in self.components if isinstance(component, FromPile))
        return next((component for component in users if not isinstance(component, PileInBase)), None)

    @property
    def imagination(self) -> Imagination | None:
        return self.from_pile if isinstance(self.from_pile, Imagination) else None
