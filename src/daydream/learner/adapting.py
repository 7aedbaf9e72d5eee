"""Let the upper half of the exact learner's network train, where that is better on pictures that neither saw.

A trial: both learn the same pictures of a folder, and are judged on others. What adapts is kept only if it is better by
two standard errors of the difference. From then on lessons are not exact; the exact model goes on beside it.

What is kept is the very network that was judged. It is not trained again on all pictures: those held out calibrate its
probabilities and its rejection, as in any lesson of the adapting learner, and the numbers said are its own.

Shapes: N pictures, H of them held out, C classes.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from daydream.data.decode import fits_in_memory
from daydream.data.decoded import Decoded
from daydream.data.images import ImageSet, Pixels, Resident
from daydream.engine import Display, Diverged
from daydream.errors import UserError
from daydream.learner import exact, exact_file
from daydream.learner.beside import CPU
from daydream.learner.embedding import FeatureCache
from daydream.learner.exact_learner import ExactLearner
from daydream.learner.intake import Intake, read_pile
from daydream.learner.learner import Learner
from daydream.learner.model import Preprocessing
from daydream.learner.reading import Labelled, read_classes, read_tests
from daydream.learner.settings import LessonSettings, choose_model
from daydream.nets.network import STAGES, check_backbone, check_image_size

ENOUGH = 20
"""Pictures of each class below which nothing is tried."""
SHARE, MOST = 0.2, 50
"""Of a class's pictures held out for the trial, where no test pictures are given, and at most so many."""
SURE = 2.0
"""Standard errors."""


@dataclass(frozen=True)
class Trial:
    """Which of the pictures that neither saw each learner got right [H]."""

    exact: Tensor
    adapting: Tensor

    @property
    def gain(self) -> float:
        """Return by how many points what adapts is better."""
        return 100 * float((self.adapting.double() - self.exact.double()).mean())

    @property
    def error(self) -> float:
        """Return the standard error of the gain, in points."""
        gaps = self.adapting.double() - self.exact.double()
        return 100 * float(gaps.std() / len(gaps) ** 0.5) if len(gaps) > 1 else float("inf")

    @property
    def better(self) -> bool:
        return self.gain > SURE * self.error and self.gain > 0

    @property
    def line(self) -> str:
        """Say both numbers and what follows."""
        theirs, ours = (100 * float(right.double().mean()) for right in (self.adapting, self.exact))
        found = f"adapting: {theirs:.1f} % right on {len(self.exact)} pictures that neither saw, exact: {ours:.1f} %"
        if self.better:
            return f"{found}: it adapts; lessons are no longer exact, the file keeps pictures (--adapt off goes back)"
        return f"{found}: not better by two standard errors ({SURE * self.error:.1f} points), so it stays exact"


def adapted(
    learner: ExactLearner,
    folder: str | Path,
    unlabeled: str | Path | None = None,
    test: str | Path | None = None,
    display: Display | None = None,
) -> ExactLearner | Learner:
    """Return what is better for a folder that an exact learner has just learnt: itself, or one that adapts."""
    shown = display or Display()
    given = read_classes(Path(folder), learner.embed, learner.size, shown)
    tests = None if test is None else read_tests(Path(test), learner.names, learner.embed, learner.size, shown)
    if reason := hindered(learner, given, tests):
        shown.say(f"adapting was not tried: {reason}")
        return learner
    trained, held = parted(given, tests)
    try:
        other = trained_upper(learner, trained, held, unlabeled, shown)
    except Diverged as error:
        shown.say(f"adapting came to nothing, so it stays exact: {error}")
        return learner
    truth = held.labels
    theirs = other.judged(images_of(held, learner.size)).argmax(1) == truth
    trial = Trial(alone(learner, trained, held) == truth, theirs)
    shown.say(trial.line)
    if not trial.better:
        return learner
    other.model = replace(other.taught, exact=exact_file.as_bytes(learner.content))
    return other


def exact_again(learner: Learner) -> ExactLearner:
    """Return the exact learner that one adapted from, with all that has been learnt since."""
    if not learner.taught.exact:
        raise UserError("this model did not adapt from an exact one: there is none to go back to")
    return ExactLearner.of(exact_file.of_bytes(learner.taught.exact, CPU), FeatureCache())


def hindered(learner: ExactLearner, given: Labelled, tests: Labelled | None) -> str:
    """Say what keeps a lesson from being tried, if anything does."""
    counts = torch.bincount(given.labels, minlength=len(given.names))
    if len(given.names) < 2:
        return "a single class leaves nothing to tell apart"
    if int(counts.min()) < ENOUGH:
        name = given.names[int(counts.argmin())]
        return f"class '{name}' has {int(counts.min())} pictures, and {ENOUGH} of each are needed"
    if learner.taught.known.features is None:
        return "a model without features has no way back"
    held = given.seen.digests if tests is None else torch.cat([given.seen.digests, tests.seen.digests])
    if not bool(torch.isin(learner.taught.known.digests, held).all()):
        return "it takes the pictures themselves, of earlier lessons too: give all of them in one folder"
    if tests is not None and len(tests.labels.unique()) < len(given.names):
        return "test pictures of every class are needed"
    return uncut(learner.origin, learner.size)


def uncut(backbone: str, size: int) -> str:
    """Say why a network cannot be cut into a half that trains and one that does not, if it cannot."""
    try:
        check_backbone(backbone, STAGES[2])
        check_image_size(backbone, size)
    except UserError as error:
        return str(error)
    return ""


def parted(given: Labelled, tests: Labelled | None) -> tuple[Labelled, Labelled]:
    """Return the pictures to train on and those to judge by, each once; without tests a share of each class."""
    order = given.seen.digests.argsort(stable=True)
    first = order[torch.cat([torch.ones(1, dtype=torch.bool), given.seen.digests[order].diff() != 0])]
    if tests is not None:
        kept = first[~torch.isin(given.seen.digests[first], tests.seen.digests)]
        place = torch.tensor([given.names.index(name) if name in given.names else -1 for name in tests.names])
        held = replace(tests, names=given.names, labels=place[tests.labels])
        return chosen(given, kept), chosen(held, (held.labels >= 0).nonzero().squeeze(1))
    out = []
    for label in range(len(given.names)):
        mine = first[given.labels[first] == label]
        out.append(mine[: min(max(1, round(SHARE * len(mine))), MOST)])
    held_out = torch.cat(out)
    return chosen(given, first[~torch.isin(first, held_out)]), chosen(given, held_out)


def chosen(given: Labelled, index: Tensor) -> Labelled:
    """Return some of the pictures."""
    seen = given.seen
    paths = tuple(seen.paths[i] for i in index.tolist())
    part = replace(
        seen, paths=paths, digests=seen.digests[index], features=seen.features[index], index=seen.index[index]
    )
    return replace(given, labels=given.labels[index], seen=part)


def alone(learner: ExactLearner, trained: Labelled, held: Labelled) -> Tensor:
    """Return the labels [H] that an exact model of the trained pictures alone gives those held out."""
    seen = trained.seen
    model = exact.learn(None, learner.embed.identity, trained.names, trained.labels, seen.digests, seen.features)
    place = torch.tensor([trained.names.index(name) for name in model.names])
    return place[exact.scores(model, held.seen.features).argmax(1)]


def trained_upper(
    learner: ExactLearner, trained: Labelled, held: Labelled, unlabeled: str | Path | None, display: Display
) -> Learner:
    """Return a learner from the same weights whose upper half was trained."""
    device, size = next(learner.embed.net.parameters()).device, learner.size
    method = "replay" if unlabeled is None else "imagine"
    other = Learner.create(method=method, backbone=learner.origin, image_size=size, device=device.type)
    settings, _ = choose_model(other.given, size, device.type)
    prepare = learner.embed.prepare
    intake = Intake(trained.names, images_of(trained, size), images_of(held, size))
    pile = None if unlabeled is None else read_pile(Path(unlabeled), size)
    stored = Preprocessing(size, size, "cifar", prepare.mean, prepare.std)
    lesson, _ = other.made_ready(settings, stored, intake, pile, LessonSettings())
    other.take(lesson, display)
    return other


def images_of(given: Labelled, size: int) -> ImageSet:
    """Return pictures as images, in memory where they fit."""
    pixels: Pixels = Decoded(given.seen.paths, size)
    if fits_in_memory(len(given.labels), size):
        pixels = Resident(pixels.fetch(torch.arange(len(given.labels))))
    return ImageSet(pixels, given.labels, given.names)
