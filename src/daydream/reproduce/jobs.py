"""A job is one run of a grid: plain data that any process can carry out, and the executors that do."""

import hashlib
import json
import statistics
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.experiment.config import check_importing, config_from_json, make_config
from daydream.reproduce.protocols import Values
from daydream.settings import plain_json
from daydream.storage.run_folder import RunFolder, read_json

if TYPE_CHECKING:
    from daydream.engine import Display
    from daydream.experiment.experiment import Experiment

LOOK_SECONDS = 0.5  # between two looks at what may start, and at whether a stop was asked for


@dataclass(frozen=True)
class Job:
    """One run: its name for people, its folder, and its settings in sections as `make_config` takes them."""

    name: str
    folder: str
    values: Values
    made: str = ""
    """The file of a result made elsewhere that counts as this run's."""

    @property
    def result(self) -> dict[str, Any] | None:
        """Return what the run gave, once it is finished."""
        if self.made:
            return _first_tasks(read_json(Path(self.made)), self.values["run"].get("tasks"))
        path = Path(self.folder) / "result.json"
        return read_json(path) if path.exists() else None


def _first_tasks(result: dict[str, Any], tasks: int | None) -> dict[str, Any]:
    """Return what a run gave in its first tasks, where it was asked for more."""
    rows = result["tasks"][:tasks]
    if len(rows) == len(result["tasks"]):
        return result
    cut = {"tasks": rows, "seconds": rows[-1].get("seconds")}
    for kind in ("nme", "cnn"):
        tops = [row[kind]["top1"] for row in rows if row.get(kind)]
        known = len(tops) == len(rows)
        cut[f"average_{kind}"] = round(statistics.fmean(tops), 4) if known else None
        cut[f"last_{kind}"] = tops[-1] if known else None
    return {**{key: value for key, value in result.items() if not key.startswith("forgetting")}, **cut}


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with a result, or with the line and the trace of what went wrong."""

    job: Job
    result: dict[str, Any] | None
    error: str = ""
    trace: str = ""


class Executor(Protocol):
    """Whoever carries out jobs, each when it is ready; each must yield one outcome.

    Taken in their order, one after the other, jobs are always ready.
    """

    def run(self, jobs: Sequence[Job], ready: Callable[[Job], bool]) -> Iterator[Outcome]: ...


@dataclass(frozen=True)
class InProcess:
    """Carries out one job after the other, here, each with a display of its own."""

    display: "Callable[[], Display]"

    def run(self, jobs: Sequence[Job], ready: Callable[[Job], bool]) -> Iterator[Outcome]:
        for job in jobs:
            display = self.display()
            if display.stop_asked():
                raise Interrupted
            try:
                outcome = attempt(job, display)
            finally:
                display.close()
            yield outcome


def make_job(name: str, values: Values, runs: Path) -> Job:
    """Return the job of some settings; equal settings give the same folder, whichever grid asks for them.

    Parts that are off do not count: a new one leaves the folders of all runs without it where they are.
    """
    run, config = values["run"], make_config(**values)
    whole = config.to_json() | {"parts": config.parts and config.parts.in_use}
    del whole["format"]
    del whole["version"]
    digest = hashlib.sha256(json.dumps(plain_json(whole), sort_keys=True).encode()).hexdigest()[:10]
    label = f"{run['method']}-{run['steps']}steps-{run['memory']}-{run['order'].replace(':', '')}"
    return Job(name, str(runs / f"{label}-{digest}"), values)


def attempt(job: Job, display: "Display") -> Outcome:
    """Carry out a job; what goes wrong is an outcome too."""
    try:
        return Outcome(job, run_job(job, display))
    except Interrupted:
        raise
    except UserError as error:
        return Outcome(job, None, str(error))
    except Exception as error:
        return Outcome(job, None, f"{type(error).__name__}: {error}", traceback.format_exc())


def run_job(job: Job, display: "Display") -> dict[str, Any]:
    """Carry out a job, or what is left of it, and return the result."""
    from daydream.experiment.experiment import Experiment

    folder = Path(job.folder)
    if job.result is not None:
        return job.result
    if (folder / "config.json").exists():
        run = RunFolder.open(folder)
        check_importing(run)
        experiment = Experiment(config_from_json(run.config))
        return _and_forget_compiled(experiment, lambda: experiment.resume(run, display))
    experiment = Experiment(make_config(**job.values))
    shared = SharedBase.of(experiment)
    trained = shared.find(folder.parent) if shared is not None else None
    if trained is not None:
        experiment.start_from(trained)
    return _and_forget_compiled(experiment, lambda: experiment.start(folder, display))


def _and_forget_compiled(experiment: "Experiment", train: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Train, then drop what was compiled: a process that runs many jobs must not run out of room for more."""
    try:
        return train()
    finally:
        if experiment.hardware.compile:
            import torch

            torch.compiler.reset()


@dataclass(frozen=True)
class SharedBase:
    """All that a base task depends on: runs that agree on it may train it once."""

    conditions: Mapping[str, Any]
    settings: Mapping[str, Any]
    seed: int

    @classmethod
    def of(cls, experiment: "Experiment") -> "SharedBase | None":
        """Return what an experiment's base task depends on, or None where its method does not share it."""
        from daydream.experiment import base_task

        shared = [stage.shared_as for stage in experiment.stages(experiment.stream.task(0)) if stage.shared_as]
        if not shared:
            return None
        conditions, settings = plain_json([base_task.conditions(experiment), shared[0]])
        return cls(conditions, settings, experiment.config.run.seed)

    def with_order(self, class_names: Sequence[str]) -> "SharedBase":
        """Return what it would be if the classes arrived in another order."""
        order = list(class_names)[: self.conditions["base"]]
        return SharedBase({**self.conditions, "order": order}, self.settings, self.seed)

    def find(self, runs: Path) -> Path | None:
        """Return a run in a folder that has trained this base task."""
        trained = (path.parents[1] for path in sorted(runs.glob("*/base/latest.json")))
        return next((run for run in trained if self.trained_by(run)), None)

    def trained_by(self, run: Path) -> bool:
        """Say whether a run has trained this base task; it may still be going on."""
        path = run / "base" / "latest.json"
        if not path.exists():
            return False
        info, seed = read_json(path), read_json(run / "config.json")["run"]["seed"]
        return SharedBase(info["conditions"], info["settings"], seed) == self


def with_order(values: Values, order: str) -> Values:
    return {**values, "run": {**values["run"], "order": order}}
