"""Experiments from Python: `daydream.run(...)`, with the settings, errors and folders of the command.

run = daydream.run(data="cifar100", root="DIR", method="imagine", unlabeled="imagenet32:PILE", base=50, steps=10)
run.average_nme, run.table(), run.report("page.html")
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daydream import atomic
from daydream.data.images import Dataset
from daydream.data.sources import arrays
from daydream.engine import Display
from daydream.errors import UserError
from daydream.experiment.config import RunSettings, config_from_json, make_config, sections_of
from daydream.experiment.experiment import Experiment
from daydream.experiment.naming import summary_of
from daydream.report.gather import read_runs
from daydream.report.page import HOW, installed, render
from daydream.report.run_tables import as_text, run_table
from daydream.settings import sorted_into
from daydream.storage.run_folder import RunFolder

Arrays = tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]
"""Training images, their labels, test images, their labels: images [N, H, W, 3] or [N, 3, H, W] of uint8."""


@dataclass(frozen=True)
class Run:
    """A run that is done, or as far as it has come."""

    folder: Path

    @property
    def _stored(self) -> RunFolder:
        return RunFolder.open(self.folder)

    @property
    def config(self) -> dict[str, Any]:
        """All settings, with versions, device and a fingerprint of the data."""
        return self._stored.config

    @property
    def result(self) -> dict[str, Any]:
        """All that `result.json` holds."""
        found = self._stored.result
        if found is None:
            raise UserError(f"{self.folder} is not finished: go on with daydream.resume({str(self.folder)!r})")
        return found

    @property
    def finished(self) -> bool:
        return self._stored.result is not None

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """CNN and NME accuracy after each finished task: top-1, top-5, per task, on new and on old classes."""
        return [row for row in self._stored.metrics() if row["kind"] == "task"]

    @property
    def average_nme(self) -> float | None:
        """Mean over tasks of top-1 on all classes seen by nearest means of exemplars; None without exemplars."""
        found: float | None = self.result["average_nme"]
        return found

    @property
    def average_cnn(self) -> float:
        """Mean over tasks of top-1 on all classes seen by the head."""
        return float(self.result["average_cnn"])

    @property
    def last_nme(self) -> float | None:
        found: float | None = self.result["last_nme"]
        return found

    @property
    def last_cnn(self) -> float:
        return float(self.result["last_cnn"])

    def table(self) -> str:
        """Return the run as `daydream show` prints it."""
        return as_text(run_table(self._stored))

    def report(self, page: str | Path) -> Path:
        """Write the page of charts that `daydream report` writes; return where."""
        if not installed():
            raise UserError(f"the page needs jinja2 and plotly: {HOW}")
        atomic.write_text(Path(page), render(read_runs([self.folder]), {}))
        return Path(page)

    def __repr__(self) -> str:
        row = summary_of(self._stored)
        said = f"{row['method']} on {row['data']}, {row['status']}"
        if row["average_cnn"] is not None:
            nme = "–" if row["average_nme"] is None else f"{row['average_nme']:.2f}"
            said += f", average NME {nme}, CNN {row['average_cnn']:.2f}"
        return f"<daydream run {self.folder}: {said}>"


def run(
    *,
    data: str | Arrays = "shapes",
    out: str | Path | None = None,
    display: Display | None = None,
    **settings: Any,
) -> Run:
    """Train a method through all tasks of a stream; return the run.

    Every flag of `daydream run` is a setting here, by the same name (`--base-epochs` is `base_epochs`). `data` is the
    name of a data set, or arrays of your own: (train_images, train_labels, test_images, test_labels). `out` is the
    run's folder, by default a new one under runs/. `display` shows progress; by default nothing does.
    """
    own = None if isinstance(data, str) else dataset(data)
    name = data if isinstance(data, str) else arrays.NAME
    method = str(settings.get("method", RunSettings().method))
    values = sorted_into(sections_of(name, method, "", settings.get("base_epochs")), {"data": name, **settings})
    experiment = Experiment(make_config(**values), data=own)
    folder = Path(out) if out is not None else new_folder(f"{name}-{Path(method).name.replace('.py:', '-')}")
    experiment.start(folder, display or Display())
    return Run(folder)


def resume(folder: str | Path, *, data: Arrays | None = None, display: Display | None = None) -> Run:
    """Go on with a run that was stopped or killed; one on arrays needs them again, as `data`."""
    stored = RunFolder.open(Path(folder))
    config = config_from_json(stored.config)
    own = None if data is None else dataset(data)
    Experiment(config, data=own).resume(stored, display or Display())
    return Run(Path(folder))


def dataset(given: Arrays) -> Dataset:
    """Return arrays as a data set."""
    if not isinstance(given, tuple | list) or len(given) != 4:
        raise UserError("data takes a name or (train_images, train_labels, test_images, test_labels)")
    return arrays.dataset(*(np.asarray(part) for part in given))


def new_folder(name: str) -> Path:
    """Return a folder under runs/ that does not exist yet."""
    candidates = (Path("runs") / (name if i == 1 else f"{name}-{i}") for i in range(1, 10_000))
    return next(path for path in candidates if not path.exists())
