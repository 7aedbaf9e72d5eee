"""What the files of a run hold, as types: each is checked when it is read, so that no reader meets a surprise.

A file may hold more than is named here; what is named must be there (unless it is `NotRequired`) and of its type.
`settings.mismatch` compares: settings are checked by these types and in these words already. msgspec or pydantic would
bring a second set of both, a second kind of message, and compiled code to be trusted with a stranger's file; what they
do better is speed, and a run's files are read once. A value comes back as it was read, so whoever reads runs need not
know.
"""

from typing import Any, Literal, NotRequired, TypedDict

Plain = str | int | float | bool | None
Sections = dict[str, Plain | list[Plain]]


class StoredRun(TypedDict):
    """`run` of config.json: what readers ask for; the rest is checked where a run is built again."""

    data: str
    method: str
    backbone: str
    cut: str
    base: int
    steps: int
    memory: int
    budget: Literal["total", "per_class"]
    order: str
    seed: int
    validation: float
    tasks: NotRequired[int | None]
    root: NotRequired[str]
    base_from: NotRequired[str]


class StoredConfig(TypedDict):
    """config.json, and what a checkpoint says of it."""

    format: int
    run: StoredRun
    data: Sections
    method: Sections
    imagination: NotRequired[Sections | None]
    pile: NotRequired[Sections | None]
    parts: NotRequired[Sections | None]
    version: NotRequired[str]
    environment: NotRequired[dict[str, str]]
    device: NotRequired[str]
    pile_images: NotRequired[int | None]
    oracle: NotRequired[bool]
    fingerprint: NotRequired[str]
    pile_fingerprint: NotRequired[str | None]
    method_source: NotRequired[str | None]


class StoredAccuracy(TypedDict):
    """An accuracy after a task."""

    top1: float
    top5: float
    per_task: list[float]
    new: float
    old: float | None


class TaskRow(TypedDict):
    """A task, in metrics.jsonl and in a checkpoint."""

    task: int
    classes: int
    exemplars: int
    cnn: StoredAccuracy
    nme: StoredAccuracy | None
    seconds: float
    parameters: NotRequired[int]
    head_parameters: NotRequired[int]


class EpochRow(TypedDict):
    task: int
    stage: str
    epoch: int
    losses: dict[str, float]
    lr: float
    images: int
    seconds: float


class ConfusionRow(TypedDict):
    task: int
    names: list[str]
    cnn: list[list[int]]
    nme: NotRequired[list[list[int]]]


ROWS: dict[str, type] = {"task": TaskRow, "epoch": EpochRow, "confusion": ConfusionRow}
"""Rows of metrics.jsonl by their kind; others are only kept."""


class Result(TypedDict):
    """result.json."""

    reports: Literal["cnn", "nme"]
    average_nme: float | None
    average_cnn: float | None
    last_nme: float | None
    last_cnn: float | None
    forgetting_nme: float | None
    forgetting_cnn: float | None
    forgetting: NotRequired[float | None]
    parameters: int
    head_parameters: int
    mean_parameters: NotRequired[int | None]
    seconds: float
    tasks: NotRequired[list[TaskRow]]
    config: NotRequired[StoredConfig]


class StoredCursor(TypedDict):
    task: int
    stage: int
    rows: list[TaskRow]
    seconds: float
    epochs: int


class StoredPartial(TypedDict):
    epoch: int
    step: int
    sums: dict[str, float]


class StoredNetwork(TypedDict):
    kind: str
    config: dict[str, Plain | list[Plain]]


class StoredBudget(TypedDict):
    rule: Literal["total", "per_class"]
    size: int


class StoredState(TypedDict):
    nets: dict[str, StoredNetwork]
    budget: StoredBudget


class Files(TypedDict):
    """Any latest.json: the file of each component, and a digest over all that it says."""

    files: dict[str, str]
    digest: NotRequired[str]


class Latest(Files):
    """checkpoint/latest.json."""

    identity: StoredConfig
    state: StoredState
    cursor: StoredCursor
    partial: StoredPartial | None
    metrics_size: int


class LatestBase(Files):
    """base/latest.json."""

    conditions: dict[str, Any]
    settings: dict[str, Any]
    state: StoredState
