"""What the exact learner answers beside a class, each beside a control: exactness, `doubts` and `next`.

Shapes: N pictures, D features.
"""

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from daydream.learner import advice, exact
from daydream.learner.exact import ExactModel
from daydream.learner.known import nearest_other

LESSONS, ORDERS = 10, 5
FLIPPED = 0.05
"""Share of labels that are made wrong before `doubts` is asked."""


@dataclass(frozen=True)
class Lot:
    """Features [N, D] and labels [N] of pictures of some classes."""

    features: Tensor
    labels: Tensor

    @property
    def names(self) -> list[str]:
        return [f"{label:04d}" for label in range(int(self.labels.max()) + 1)]

    def taught(self, before: ExactModel | None = None, index: Tensor | None = None) -> ExactModel:
        """Return a model that learns all of them, or some."""
        some = torch.arange(len(self.labels)) if index is None else index
        return exact.learn(before, "", self.names, self.labels[some], some, self.features[some])


def answers(model: ExactModel, test: Tensor) -> Tensor:
    """Return probabilities of test pictures, classes by name."""
    order = sorted(range(len(model.names)), key=model.names.__getitem__)
    return exact.probabilities(model, test)[:, order]


def exactness(lot: Lot, test: Tensor) -> dict[str, float]:
    """Return the largest difference of a probability, of three kinds: all should be rounding."""
    whole, found = answers(lot.taught(), test), {"ten lessons": 0.0, "forgotten": 0.0, "undone": 0.0}

    def worse(kind: str, gap: Tensor) -> None:
        found[kind] = max(found[kind], float(gap.abs().max()))

    for seed in range(ORDERS):
        draw = random.Random(seed)
        places = list(range(len(lot.labels)))
        draw.shuffle(places)
        cuts = sorted(draw.sample(range(1, len(places)), LESSONS - 1))
        parts = [torch.tensor(places[a:b]) for a, b in zip([0, *cuts], [*cuts, len(places)], strict=True)]
        model = None
        for number, part in enumerate(parts):
            before, model = model, lot.taught(model, part)
            if number == LESSONS - 1 and before is not None:
                worse("undone", answers(exact.undo(model), test) - answers(before, test))
        assert model is not None
        worse("ten lessons", answers(model, test) - whole)
        gone = draw.choice(lot.names)
        never = lot.taught(None, (lot.labels != int(gone)).nonzero().squeeze(1))
        forgot = exact.forget(model, exact.pictures_of(model, gone))
        worse("forgotten", answers(forgot, test) - answers(never, test))
    return found


def found_mistakes(lot: Lot, seed: int) -> dict[str, float]:
    """Return, in per cent, how right and how complete `doubts` is of labels made wrong, and a control of as many."""
    draws = torch.Generator().manual_seed(seed)
    count = len(lot.labels)
    wrong = torch.zeros(count, dtype=torch.bool)
    wrong[torch.randperm(count, generator=draws)[: round(FLIPPED * count)]] = True
    by = torch.randint(1, len(lot.names), (count,), generator=draws)
    given = torch.where(wrong, (lot.labels + by) % len(lot.names), lot.labels)
    model = Lot(lot.features, given).taught()
    named = [doubt.digest for doubt in advice.doubts(model) if doubt.kind == "mislabelled"]
    left_out = exact.left_out(model.known).left_out
    own = left_out.gather(1, model.known.labels[:, None]).squeeze(1)
    lowest = model.known.digests[own.argsort()[: len(named)]].tolist()
    far = nearest_other(model.known, torch.arange(count))
    farthest = model.known.digests[far.argsort()[: len(named)]].tolist()

    def right(digests: list[int]) -> float:
        return 100 * float(wrong[digests].double().mean()) if digests else 0.0

    return {
        "doubts: of those named, wrong": right(named),
        "doubts: of the wrong, named": 100 * float(wrong[named].sum()) / int(wrong.sum()),
        "control, lowest score of its class": right(lowest),
        "control, farthest from all others": right(farthest),
        "control, at random": 100 * FLIPPED,
    }


def labelled_next(lot: Lot, start: int, test: Lot, seed: int) -> dict[str, float]:
    """Return accuracy after as many labels more as there were, chosen by `next`, at random, or as least known."""
    draws = torch.Generator().manual_seed(seed)
    place = torch.cat([torch.arange(int(n)) for n in torch.bincount(lot.labels)])
    first, pile = (place < start).nonzero().squeeze(1), (place >= start).nonzero().squeeze(1)
    pile = pile[torch.randperm(len(pile), generator=draws)]
    model = lot.taught(None, first)
    unlike = exact.looks(model, lot.features[pile]).argsort()[: len(first)]
    chosen = {
        "next: its choice": pile[advice.ask_next(model, lot.features[pile], len(first))],
        "control, at random": pile[: len(first)],
        "control, least known": pile[unlike],
    }

    def right(taught: ExactModel) -> float:
        return 100 * float((answers(taught, test.features).argmax(1) == test.labels).double().mean())

    return {"next: before": right(model)} | {name: right(lot.taught(model, own)) for name, own in chosen.items()}
