"""The exact learner: ridge regression on frozen features, whose lessons forget nothing and whose forgetting is exact.

A model is the pictures it knows (feature, label, digest; no pixels) and what follows from them. Lessons, forgetting,
renaming and merging change the pictures; all else is solved again from them, in one order whatever order they came in.
So any lessons that bring the same pictures make the same model, and one that forgot is one that never learnt.

Shapes: N pictures, D features, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from daydream.errors import UserError, unknown
from daydream.learner.calibration import fit_temperature, rejection_threshold
from daydream.learner.known import Known, among, joined, nearest_other, ordered, ranks, summed
from daydream.learner.rejection import MOST, check_share, knownness
from daydream.nets.ridge import Fit, Ridge, Sums, fit_best, fit_sums, normalised
from daydream.settings import require

KEPT_STATES = 3
"""Lessons that can be undone."""
TESTS = "need test pictures to be fitted on: give them with a lesson, `daydream learn MODEL FOLDER --test TESTS`"
SCORES = 4 * 10**6  # scores that a temperature is fitted on
ROWS = 8192  # kept pictures compared at once
FLAT = 1e-9  # scores that spread less than this are equal
SOLE = 0.35
"""The least temperature beside a class of one picture, in units of how the pictures' own scores spread.

None of it can be left out. With one picture of each of 2 to 10 classes the best temperature on other pictures was 0.3
to 0.5 (drawn shapes) or 0.2 (CIFAR-100), and 1 / C was as good as a temperature of 1.
"""


@dataclass(frozen=True)
class Judged:
    """What follows from the pictures."""

    ridge: Ridge
    """One column for each class, in the order of names."""
    temperature: float | None
    """Probabilities are softmax(scores / temperature); None where nothing could tell it."""
    confidences: Tensor
    """[M] how known pictures look that were left out of the fit: what a rejection is set by."""
    accuracy: tuple[float | None, ...]
    """Of each class, in per cent, on its pictures left out in turn; None where it has fewer than two."""


@dataclass(frozen=True)
class ExactModel:
    """All that the next lesson, or a prediction, needs."""

    embedding: str
    """Identity of the features: those of another network or preparation do not fit."""
    known: Known
    judged: Judged
    earlier: tuple[Known, ...] = ()
    """The last states before this one, newest last. Of kept features they hold none: their pictures are still known."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.known.names


# What changes the pictures.


def learn(
    before: ExactModel | None,
    embedding: str,
    names: Sequence[str],
    labels: Tensor,
    digests: Tensor,
    features: Tensor,
    *,
    keep_features: bool = True,
) -> ExactModel:
    """Learn pictures: features [N, D], their labels [N] among `names`, new and known, and their digests [N].

    A picture that the model has under the same class is passed over. `keep_features` is for a new model to say.
    """
    require(len(labels) > 0, "a lesson needs a picture or more")
    if before is not None and before.embedding != embedding:
        raise UserError("the model's features are of another network or another preparation: it cannot learn with this")
    given = sorted({names[label] for label in labels.tolist()})
    known = before.known.names if before is not None else ()
    every = (*known, *(name for name in given if name not in known))
    place = torch.tensor([every.index(name) if name in every else -1 for name in names])[labels]
    if before is not None:
        fresh = ~among(place, digests, before.known)
        place, digests, features = place[fresh], digests[fresh], features[fresh]
    lesson = ordered(Known(every, place, digests, features.float().cpu()))
    if before is None:
        return _solved(embedding, lesson if keep_features else summed(lesson), ())
    if not len(lesson.labels):
        return before
    if before.known.features is None:
        lesson = summed(lesson)
    return _solved(embedding, joined(before.known, lesson), _remembered(before))


def forget(model: ExactModel, gone: Tensor, features: Tensor | None = None) -> ExactModel:
    """Take out pictures by a mask [N] over `known`; earlier states go too, which hold them.

    A model without features needs those of the pictures again, in the order of the mask.
    """
    known = model.known
    if bool(gone.all()):
        raise UserError("nothing would be left of the model: delete its file instead")
    if known.sums is not None:
        if features is None or len(features) != int(gone.sum()):
            raise UserError("this model keeps no features, so it can only forget pictures that are given again")
        part = Sums.of(normalised(features), known.labels[gone], len(known.names))
        known = replace(known, sums=known.sums - part)
    return _solved(model.embedding, known.where(~gone), ())


def pictures_of(model: ExactModel, name: str) -> Tensor:
    """Return the mask [N] of a class's pictures."""
    return model.known.labels == _label(model, name)


def pictures_with(model: ExactModel, digests: Tensor) -> Tensor:
    """Return the mask [N] of pictures by their digests, each of which must be known."""
    absent = ~torch.isin(digests, model.known.digests)
    if bool(absent.any()):
        raise UserError(f"{int(absent.sum())} of {len(digests)} pictures are not among those the model has learnt")
    return torch.isin(model.known.digests, digests)


def undo(model: ExactModel) -> ExactModel:
    """Return the model as it was before its last change, forgetting excepted."""
    if not model.earlier:
        raise UserError("there is no earlier state to go back to: three are kept, and none across a forgetting")
    before, known = model.earlier[-1], model.known
    if known.features is not None:
        order = known.digests.argsort()
        place = order[torch.searchsorted(known.digests[order], before.digests)]
        before = replace(before, features=known.features[place])
    return _solved(model.embedding, before, model.earlier[:-1])


def rename(model: ExactModel, name: str, to: str) -> ExactModel:
    """Give a class another name."""
    label = _label(model, name)
    if to in model.names:
        raise UserError(f"there is a class '{to}' already: to make one class of both, merge them")
    names = tuple(to if place == label else old for place, old in enumerate(model.names))
    return _solved(model.embedding, ordered(replace(model.known, names=names)), _remembered(model))


def merge(model: ExactModel, names: Sequence[str], into: str) -> ExactModel:
    """Make one class of several; a picture that was in more than one of them is kept once."""
    known, labels = model.known, sorted({_label(model, name) for name in names})
    require(len(labels) >= 2, "merging takes two classes or more")
    if into in model.names and model.names.index(into) not in labels:
        raise UserError(f"there is a class '{into}' already, which is not one of those to merge")
    target = labels[0]
    inside = torch.isin(known.labels, torch.tensor(labels))
    sums = known.sums
    if sums is not None:
        doubled = len(known.digests[inside].unique()) < int(inside.sum())
        require(not doubled, "these classes share pictures, which a model without features cannot tell apart")
        place = torch.arange(len(known.names))
        place[labels] = target
        added = torch.zeros_like(sums.sums).index_add_(0, place, sums.sums)
        sums = replace(sums, sums=added, counts=torch.zeros_like(sums.counts).index_add_(0, place, sums.counts))
    renamed = tuple(into if label == target else name for label, name in enumerate(known.names))
    together = replace(known, names=renamed, labels=torch.where(inside, target, known.labels), sums=sums)
    return _solved(model.embedding, ordered(together.where(torch.ones_like(inside))), _remembered(model))


def move(model: ExactModel, moved: Tensor, to: str) -> ExactModel:
    """Give pictures, by a mask [N] over `known`, another class, new or known."""
    known = model.known
    require(known.sums is None, "this model keeps no features, so its pictures cannot move to another class")
    names = known.names if to in known.names else (*known.names, to)
    there = replace(known, names=names, labels=torch.where(moved, names.index(to), known.labels))
    together = there.where(torch.ones_like(moved))
    if together.names == known.names and torch.equal(together.labels, known.labels):
        return model
    return _solved(model.embedding, ordered(together), _remembered(model))


# What a model says.


def scores(model: ExactModel, features: Tensor) -> Tensor:
    """Return scores [N, C] of features [N, D]."""
    return model.judged.ridge.scores(features)


def probabilities(model: ExactModel, features: Tensor) -> Tensor:
    """Return calibrated probabilities [N, C] of features [N, D]."""
    return (scores(model, features) / temperature_of(model)).softmax(1)


def temperature_of(model: ExactModel) -> float:
    """Return what scores are divided by."""
    if model.judged.temperature is None:
        raise UserError(f"this model keeps no features, so its probabilities {TESTS}")
    return model.judged.temperature


def rejection(model: ExactModel, share: float) -> float:
    """Return the `looks` below which a picture is likely of no known class: a share of known ones is below too."""
    if model.judged.temperature is None:
        raise UserError(f"this model keeps no features, so probabilities to reject by {TESTS}")
    check_share(share)
    return rejection_threshold(model.judged.confidences, 1 - share)


def looks(model: ExactModel, features: Tensor) -> Tensor:
    """Return how known pictures look [N] by their features [N, D]: by probability where no features are kept."""
    known = model.known.features
    if known is None:
        return probabilities(model, features).amax(1)
    own = normalize(features)  # by torch: threads of two libraries in turns hold each other up
    nearest = torch.stack([(own @ normalize(part).T).amax(1) for part in known.split(ROWS)]).amax(0)
    return torch.from_numpy(knownness(scores(model, features).cpu().numpy(), nearest.double().numpy()))


def calibrated(model: ExactModel, features: Tensor, labels: Tensor) -> ExactModel:
    """Fit temperature and threshold of a model without features on test pictures that it did not learn."""
    judged = replace(model.judged, temperature=_temperature(scores(model, features), labels))
    fitted = replace(model, judged=judged)
    return replace(fitted, judged=replace(judged, confidences=looks(fitted, features)))


def accuracy(model: ExactModel) -> float | None:
    """Return the mean over classes of their accuracy on pictures left out, in per cent; None where nothing tells it."""
    known = [value for value in model.judged.accuracy if value is not None]
    return sum(known) / len(known) if known else None


# How it follows from the pictures.


def left_out(known: Known) -> Fit:
    """Fit the pictures, and tell what each scores under a classifier fitted without it; classes in `names`' order."""
    assert known.features is not None
    order = ranks(known.names)
    found = fit_best(known.features, order[known.labels], len(known.names))
    ridge = replace(found.ridge, weight=found.ridge.weight[order], bias=found.ridge.bias[order])
    return replace(found, ridge=ridge, left_out=found.left_out[:, order])


def _solved(embedding: str, known: Known, earlier: tuple[Known, ...]) -> ExactModel:
    if known.sums is not None:
        nothing = torch.zeros(0, dtype=torch.float64)
        judged = Judged(fit_sums(known.sums), None, nothing, (None,) * len(known.names))
        return ExactModel(embedding, known, judged, earlier)
    assert known.features is not None
    found, counts = left_out(known), known.counts
    # Of a class's only picture, the fit without it knows nothing.
    told = (counts[known.labels] > 1) & (len(known.names) > 1)
    tellable = told.nonzero().squeeze(1)
    fitted = tellable[:: max(1, -(-len(tellable) * len(known.names) // SCORES))]  # a copy or eight are made of these
    temperature = _temperature(found.left_out[fitted], known.labels[fitted]) if len(fitted) else 0.0
    if not len(fitted) or bool((counts == 1).any()):
        temperature = max(temperature, SOLE * _spread(found.ridge.scores(known.features)))
    some = tellable[:: max(1, -(-len(tellable) // MOST))]
    confidences = found.left_out[some].amax(1) + nearest_other(known, some)
    right = (found.left_out.argmax(1) == known.labels).double()
    shares = [right[(known.labels == label) & told] for label in range(len(known.names))]
    per_class = tuple(100 * float(share.mean()) if len(share) else None for share in shares)
    return ExactModel(embedding, known, Judged(found.ridge, temperature, confidences, per_class), earlier)


def _temperature(given: Tensor, labels: Tensor) -> float:
    """Return the temperature of scores [N, C], whatever their unit."""
    unit = _spread(given)
    return unit * fit_temperature(given / unit, labels)


def _spread(given: Tensor) -> float:
    """Return how scores [N, C] spread about their mean over classes; of scores that are all equal, 1."""
    spread = float((given - given.mean(1, keepdim=True)).square().mean().sqrt())
    return spread if spread > FLAT else 1.0


def _label(model: ExactModel, name: str) -> int:
    if name not in model.names:
        raise unknown("class", name, model.names)
    return model.names.index(name)


def _remembered(model: ExactModel) -> tuple[Known, ...]:
    return (*model.earlier, replace(model.known, features=None))[-KEPT_STATES:]
