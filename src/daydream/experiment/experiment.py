"""A whole experiment: data, stream, method and hardware of a config, made ready, and its runs begun or gone on with."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from daydream.components.carried import Carried
from daydream.data import source
from daydream.data.augment import AUGMENTATIONS, Prepare
from daydream.data.images import Dataset, ImageSet, fingerprint
from daydream.data.unlabeled import load_pile
from daydream.engine import Display, Hardware, Partial, Place
from daydream.engine.distributed import team
from daydream.errors import UserError
from daydream.experiment import base_task, tensorboard
from daydream.experiment.config import Config, check_unchanged, completed, environment
from daydream.experiment.session import Course, Cursor, Session, alone
from daydream.export.classifier import Classifier, of_state
from daydream.methods import load_method, source_digest
from daydream.methods.method import Method, Setup
from daydream.nets.efficientnet_lite import normalisation
from daydream.nets.network import check_backbone, check_image_size
from daydream.protocol.memory import Budget, Memory
from daydream.protocol.stream import Stream, Task, class_order, make_stream
from daydream.settings import plain_json
from daydream.stages.stage import Stage, State
from daydream.storage.checkpoint_files import load_checkpoint, naming_damage
from daydream.storage.older import FORMAT
from daydream.storage.records import Latest
from daydream.storage.run_folder import RunFolder
from daydream.storage.state import unpack

DEFAULT_ORDERS = {"cifar100": "icarl", "imagenet-subset": "lucir"}
"""Orders of 100 classes."""


def default_order(data: str, classes: int) -> str:
    """Name the class order that a data set is usually taken in; a part of it, as it comes."""
    return DEFAULT_ORDERS.get(data, "natural") if classes == 100 else "natural"


@dataclass(frozen=True)
class PlannedTask:
    """A task as `--dry-run` shows it."""

    task: int
    classes: int
    images: int
    exemplars: int
    """Held when the task begins."""
    stages: list[Stage]


class Experiment:
    """Data, stream, method and hardware of a config, made ready and checked before anything is written.

    One that differs from another (`like`) in nothing but class order and seed shares its images. `data` is given where
    no source has it.
    """

    def __init__(self, config: Config, like: "Experiment | None" = None, data: Dataset | None = None) -> None:
        run = config.run
        self.team = team()
        self.hardware = Hardware.choose(run.device, run.precision, run.compile, None, self.team)
        check_backbone(run.backbone, run.cut)
        if run.tensorboard:
            tensorboard.require_installed()
        self.data: Dataset = like.data if like is not None else self._load(config, data)
        check_image_size(run.backbone, self.data.network_size)
        self.fingerprint = self.data.fingerprint()
        classes = len(self.data.class_names)
        order = default_order(run.data, classes) if run.order == "auto" else run.order
        base = max(1, classes // 2) if run.base is None else run.base
        memory = (20 * classes if run.budget == "total" else 20) if run.memory is None else run.memory
        run = replace(run, order=order, base=base, memory=memory)
        self.config = replace(config, run=run)
        self.budget = Budget(run.budget, memory)
        self.pile = self._pile(like)
        self.method = self._method()
        whole = make_stream(self.data, class_order(order, classes), base, run.steps, run.validation)
        stream = self.method.reshape(whole, run.tasks)
        self._check_memory(stream)
        self.stream = stream
        self.carried = Carried(self.method, self.config.carried, self.pile)
        self.carried.check(stream)

    def _load(self, config: Config, given: Dataset | None) -> Dataset:
        root, device = config.run.root, self.hardware.device
        data = given or source(config.run.data).load(Path(root).expanduser() if root else None, config.data)
        return replace(data, train=data.train.to(device), test=data.test.to(device))

    def _method(self) -> Method[Any]:
        run = self.config.run
        prepare = Prepare(*normalisation(run.backbone, self.data.mean, self.data.std), self.data.network_size)
        augment = AUGMENTATIONS[self.data.augmentation](prepare)
        kind = load_method(run.method)
        pile = self.pile if kind.needs_pile else None
        return kind(self.config.method, Setup(run.backbone, run.cut, self.budget, prepare, augment, run.seed, pile))

    def _pile(self, like: "Experiment | None") -> ImageSet | None:
        if not self.config.carried.needs_pile:
            return None
        return like.pile if like is not None else self.load_pile().to(self.hardware.device)

    def load_pile(self) -> ImageSet:
        """Return the unlabelled images the config names."""
        run = self.config.run
        root = Path(run.root) if run.root else None
        return load_pile(self.config.pile, run.data, root, self.config.data, self.data.train.image_size[0])

    def stages(self, task: Task) -> list[Stage]:
        """Return the stages of a task: the method's, with what its components add."""
        return self.carried.stages(task)

    def _check_memory(self, stream: Stream) -> None:
        if not self.method.keeps_exemplars:
            return
        if self.budget.size == 0:
            raise UserError(
                f"--memory 0: method '{self.config.run.method}' keeps exemplars and needs a memory; "
                "give it one, or use --method finetune"
            )
        self.budget.check(stream.train, stream.sizes)

    @property
    def num_tasks(self) -> int:
        """Return how many tasks of the stream this run is to see."""
        return min(len(self.stream), self.config.run.tasks or len(self.stream))

    def plan(self) -> list["PlannedTask"]:
        """Return what each task will do, without doing it."""
        tasks = [self.stream.task(index) for index in range(self.num_tasks)]
        held = self.budget.held if self.method.keeps_exemplars else lambda _: 0
        return [
            PlannedTask(task.index, task.num_new, len(task.train), held(task.num_old), self.stages(task))
            for task in tasks
        ]

    def ahead(self) -> list[tuple[Place, Stage]]:
        """Return every stage of every task, as a display wants to know them."""
        count = len(self.stream)
        return [(Place(row.task, count), stage) for row in self.plan() for stage in row.stages]

    @property
    def num_steps(self) -> int:
        """Return the training steps of all tasks."""
        return sum(stage.epochs * stage.steps for row in self.plan() for stage in row.stages)

    def parameters(self) -> tuple[int, int]:
        """Return the parameters at inference once every class is known: of the backbone, and of the head."""
        return self.method.expected_parameters(self.stream.task(len(self.stream) - 1))

    def fresh_state(self) -> State:
        return State(Memory.empty(self.budget), self.hardware.device)

    def identity(self) -> dict[str, Any]:
        """Return what a resumed run must still agree on: the config, the data and the user's own method file."""
        whole = {
            **self.config.to_json(),
            "fingerprint": self.fingerprint,
            "pile_fingerprint": None if self.pile is None else fingerprint("pile", self.pile),
            "method_source": source_digest(self.config.run.method),
        }
        return cast(dict[str, Any], plain_json(whole))

    def start_from(self, run: Path) -> None:
        """Let a run's finished base task take the place of one's own, as --base-from does."""
        self.config = replace(self.config, run=replace(self.config.run, base_from=str(run.resolve())))

    def start(self, folder: Path, display: Display) -> dict[str, Any]:
        """Run from the beginning in a new folder; return the result."""
        return alone(self.starting(folder, display))

    def starting(self, folder: Path, display: Display) -> Course:
        """Run from the beginning in a new folder, handing out what is to be trained."""
        state = self.fresh_state()
        given = base_task.read(self, Path(self.config.run.base_from)) if self.config.run.base_from else None
        device = self.hardware.describe() + (f", {self.team.size} processes" if self.team.size > 1 else "")
        facts = {
            "environment": environment(),
            "device": device,
            "pile_images": None if self.pile is None else len(self.pile),
            **({"oracle": True} if self.config.carried.oracle else {}),
        }
        with RunFolder.creating(folder, {**self.identity(), **facts}, writes=self.team.leads) as run:
            return (yield from Session(self, run, display, state, Cursor(), given=given).go())

    def restore(self, run: RunFolder) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]], State] | None:
        """Return a run's last checkpoint, info and components, and the state it holds; None where there is none yet."""
        found = load_checkpoint(run.path / "checkpoint", Latest)
        if found is None:
            return None
        info, components = found
        check_unchanged(completed(info["identity"]), self.identity(), str(run.path))
        with naming_damage(run.path / "checkpoint"):
            return info, components, unpack(info["state"], components, self.carried.kinds, self.hardware.device)

    def classifier(self, run: RunFolder) -> Classifier:
        """Return what a run's last checkpoint knows, to be used elsewhere."""
        found = self.restore(run)
        if found is None:
            raise UserError(f"{run.path} has no checkpoint yet: nothing to export")
        inside = found[0]["partial"] and self.stream.task(found[0]["cursor"]["task"])
        parts = self.carried.parts
        if inside and parts and parts.rotates(inside):
            raise UserError(f"{run.path} stands in a task whose head has rotated classes too: resume it, then export")
        names, canvas = self.stream.train.class_names, self.data.train.image_size[0]
        return of_state(self.method, found[2], names, canvas=canvas)

    def resume(self, run: RunFolder, display: Display) -> dict[str, Any]:
        """Go on from a run's last checkpoint; return the result."""
        return alone(self.resuming(run, display))

    def resuming(self, run: RunFolder, display: Display) -> Course:
        """Go on from a run's last checkpoint, handing out what is to be trained."""
        run = replace(run, writes=self.team.leads)
        if run.result is not None:
            return run.result
        if run.format != FORMAT:
            raise UserError(f"{run.path} was begun by an earlier daydream: end it with that one, or start a new run")
        with run.locked():
            found = self.restore(run)
            self.team.meet()  # all have read the checkpoint before the first writes another
            if found is None:
                run.forget_metrics_after(0)
                base_from = self.config.run.base_from
                given = base_task.read(self, Path(base_from)) if base_from else None
                return (yield from Session(self, run, display, self.fresh_state(), Cursor(), given=given).go())
            info, components, state = found
            with naming_damage(run.path / "checkpoint"):
                cursor = Cursor(**info["cursor"])
                partial = info["partial"] and Partial(**info["partial"], optimizer=components["optimizer"])
            run.forget_metrics_after(info["metrics_size"], cursor.rows)
            return (yield from Session(self, run, display, state, cursor, partial, resumed=True).go())
