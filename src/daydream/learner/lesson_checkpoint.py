"""A lesson on its way, kept beside the model that is taught: after a kill or a Ctrl-C the same command goes on with it.

`.MODEL.lesson/` is a checkpoint like a run's, its owner's alone, that says what lesson it is of as well. A lesson taken
up ends as one that nobody stopped, bit for bit on a CPU; once its model is written, the folder goes.
"""

import contextlib
import hashlib
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from daydream.components.carried import kinds_of
from daydream.data.images import fingerprint
from daydream.engine import Interrupted, Partial
from daydream.errors import UserError
from daydream.learner.intake import digests
from daydream.learner.lesson import Lesson
from daydream.settings import changed, flag, plain_json, require
from daydream.stages.stage import Stage, State
from daydream.storage.checkpoint_files import CheckpointWriter, drop_checkpoint, load_checkpoint, naming_damage
from daydream.storage.records import Files, StoredPartial, StoredState
from daydream.storage.run_folder import read_json, refuse_link
from daydream.storage.state import Ledger, pack, unpack

SECONDS = 60.0
"""Between two checkpoints: a shorter lesson writes none, unless it is stopped."""
OUTSIDE = {
    "model": "the model",
    "classes": "the classes",
    "pictures": "the pictures",
    "unlabelled": "the unlabelled pictures",
}
"""What a lesson depends on that no setting of it says, in words."""


class Numbered(Files):
    """What is read of latest.json first."""

    number: int
    """Of the lesson, from 0 on."""


class StoredLesson(Numbered):
    """latest.json of a lesson."""

    identity: dict[str, Any]
    state: StoredState
    stage: int
    partial: StoredPartial | None
    gently: bool
    without_pile: bool
    measured: dict[str, float]
    seconds: float


@dataclass
class Standing:
    """Where a lesson stands: what is learnt, the stage it is in and how far, what the stages before measured."""

    state: State
    stage: int = 0
    partial: Partial | None = None
    gently: bool = False
    """Whether the stage diverged, and its second try is under way."""
    without_pile: bool = False
    """Whether stages diverged with the pile, and the lesson is taken again without it."""
    measured: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    """Spent in earlier processes."""


def folder_of(model: Path) -> Path:
    """Return where a model's lesson is kept while it lasts."""
    return model.parent / f".{model.name}.lesson"


def drop(model: Path) -> None:
    """Remove what is kept of a model's lesson, which is over."""
    drop_checkpoint(folder_of(model))


def identity(lesson: Lesson) -> dict[str, Any]:
    """Return what a lesson must still agree on to go on: what was known, its settings, its pictures."""
    given = lesson.given
    pictures = {"given": {"trained on": lesson.digests, "held out": digests(given.intake.held_out)}}
    whole = {
        "model": _digest({} if given.before is None else pack(given.before.state)[1]),
        "classes": lesson.names,
        "pictures": _digest(pictures),
        "unlabelled": None if lesson.pile is None else fingerprint("pile", lesson.pile),
        "made": asdict(given.settings),
        "carried": {key: dict(values) for key, values in given.carried.items()},
        "taught": asdict(given.lesson),
    }
    found: dict[str, Any] = plain_json(whole)
    return found


def _digest(components: Mapping[str, Mapping[str, Tensor]]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part, tensors in components.items():
        for name, value in tensors.items():
            digest.update(f"{part}/{name} {value.dtype} {tuple(value.shape)} ".encode())
            digest.update(value.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


class Keeper:
    """Keeps where a lesson stands, every `SECONDS` and when it is stopped."""

    def __init__(self, lesson: Lesson, model: Path) -> None:
        self.lesson, self.model, self.folder = lesson, model, folder_of(model)
        self.identity = identity(lesson)
        self.ledger, self.writer = Ledger(), CheckpointWriter(self.folder, "give the command again")
        self.began = self.kept = time.monotonic()

    @property
    def dropping(self) -> str:
        return f"`{shlex.join(['rm', '-r', str(self.folder)])}` drops it"

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Write what is left when the lesson ends or is stopped, and say how to go on."""
        try:
            with self.writer:
                yield
        except Interrupted as stop:
            raise Interrupted(f"the same command goes on with the lesson, {self.dropping}") from stop

    def found(self) -> Standing | None:
        """Return where this lesson stands, if it is kept; another one is refused, one that is over is dropped."""
        refuse_link(self.folder)
        latest = self.folder / "latest.json"
        if not latest.exists():
            return None
        try:
            if read_json(latest, Numbered)["number"] < self.lesson.index:
                drop_checkpoint(self.folder)  # its process was killed once the model was written
                return None
            info, components = load_checkpoint(self.folder, StoredLesson) or ({}, {})
            self._check_same(info["identity"])
            with naming_damage(self.folder):
                return self._standing(info, components)
        except UserError as error:
            raise UserError(f"{error}, or {self.dropping}") from error

    def _check_same(self, before: Mapping[str, Any]) -> None:
        names = changed(before, self.identity)
        outside = [what for name, what in OUTSIDE.items() if name in names]
        settings = [
            f"{flag(name.rpartition('.')[2])} was {_at(before, name)} and is {_at(self.identity, name)}"
            for name in names
        ]
        if names:
            told = f"{' and '.join(outside)} changed" if outside else ", ".join(settings)
            raise UserError(f"{self.model} has a lesson under way, and {told}: give the command as it was")

    def _standing(self, info: Mapping[str, Any], components: Mapping[str, Mapping[str, Tensor]]) -> Standing:
        if info["without_pile"]:
            self.lesson.leave_pile_out()
        stages, number, partial = self.lesson.stages, info["stage"], info["partial"]
        require(0 <= number < len(stages) + (partial is None), "it stands in no stage")
        if partial is not None:
            epochs, steps = stages[number].epochs, stages[number].steps
            require(0 <= partial["epoch"] < epochs and 0 <= partial["step"] < steps, "it stands in no epoch")
            partial = Partial(**partial, optimizer=components["optimizer"])
        kinds, device = kinds_of(type(self.lesson.method)), self.lesson.given.hardware.device
        state = unpack(info["state"], components, kinds, device)
        kept = {name: info[name] for name in ("stage", "gently", "without_pile", "measured", "seconds")}
        return Standing(state, partial=partial, **kept)

    @property
    def due(self) -> bool:
        return time.monotonic() - self.kept >= SECONDS

    def keep(self, standing: Standing, stage: Stage, partial: Partial | None) -> None:
        """Write where a lesson stands, in its owner's name alone."""
        refuse_link(self.folder)
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self.folder.chmod(0o700)
        except OSError as error:
            raise UserError(f"{self.folder} cannot be written to: {error.strerror}") from error
        info, components = pack(standing.state)
        if partial is not None:
            components["optimizer"] = partial.optimizer
        whole = {
            "number": self.lesson.index,
            "identity": self.identity,
            "state": info,
            "stage": standing.stage,
            "partial": partial and {"epoch": partial.epoch, "step": partial.step, "sums": partial.sums},
            "gently": standing.gently,
            "without_pile": standing.without_pile,
            "measured": standing.measured,
            "seconds": standing.seconds + time.monotonic() - self.began,
        }
        self.writer.save(whole, components, self.ledger.unchanged(standing.state, stage.train_mode))
        self.ledger.note(standing.state)
        self.kept = time.monotonic()


def _at(values: Mapping[str, Any], name: str) -> Any:
    """Return the value of a dotted name."""
    found: Any = values
    for key in name.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
