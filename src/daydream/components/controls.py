"""Controls of imagination: what else could stand in the counterparts' place (`--counterparts-from`).

Beside R real images in a batch, P counterparts of weight w take R / (R + w P) from the real images' cross-entropy. So a
gain of generators must be told from that of the weight, and from that of any map in their place:

- `nothing`: no counterparts, the real images' weight as if there were (equal weights);
- `exemplars`: the exemplar's own map, once for each counterpart;
- `real`: maps of other training images of the exemplar's class. An oracle, and the most that counterparts could give;
- `hard` (`hard.py`): the exemplar's map where the current network is less sure of it.

All else is as with generators: the same unlabelled images, in the same batches.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from daydream.components.imagination import Imagination
from daydream.components.pile import FromPile
from daydream.nets.network import Company, Network, in_mode
from daydream.nets.side_streams import Beside, InLine
from daydream.protocol.stream import Task
from daydream.stages.stage import Batch, Batches, Draw, Samples, State


class Control(Imagination):
    """Imagination whose counterparts no generator makes."""

    generates = False
    closing = FromPile.closing


class EqualWeights(Control):
    """No counterparts: only the weights are as if there were."""

    def company(self, state: State, net: Network, exemplars: Samples, pile: Samples) -> Company:
        return Company()


class ExemplarCopies(Control):
    """The exemplar's own map for each counterpart."""

    def company(self, state: State, net: Network, exemplars: Samples, pile: Samples) -> Company:
        count = len(pile.images) // len(exemplars.images)
        return Company(maps=lambda: plain_maps(net, exemplars.images, count))


class RealMaps(Control):
    """Maps of other training images of the exemplar's class, which no learner still has."""

    def beside_pile(self, task: Task, name: str, old: Batches) -> Mapping[str, Batches]:
        """Return the stream of real images of old classes, as many of each exemplar's class as it has counterparts."""
        known, count = task.everything.of_classes(torch.arange(task.num_old)), self.settings.counterparts
        draw = drawer_of_class(known.labels, old.images.labels, name, count)
        return {"real": Batches(images=known, size=count * old.size, augment=old.augment, draw=draw)}

    def origin(self, batch: Batch, name: str) -> Samples:
        return batch["real"]

    def company(self, state: State, net: Network, exemplars: Samples, pile: Samples) -> Company:
        return Company(maps=lambda: plain_maps(net, exemplars.images, 1))


def plain_maps(net: Network, images: Tensor, count: int) -> tuple[Tensor, Beside]:
    """Return the maps of images [B] as a generator would be given them, each `count` times: [B * count, c, h, w]."""
    with in_mode(net, training=False), torch.no_grad():
        maps = net.lower(images).repeat_interleave(count, dim=0)
    return maps, InLine()


def drawer_of_class(labels: Tensor, exemplars: Tensor, name: str, count: int) -> Draw:
    """Return a `draw` that deals, for each exemplar drawn for the stream `name`, `count` images of its class."""
    places = labels.argsort(stable=True)
    sizes = torch.bincount(labels)
    first = sizes.cumsum(0) - sizes

    def draw(generator: torch.Generator, steps: int, before: Mapping[str, Tensor]) -> Tensor:
        wanted = exemplars[before[name]].repeat_interleave(count, dim=1)
        share = torch.rand(wanted.shape, generator=generator)
        return places[first[wanted] + (share * sizes[wanted]).long()]

    return draw
