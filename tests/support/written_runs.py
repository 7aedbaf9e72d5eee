"""Run folders written by hand, as a run leaves them: for what reads runs and trains nothing."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RUN = {
    "data": "cifar100", "root": "/data", "method": "replay", "backbone": "resnet32", "cut": "stage3", "base": 50,
    "steps": 10, "tasks": None, "memory": 2000, "budget": "total", "order": "icarl", "seed": 1, "validation": 0.0,
    "base_from": "", "device": "auto", "precision": "auto", "compile": None, "capture": None, "checkpoint_every": 10,
    "tensorboard": False,
}  # fmt: skip


def accuracies(per_task: Sequence[float]) -> dict[str, Any]:
    """One kind of accuracy after a task, by tasks of equal size."""
    old = per_task[:-1]
    mean = sum(per_task) / len(per_task)
    return {
        "top1": mean,
        "top5": mean,
        "per_task": list(per_task),
        "new": per_task[-1],
        "old": sum(old) / len(old) if old else None,
    }


def write_run(
    folder: Path,
    matrix: Sequence[Sequence[float]] = ((80.0,), (60.0, 90.0), (50.0, 70.0, 85.0)),
    run: Mapping[str, Any] = {},
    epochs: int = 2,
    finished: bool = True,
    nme: bool = True,
    confusion: Sequence[Sequence[int]] | None = None,
    fingerprint: str = "a6ffa8c8f9cf8a68",
    stages: Sequence[str] = ("train",),
    parameters: Sequence[int] = (),
    **sections: Any,
) -> Path:
    """Write a run whose accuracies after task t are `matrix[t]`, each task of ten classes and ten seconds."""
    folder.mkdir(parents=True)
    config = {
        "format": 1,
        "version": "0.1.0",
        "run": {**RUN, **run},
        "data": {},
        "method": {},
        "imagination": None,
        "pile": None,
        **sections,
        "fingerprint": fingerprint,
        "environment": {"daydream": "0.1.0", "python": "3.11", "torch": "2.13.0", "system": "Linux"},
        "device": "cpu (fp32)",
    }
    rows: list[dict[str, Any]] = []
    for task, per_task in enumerate(matrix):
        for stage in stages:
            for epoch in range(epochs):
                losses = {"ce": 3.0 / (1 + epoch), "distill": 0.123456789}
                where = {"kind": "epoch", "task": task, "stage": stage, "epoch": epoch}
                rows.append({**where, "losses": losses, "lr": 0.1, "images": 1000, "seconds": 2.0})
        found = accuracies(per_task)
        kinds = {"cnn": found, "nme": found if nme else None}
        size = {"classes": 10 * (task + 1), "exemplars": 20 if nme else 0}
        counted = {"parameters": parameters[task]} if parameters else {}
        rows.append({"kind": "task", "task": task, **size, **kinds, "seconds": 10.0 * (task + 1), **counted})
    if confusion is not None:
        names = [f"class {i}" for i in range(len(confusion))]
        counts = [list(row) for row in confusion]
        rows.append({"kind": "confusion", "task": len(matrix) - 1, "names": names, "cnn": counts, "nme": counts})
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if finished:
        counted = {"parameters": parameters[-1], "mean_parameters": sum(parameters) // 3} if parameters else {}
        (folder / "result.json").write_text(json.dumps({**result_of(matrix, nme), **counted}))
    return folder


def result_of(matrix: Sequence[Sequence[float]], nme: bool) -> dict[str, Any]:
    """Return what result.json would hold of these accuracies."""
    tops = [sum(row) / len(row) for row in matrix]
    last = len(matrix) - 1
    drops = [max(matrix[t][j] for t in range(j, last)) - matrix[last][j] for j in range(last)]
    values = {
        "average": sum(tops) / len(tops),
        "last": tops[-1],
        "forgetting": sum(drops) / len(drops) if drops else None,
    }
    summary = {f"{name}_{kind}": value for name, value in values.items() for kind in ("cnn", "nme")}
    if not nme:
        summary |= {f"{name}_nme": None for name in values}
    return {**summary, "reports": "nme", "parameters": 464154, "head_parameters": 64000, "seconds": 30.0}
