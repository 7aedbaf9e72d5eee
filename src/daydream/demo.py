"""The demo's runs: small enough for two CPU cores, large enough to show forgetting and what replay does about it."""

from typing import Any

Values = dict[str, Any]

RUN: Values = {"data": "shapes", "backbone": "resnet10", "base": 10, "steps": 5, "memory": 200, "budget": "total"}
RECIPE: Values = {"base_epochs": 26, "epochs": 10, "batch_size": 32, "lr": 0.1}

RUNS: dict[str, tuple[Values, Values, Values]] = {
    "finetune": (RUN | {"method": "finetune"}, {}, RECIPE),
    "replay": (RUN | {"method": "replay"}, {}, RECIPE),
    "joint": (RUN | {"method": "joint"}, {}, RECIPE | {"base_epochs": 18}),
}
