"""One stretch of a run: tasks and their stages in turn, an evaluation after each task, checkpoints all along."""

import contextlib
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from daydream.engine import Display, Engine, EpochReport, Lockstep, Partial, Place, Training
from daydream.experiment import base_task, tensorboard
from daydream.experiment.naming import headline, task_text
from daydream.protocol import evaluate
from daydream.protocol.inference import over_images
from daydream.protocol.memory import class_means
from daydream.protocol.stream import Task
from daydream.settings import plain_json
from daydream.stages.stage import Stage, State
from daydream.storage.checkpoint_files import CheckpointWriter
from daydream.storage.run_folder import RunFolder
from daydream.storage.state import Ledger, pack

if TYPE_CHECKING:
    from daydream.experiment.experiment import Experiment

Course = Generator[Training, None, dict[str, Any]]
"""A run on its way: hands out each stage that is ready to be trained, goes on when it has been, returns the result."""


def alone(course: Course) -> dict[str, Any]:
    """Train a run by itself; return its result."""
    with contextlib.closing(course):
        while True:
            try:
                training = next(course)
            except StopIteration as end:
                result: dict[str, Any] = end.value
                return result
            Lockstep([training]).train()


@dataclass
class Cursor:
    """How far a run has come; all of it is checkpointed."""

    task: int = 0
    stage: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    """One evaluation per finished task."""
    seconds: float = 0.0
    """Spent in earlier processes."""
    epochs: int = 0
    """Finished epochs of all stages: the time axis of TensorBoard."""


class Session:
    """One process's stretch of a run: a cursor moving over tasks and stages."""

    def __init__(
        self,
        experiment: "Experiment",
        run: RunFolder,
        display: Display,
        state: State,
        cursor: Cursor,
        partial: Partial | None = None,
        resumed: bool = False,
        given: base_task.Base | None = None,
    ) -> None:
        self.experiment, self.run, self.display = experiment, run, display
        self.state, self.cursor, self.partial = state, cursor, partial
        self.resumed, self.given = resumed, given
        self.method, self.stream = experiment.method, experiment.stream
        self.engine = Engine(experiment.hardware, experiment.config.run.seed, experiment.team)
        self.identity = experiment.identity()
        self.ledger, self.writer = Ledger(), CheckpointWriter(run.path / "checkpoint")
        self.began = time.perf_counter()
        wanted = experiment.config.run.tensorboard and run.writes
        self.board = tensorboard.Board(run.path / "tensorboard", cursor.epochs) if wanted else None

    def go(self) -> Course:
        """Run what is left and write the result."""
        self.experiment.hardware.set_up()
        does = "resuming" if self.resumed else "running"
        self.display.begins(f"{does} {headline(self.experiment)} in {self.run.path}", self.experiment.ahead())
        with self.writer:
            while self.cursor.task < self.experiment.num_tasks:
                yield from self.run_task(self.stream.task(self.cursor.task))
        if not self.run.writes:
            return {}
        result: dict[str, Any] = plain_json(self.result())
        self.run.write_result(result)
        return result

    def run_task(self, task: Task) -> Iterator[Training]:
        """Run the stages of a task that are left, then evaluate."""
        self.task, stages = task, self.experiment.stages(task)
        self.place = Place(task.index, task.num_tasks)
        self.stage = stages[-1]  # a resumed run may have nothing left of a task but its evaluation
        shared = [place for place, stage in enumerate(stages) if task.is_base and stage.shared_as is not None]
        while self.cursor.stage < len(stages):
            ends_base = self.cursor.stage in shared[-1:]
            yield from self.run_stage(stages[self.cursor.stage], self.cursor.stage in shared, ends_base)
        row, confusion = self.evaluate(task)
        self.run.append({"kind": "task", **row})
        if task.index + 1 == self.experiment.num_tasks:
            self.run.append({"kind": "confusion", "task": task.index, **confusion})
        if self.board is not None:
            self.board.task(self.cursor.epochs, row)
        self.cursor.rows.append(row)
        self.cursor.task, self.cursor.stage = task.index + 1, 0
        self.checkpoint(None)
        self.display.task_ends(task_text(row))

    def run_stage(self, stage: Stage, shared: bool, ends_base: bool) -> Iterator[Training]:
        """Run one stage, or, if it may be shared, take over a base task that another run has trained."""
        self.stage, partial = stage, self.partial
        self.partial = None
        if self.given is not None and shared:
            base_task.take(self.given, self.state, self.experiment.carried.kinds)
        else:
            self.display.stage_begins(self.place, stage, partial.epoch if partial else 0)
            place = (self.task.index, self.cursor.stage)
            yield from self.engine.trainings(stage, self.state, place, self, partial)
        if stage.report is not None:
            numbers = dict(stage.report(self.state))
            self.run.append({"kind": "report", "task": self.task.index, "stage": stage.name, **numbers})
        if ends_base and self.run.writes:
            base_task.write(self.experiment, self.run.path, stage, self.state)
        self.cursor.stage += 1
        self.checkpoint(None)

    # What the engine asks of its watcher.

    def epoch(self, report: EpochReport) -> None:
        where = {"kind": "epoch", "task": self.task.index, "stage": self.stage.name}
        self.run.append({**where, **{k: v for k, v in asdict(report).items() if k != "epochs"}})
        self.cursor.epochs += 1
        if self.board is not None:
            self.board.epoch(self.cursor.epochs, self.stage.name, report)
        self.display.epoch_ends(self.place, self.stage, report)

    def stop_asked(self) -> bool:
        return self.display.stop_asked()

    def wants_checkpoint(self, epoch: int) -> bool:
        return epoch % self.experiment.config.run.checkpoint_every == 0

    def checkpoint(self, partial: Partial | None) -> None:
        """Write all that a resumed run needs."""
        if not self.run.writes:
            return
        info, components = pack(self.state)
        if partial is not None:
            components["optimizer"] = partial.optimizer
        cursor = {**asdict(self.cursor), "seconds": self.seconds()}
        stands = partial and {"epoch": partial.epoch, "step": partial.step, "sums": partial.sums}
        whole = {
            "identity": self.identity,
            "cursor": cursor,
            "partial": stands,
            "state": info,
            "metrics_size": self.run.metrics_size,
        }
        unchanged = self.ledger.unchanged(self.state, self.stage.train_mode)
        self.writer.save(whole, components, unchanged)
        self.ledger.note(self.state)

    def seconds(self) -> float:
        return self.cursor.seconds + time.perf_counter() - self.began

    # Evaluation.

    def evaluate(self, task: Task) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a task's row, CNN and, with exemplars, NME accuracy on the test images of all classes seen; and what
        was taken for what."""
        state, prepare = self.state, self.method.setup.prepare
        sizes = self.stream.sizes[: task.index + 1]
        test = self.stream.test_seen(task.index)
        features, scores = over_images(lambda x: self.method.predict(state, x), test, prepare)
        row: dict[str, Any] = {"task": task.index, "classes": task.num_seen, "exemplars": len(state.memory)}
        row["cnn"] = asdict(evaluate.accuracy(scores, test.labels, sizes))
        row["nme"] = None
        confusion: dict[str, Any] = {"names": test.class_names[: task.num_seen]}
        confusion["cnn"] = evaluate.confusion(scores, test.labels)
        if len(state.memory):
            exemplars = state.memory.as_set(test.class_names)
            plain, mirrored = (
                over_images(lambda x: (self.method.predict(state, x).features,), exemplars, prepare, mirror)[0]
                for mirror in (False, True)
            )
            means = class_means(plain, mirrored, exemplars.labels, task.num_seen)
            nearest = evaluate.nearest_mean_scores(features, means)
            row["nme"] = asdict(evaluate.accuracy(nearest, test.labels, sizes))
            confusion["nme"] = evaluate.confusion(nearest, test.labels)
        row["parameters"], row["head_parameters"] = self.method.parameters(state)
        return {**row, "seconds": round(self.seconds(), 2)}, confusion

    def result(self) -> dict[str, Any]:
        """Return what result.json holds."""
        rows, config = self.cursor.rows, self.experiment.config
        summary: dict[str, Any] = {"method": config.run.method, "data": config.run.data, "reports": self.method.reports}
        for kind in ("nme", "cnn"):
            known = all(row[kind] is not None for row in rows)
            tops = [row[kind]["top1"] for row in rows] if known else []
            summary[f"average_{kind}"] = round(evaluate.average(tops), 4) if tops else None
            summary[f"last_{kind}"] = tops[-1] if tops else None
            drop = evaluate.forgetting([row[kind]["per_task"] for row in rows]) if known else None
            summary[f"forgetting_{kind}"] = None if drop is None else round(drop, 4)
        summary["forgetting"] = summary[f"forgetting_{self.method.reports}"]
        summary["parameters"], summary["head_parameters"] = self.method.parameters(self.state)
        # The field's tables give a network that grows by its mean over tasks.
        counts = [row.get("parameters", summary["parameters"]) for row in rows]
        summary["mean_parameters"] = round(evaluate.average(counts)) if counts else None
        summary["seconds"] = round(self.seconds(), 2)
        summary["evaluated_on"] = "validation" if config.run.validation else "test"
        return {**summary, "tasks": rows, "config": self.run.config}
