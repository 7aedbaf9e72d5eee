"""The demo's runs: small enough for two CPU cores, large enough to show forgetting and what replay does about it."""

from typing import Any

Values = dict[str, Any]

RUN: Values = {"data": "shapes", "backbone": "resnet10", "base": 10, "steps": 5, "memory": 200, "budget": "total"}
RECIPE: Values = {"base_epochs": 26, "epochs": 10, "batch_size": 32, "lr": 0.1}
# Short of time, so: generators that begin at the exemplar, small ones, a low weight, and the pile for them alone
# (docs/notebook/demo.md).
IMAGINATION: Values = {
    "counterparts": 1,
    "generator_start": "exemplar",
    "generator_width": 16,
    "generator_epochs": 2,
    "generator_updates": 15,
    "imagined_weight": 0.25,
}
PILE: Values = {"pile_distill": 0.0}

# `base_from` names another run of the demo.
RUNS: dict[str, dict[str, Values]] = {
    "finetune": {"run": RUN | {"method": "finetune"}, "data": {}, "method": RECIPE},
    "replay": {"run": RUN | {"method": "replay"}, "data": {}, "method": RECIPE},
    "imagine": {
        "run": RUN | {"method": "imagine", "base_from": "replay"},
        "data": {},
        "method": RECIPE,
        "imagination": IMAGINATION,
        "pile": PILE,
    },
    "dream": {"run": RUN | {"method": "dream"}, "data": {}, "method": RECIPE},
    "joint": {"run": RUN | {"method": "joint"}, "data": {}, "method": RECIPE | {"base_epochs": 18}},
}
