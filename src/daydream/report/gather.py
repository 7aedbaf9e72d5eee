"""Run folders as plain data for tables and charts. Nothing is trained or computed here beyond sums."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from daydream.errors import UserError
from daydream.experiment.naming import data_name, variants
from daydream.protocol import evaluate
from daydream.storage.older import FORMAT
from daydream.storage.run_folder import RunFolder

Row = dict[str, Any]
KINDS = ("nme", "cnn")


class Spent(NamedTuple):
    """What a stage took in one task."""

    seconds: float
    images: int


@dataclass(frozen=True)
class Run:
    """One run: its settings and what it has measured so far."""

    path: Path
    name: str
    """The shortest end of its path that no other run of the report has."""
    variant: str
    """Its method, with flags for what tells it from others of that method in the report."""
    config: Row
    result: Row | None
    tasks: list[Row]
    epochs: list[Row]
    confusion: Row | None
    """What was taken for what after the last task; None before it, or in a run that did not write it."""

    @property
    def settings(self) -> Row:
        run: Row = self.config["run"]
        return run

    @property
    def components(self) -> Row:
        """Return the settings of the data set, the method and what it carries."""
        sections = {key: value for key, value in self.config.items() if isinstance(value, dict)}
        return {key: value for key, value in sections.items() if key not in ("run", "environment")}

    @property
    def finished(self) -> bool:
        return self.result is not None

    @property
    def status(self) -> str:
        done = len(self.tasks)
        return "finished" if self.finished else f"unfinished: {done} task{'s' * (done != 1)} done"

    @property
    def evaluated_on(self) -> str:
        return "validation" if self.settings["validation"] else "test"

    @property
    def protocol(self) -> str:
        """What must agree before two runs compare, in words."""
        s = self.settings
        stopped = f", first {s['tasks']} tasks" if s.get("tasks") else ""
        keeps = not self.tasks or any(row["exemplars"] for row in self.tasks)
        held = f"memory {s['memory']} {s['budget']}" if keeps else "no memory"
        return f"{s['base']} classes + {s['steps']} steps{stopped}, {held}, {s['backbone']}, order {s['order']}"

    def measured(self, kind: str) -> list[Row]:
        """Return the tasks that have this kind of accuracy: a run without exemplars has no NME."""
        return [row for row in self.tasks if row[kind] is not None]

    @property
    def grows(self) -> bool:
        """Say whether its network has other parameters after one task than after another."""
        return len({row.get("parameters") for row in self.tasks}) > 1

    def matrix(self, kind: str) -> list[list[float]]:
        """Return the accuracy on the classes of task j after task t, t rows of t + 1 values."""
        return [row[kind]["per_task"] for row in self.measured(kind)]

    def forgetting(self, kind: str) -> list[float | None]:
        """Return the forgetting after each task; None after the first."""
        matrix = self.matrix(kind)
        return [evaluate.forgetting(matrix[: t + 1]) for t in range(len(matrix))]

    @property
    def stages(self) -> list[str]:
        """Return the names of its stages in the order they first ran."""
        return list(dict.fromkeys(row["stage"] for row in self.epochs))

    def of_stage(self, stage: str) -> list[Row]:
        return [row for row in self.epochs if row["stage"] == stage]

    def spent(self) -> dict[tuple[int, str], Spent]:
        """Return what each stage of each task took."""
        found: dict[tuple[int, str], Spent] = {}
        for row in self.epochs:
            key = (row["task"], row["stage"])
            before = found.get(key, Spent(0.0, 0))
            found[key] = Spent(before.seconds + row["seconds"], before.images + row["images"])
        return found

    def seconds_of_tasks(self) -> list[float]:
        """Return what each finished task took from its start to its evaluation, all included."""
        ends = [0.0, *(row["seconds"] for row in self.tasks)]
        return [max(0.0, after - before) for before, after in pairwise(ends)]


@dataclass(frozen=True)
class Section:
    """Runs on the same images: only they are drawn together."""

    title: str
    runs: list[Run]


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Read runs, finished or not, each folder once; a folder that is none is the user's mistake."""
    unique = list({path.resolve(): path for path in paths}.values())
    folders = [RunFolder.open(path) for path in unique]
    configs = [_config(folder) for folder in folders]
    named = zip(folders, configs, short_names(unique), variants(configs), strict=True)
    return [_read(folder, config, name, variant) for folder, config, name, variant in named]


def _config(folder: RunFolder) -> Row:
    config = folder.config
    if config.get("format") != FORMAT:
        raise UserError(f"{folder.path} has format {config.get('format')!r}; this daydream reads format {FORMAT}")
    return config


def _read(folder: RunFolder, config: Row, name: str, variant: str) -> Run:
    rows = folder.metrics()
    confusions = [row for row in rows if row["kind"] == "confusion"]
    return Run(
        path=folder.path,
        name=name,
        variant=variant,
        config=config,
        result=folder.result,
        tasks=[row for row in rows if row["kind"] == "task"],
        epochs=[row for row in rows if row["kind"] == "epoch"],
        confusion=confusions[-1] if confusions else None,
    )


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest end of each path that no other path ends in."""
    parts = [path.resolve().parts for path in paths]

    def shortest(own: tuple[str, ...]) -> Iterator[str]:
        for length in range(1, len(own) + 1):
            if sum(other[-length:] == own[-length:] for other in parts) == 1:
                yield "/".join(own[-length:])

    return [next(shortest(own)) for own in parts]


def sections(runs: Sequence[Run]) -> list[Section]:
    """Split runs by the images they saw, in order of first appearance."""
    keys = [(data_name(run.config), run.config.get("fingerprint", "")) for run in runs]
    named = Counter(data for data, _ in dict.fromkeys(keys))
    return [
        Section(
            title=data if named[data] == 1 else f"{data}, images {fingerprint[:8]}",
            runs=[run for run, key in zip(runs, keys, strict=True) if key == (data, fingerprint)],
        )
        for data, fingerprint in dict.fromkeys(keys)
    ]
