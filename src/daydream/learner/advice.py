"""What an exact model can say of its own pictures: which look wrong, which to label next, what would help most.

All of it comes from pictures left out in turn, so nothing is judged by a classifier that has learnt it.

Shapes: N pictures, D features, C classes.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from daydream.errors import UserError
from daydream.learner.exact import ExactModel, accuracy, left_out, probabilities
from daydream.learner.known import Known

ALIKE = 0.98
"""Cosine of two pictures' features from which they are called the same picture."""
SURER = 50.0
"""How many times likelier than its own another class must be for a picture to be called mislabelled."""
FAR = 3.5  # deviations, measured by the median, below which a picture's nearest is called far
COMPARED = 20_000  # pictures compared each with each; above, only within a class
CHUNK = 1024


@dataclass(frozen=True)
class Doubt:
    """A picture that looks wrong."""

    digest: int
    name: str
    """The class it was given as."""
    kind: Literal["mislabelled", "doubled", "odd"]
    other: str
    """The class it looks like, or that its double is in; of an odd one, its own."""
    strength: float
    """How many times likelier the other class is, cosine to the double, or deviations from its like."""


@dataclass(frozen=True)
class Outlook:
    """How good a model is, and what would help it most."""

    accuracy: float | None
    """In per cent, mean over classes, on pictures left out."""
    error: float
    """Its standard error, in points."""
    confused: tuple[str, str] | None
    """The pair of classes that is mistaken for each other most, if any is."""
    gain: float
    """Points of accuracy on the two that the second half of all pictures brought."""
    doubt: float
    """The gain's standard error, in points."""
    more: int
    """Pictures of each of the two that would double what there is of them."""
    single: int = 0
    """Classes of one picture, of which nothing is known yet."""

    @property
    def sentence(self) -> str:
        """Return it as one sentence."""
        if self.accuracy is None:
            return "Too few pictures to tell how good it is: give two or more of each class, and two classes."
        share, error = f"{self.accuracy:.0f}", f"{max(1.0, self.error):.0f}"
        good = f"About {share} of 100 new pictures like these will be recognised (give or take {error})"
        if self.single:
            good += f", but nothing is known of {self.single} with one picture: give another of each first"
        if self.confused is None:
            return f"{good}; no two classes are confused."
        a, b = self.confused
        brought = f"doubling all pictures brought these two {self.gain:.0f} points (give or take {self.doubt:.0f})"
        advice = (
            f"{self.more} more pictures of each would help most: {brought}"
            if self.gain >= max(1.0, self.doubt)
            else f"{brought}, so more varied pictures of both would help most"
        )
        return f"{good}; {a} and {b} are confused most, and {advice}."


def doubts(model: ExactModel) -> list[Doubt]:
    """Return the pictures that are likely mislabelled, doubled or odd: of each kind, the surest first."""
    known = _kept(model)
    found = [*_mislabelled(model, known), *_unlike_or_alike(known)]
    kinds = ("mislabelled", "doubled", "odd")
    return sorted(found, key=lambda doubt: (kinds.index(doubt.kind), -doubt.strength, doubt.digest))


def _kept(model: ExactModel) -> Known:
    if model.known.features is None:
        raise UserError("this model keeps no features, so it cannot say anything of its pictures")
    return model.known


def _left_out_probabilities(model: ExactModel) -> Tensor:
    assert model.judged.temperature is not None
    return (left_out(model.known).left_out / model.judged.temperature).softmax(1)


def _mislabelled(model: ExactModel, known: Known) -> list[Doubt]:
    """Find pictures that another class claims and that hardly look like their own.

    Class j claims a picture whose left-out probability of j reaches the mean of that of j's own pictures (confident
    learning, Northcutt et al. 2021). That alone also names most plain mistakes of the classifier, so the likeliest
    claimant must be `SURER` times as likely as the class the picture was given as.
    """
    p, labels = _left_out_probabilities(model), known.labels
    told = known.counts > 1
    own = p.gather(1, labels[:, None]).squeeze(1)
    level = torch.zeros(len(known.names), dtype=p.dtype).index_add_(0, labels, own) / known.counts
    best, other = p.masked_fill((p < level) | ~told, -1).max(1)
    times = best / own
    found = []
    for i in ((times >= SURER) & (other != labels) & told[labels]).nonzero().squeeze(1).tolist():
        given, seems = known.names[int(labels[i])], known.names[int(other[i])]
        found.append(Doubt(int(known.digests[i]), given, "mislabelled", seems, float(times[i])))
    return found


def _unlike_or_alike(known: Known) -> list[Doubt]:
    """Find pictures whose nearest is the same picture, and those that are far from every one of their class."""
    nearest, which, own = _nearest(known)
    middle = own.median()
    scale = 1.4826 * (own - middle).abs().median()
    found = []
    for i in range(len(own)):
        digest, name = int(known.digests[i]), known.names[int(known.labels[i])]
        deviations = float((middle - own[i]) / scale.clamp(min=1e-6))
        if nearest[i] >= ALIKE:
            other = known.names[int(known.labels[which[i]])]
            found.append(Doubt(digest, name, "doubled", other, float(nearest[i])))
        elif deviations > FAR and int(known.counts[known.labels[i]]) > 1:
            found.append(Doubt(digest, name, "odd", name, deviations))
    return found


def _nearest(known: Known) -> tuple[Tensor, Tensor, Tensor]:
    """Return each picture's cosine to the nearest other [N], which that is [N], and the cosine to its own class's."""
    assert known.features is not None
    z, labels = F.normalize(known.features, dim=1), known.labels
    groups = [torch.arange(len(z))]
    if len(z) > COMPARED:
        groups = [(labels == label).nonzero().squeeze(1) for label in range(len(known.names))]
    nearest, which, own = (
        torch.full((len(z),), -1.0),
        torch.zeros(len(z), dtype=torch.int64),
        torch.full((len(z),), -1.0),
    )
    for group in groups:
        for rows in group.split(CHUNK):
            cosines = z[rows] @ z[group].T
            cosines[rows[:, None] == group] = -1
            nearest[rows], place = cosines.max(1)
            which[rows] = group[place]
            own[rows] = cosines.masked_fill(labels[rows][:, None] != labels[group], -1).amax(1)
    return nearest, which, own


def ask_next(model: ExactModel, features: Tensor, count: int) -> Tensor:
    """Return which of unlabelled pictures [P, D] to label next: index [count] of those hardest to decide.

    Hard is a small difference of the two highest probabilities. A picture nearly the same as one taken waits.
    """
    if len(model.names) < 2:
        raise UserError("a model of one class has nothing to decide between: teach it another first")
    top = probabilities(model, features).topk(2, dim=1).values
    order = (top[:, 0] - top[:, 1]).argsort(stable=True)
    z = F.normalize(features.float(), dim=1)
    taken: list[int] = []
    waiting: list[int] = []
    for i in order.tolist():
        double = bool(taken) and float((z[taken] @ z[i]).max()) >= ALIKE
        (waiting if double else taken).append(i)
        if len(taken) == count:
            break
    return torch.tensor([*taken, *waiting][:count], dtype=torch.int64)


def outlook(model: ExactModel) -> Outlook:
    """Say how good a model is and what would help it, by its learning curve and its confusions."""
    known, whole = _kept(model), accuracy(model)
    if whole is None:
        return Outlook(None, 0.0, None, 0.0, 0.0, 0)
    scores, told = left_out(known).left_out, known.counts > 1
    mine, single = told[known.labels], int((~told).sum())
    wrong = _confusions(scores[mine], known.labels[mine], len(known.names))
    most = int(wrong.argmax())
    a, b = most // len(known.names), most % len(known.names)
    if not float(wrong.max()):
        return Outlook(whole, _error(model), None, 0.0, 0.0, 0, single)
    more = round(float(known.counts[[a, b]].double().mean()))
    gain, doubt = _gain(known, scores.argmax(1) == known.labels, (a, b))
    return Outlook(whole, _error(model), (known.names[a], known.names[b]), gain, doubt, max(1, more), single)


def _gain(known: Known, right: Tensor, pair: tuple[int, int]) -> tuple[float, float]:
    """Return what a second half of all pictures brought those of two classes, and its standard error, in points.

    Both are judged on the same pictures, the pair's in the first half, each left out in turn. A difference that never
    varies counts as if one picture more had changed, so that few of them are not thought certain.
    """
    half = _first_half(known)
    some = half & torch.isin(known.labels, torch.tensor(pair))
    before = left_out(known.where(half)).left_out.argmax(1) == known.where(half).labels
    gaps = (right[some].double() - before[some[half]].double()) * 100
    spread = (float(gaps.square().sum()) + 100**2) / (len(gaps) + 1) - float(gaps.mean()) ** 2
    return float(gaps.mean()), (max(spread, 0.0) / len(gaps)) ** 0.5


def _error(model: ExactModel) -> float:
    """Return the standard error of the mean over classes of their accuracy, in points.

    Each class's share p of n pictures counts as (n p + 1) / (n + 2), so that none is thought certain.
    """
    found = [
        (value / 100, count)
        for value, count in zip(model.judged.accuracy, model.known.counts.tolist(), strict=True)
        if value is not None
    ]
    smooth = [((share * count + 1) / (count + 2), count) for share, count in found]
    return float(100 * sum(p * (1 - p) / count for p, count in smooth) ** 0.5 / len(smooth))


def _first_half(known: Known) -> Tensor:
    """Return a mask of half of each class's pictures: the first by digest, which is as good as at random."""
    keep = torch.zeros(len(known.labels), dtype=torch.bool)
    for label in range(len(known.names)):
        mine = (known.labels == label).nonzero().squeeze(1)
        keep[mine[: (len(mine) + 1) // 2]] = True
    return keep


def _confusions(scores: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the share of each class (row) taken for another (column), both ways added up, above the diagonal."""
    counts = torch.bincount(labels * classes + scores.argmax(1), minlength=classes**2).view(classes, classes).double()
    shares = counts / counts.sum(1, keepdim=True).clamp(min=1)
    return (shares + shares.T).triu(1)
