"""The stream of tasks: class orders, a base task and equal increments, labels in order of arrival."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from daydream.data.images import Dataset, ImageSet
from daydream.errors import UserError, unknown
from daydream.rng import generator

VALIDATION_SEED = 1993  # the held-out images are the same whatever the run's seed
PAPER_ORDERS = {"cifar100": ("icarl", "paper-2", "paper-3")}
"""The class orders the paper has for a data set, in its order."""


@dataclass(frozen=True)
class Task:
    """The classes that arrive together, with their training images; labels count classes in order of arrival."""

    index: int
    num_tasks: int
    num_old: int
    num_new: int
    train: ImageSet
    everything: ImageSet
    """Training images of the whole stream; see `seen`."""
    num_exemplars: int | None = None
    """Images of old classes that are held, where that is not what the budget says."""

    @cached_property
    def seen(self) -> ImageSet:
        """Training images of every class so far. Only an upper bound may read it: a learner has lost the old ones."""
        return self.everything.of_classes(torch.arange(self.num_seen))

    @property
    def num_seen(self) -> int:
        return self.num_old + self.num_new

    @property
    def num_classes(self) -> int:
        """Classes of the whole stream, those still to come included."""
        return len(self.everything.class_names)

    @property
    def is_base(self) -> bool:
        return self.index == 0

    @property
    def is_last(self) -> bool:
        return self.index == self.num_tasks - 1


@dataclass(frozen=True)
class Stream:
    """Data cut into tasks: `sizes` classes arrive together, in the order the labels already count."""

    train: ImageSet
    test: ImageSet
    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.sizes)

    def task(self, index: int) -> Task:
        old, new = sum(self.sizes[:index]), self.sizes[index]
        return Task(
            index=index,
            num_tasks=len(self),
            num_old=old,
            num_new=new,
            train=self.train.of_classes(torch.arange(old, old + new)),
            everything=self.train,
        )

    def test_seen(self, index: int) -> ImageSet:
        """Return the test images of every class seen up to and including task `index`."""
        return self.test.of_classes(torch.arange(sum(self.sizes[: index + 1])))

    def merged(self, tasks: int | None = None) -> "Stream":
        """Return the data of the first tasks, or of all, as one task: all their classes at once."""
        if tasks is None or tasks >= len(self):
            return replace(self, sizes=(sum(self.sizes),))
        classes = torch.arange(sum(self.sizes[:tasks]))
        train, test = (_named_by(images.of_classes(classes), len(classes)) for images in (self.train, self.test))
        return Stream(train, test, (len(classes),))


def make_stream(data: Dataset, order: Sequence[int], base: int, steps: int, validation: float = 0.0) -> Stream:
    """Cut a data set into a base task of `base` classes and `steps` equal increments, in a class order.

    With `validation` > 0 that share of each class's training images is held out and takes the test images' place.
    """
    sizes = task_sizes(len(order), base, steps)
    train, test = data.train, data.test
    if validation:
        train, test = hold_out(train, validation)
    return Stream(arrival(train, order), arrival(test, order), sizes)


def task_sizes(classes: int, base: int, steps: int) -> tuple[int, ...]:
    """Return the number of classes of each task, or say why base and steps do not fit."""
    if not 1 <= base <= classes:
        raise UserError(f"--base {base} must lie between 1 and the {classes} classes of the data set")
    rest = classes - base
    if steps == 0 and rest == 0:
        return (base,)
    if steps < 1 or rest % steps or rest == 0:
        fits = [str(n) for n in range(1, rest + 1) if rest % n == 0] or ["0"]
        raise UserError(
            f"--base {base} leaves {rest} of {classes} classes, which --steps {steps} does not divide; "
            f"steps that do: {', '.join(fits)}"
        )
    return (base, *[rest // steps] * steps)


def hold_out(train: ImageSet, share: float) -> tuple[ImageSet, ImageSet]:
    """Split off a share of each class's images: (what is left to train on, what is held out)."""
    if not 0 < share < 1:
        raise UserError(f"--validation {share} must lie between 0 and 1: it is a share of the training images")
    shuffled = torch.randperm(len(train), generator=generator(VALIDATION_SEED, "validation"))
    labels, counts = train.labels[shuffled], train.counts()
    held = places_in_class(labels) < (share * counts[labels]).round().clamp(min=1)
    if (torch.bincount(labels[~held], minlength=len(counts))[counts > 0] == 0).any():
        raise UserError(f"--validation {share} leaves a class without training images; take a smaller share")
    return train.select(shuffled[~held].sort().values), train.select(shuffled[held].sort().values)


def places_in_class(labels: Tensor) -> Tensor:
    """Return for each of the labels [N] how many equal ones stand before it."""
    by_class = labels.sort(stable=True).indices
    counts = torch.bincount(labels)
    first = counts.cumsum(0) - counts
    place = torch.empty_like(labels)
    place[by_class] = torch.arange(len(labels)) - first[labels[by_class]]
    return place


def _named_by(images: ImageSet, classes: int) -> ImageSet:
    return replace(images, class_names=images.class_names[:classes])


def arrival(images: ImageSet, order: Sequence[int]) -> ImageSet:
    """Relabel images so that label k is the k-th class to arrive."""
    place = torch.full((len(images.class_names),), -1)
    place[torch.tensor(order)] = torch.arange(len(order))
    names = tuple(images.class_names[c] for c in order)
    return ImageSet(images.pixels, place[images.labels], names)


def named_orders() -> dict[str, list[int]]:
    """Return the committed class orders of 100 classes: `icarl` (= `paper-1`), `paper-2`, `paper-3`, `lucir`."""
    text = resources.files("daydream.protocol").joinpath("orders.json").read_text(encoding="utf-8")
    orders: dict[str, list[int]] = json.loads(text)
    return orders


def class_order(name: str, classes: int) -> list[int]:
    """Return a class order by name: `natural`, `seed:N`, a committed order, or a file of class numbers."""
    if name == "natural":
        return list(range(classes))
    if name.startswith("seed:"):
        digits = name.removeprefix("seed:")
        if not digits.isdecimal():
            raise UserError(f"--order {name}: what follows 'seed:' must be a whole number, e.g. seed:1")
        return torch.randperm(classes, generator=generator(int(digits), "order")).tolist()
    orders = named_orders()
    if name in orders:
        if len(orders[name]) != classes:
            raise UserError(f"--order {name} orders {len(orders[name])} classes, but the data set has {classes}")
        return orders[name]
    if Path(name).is_file():
        return _order_from_file(Path(name), classes)
    raise unknown("class order", name, [*orders, "natural", "seed:N", "FILE"])


def _order_from_file(path: Path, classes: int) -> list[int]:
    text = path.read_text(encoding="utf-8", errors="replace")
    words = text.replace(",", " ").replace("[", " ").replace("]", " ").split()
    if not all(word.isdecimal() for word in words):
        raise UserError(f"--order {path} must hold class numbers separated by commas or white space")
    order = [int(word) for word in words]
    if sorted(order) != list(range(classes)):
        raise UserError(
            f"--order {path} must name each class from 0 to {classes - 1} once; it holds {len(order)} numbers"
        )
    return order
