"""The demo's three runs: small enough for two CPU cores, large enough to show forgetting and what replay does about it."""

from typing import Any

DATA: dict[str, Any] = {}
RUN: dict[str, Any] = {
    "data": "shapes",
    "backbone": "resnet10",
    "base": 10,
    "steps": 5,
    "memory": 200,
    "budget": "total",
}
RECIPE: dict[str, Any] = {"base_epochs": 20, "epochs": 20, "batch_size": 32, "lr": 0.05}

RUNS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "finetune": (RUN | {"method": "finetune"}, DATA, RECIPE),
    "replay": (RUN | {"method": "replay"}, DATA, RECIPE),
    "joint": (RUN | {"method": "joint"}, DATA, RECIPE),
}
