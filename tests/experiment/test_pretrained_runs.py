"""Runs from published weights: imagination suits maps of their scale, and methods without maps to imagine refuse it."""

from pathlib import Path

import pytest
from tiny_runs import TINY_IMAGINATION, Watch, tiny_experiment

from daydream.errors import UserError
from daydream.experiment.config import make_config
from daydream.experiment.naming import command_of
from daydream.nets import pretrained

BACKBONE = "efficientnet-lite0@32"


@pytest.mark.parametrize(
    ("backbone", "form"),
    [(BACKBONE, "relative"), ("timm:resnet18+pretrained", "relative"), (f"{BACKBONE}+untrained", "paper"),
     ("timm:resnet18", "paper"), ("resnet32", "paper")],
)  # fmt: skip
def test_the_losses_of_generators_suit_the_scale_of_published_weights(backbone: str, form: str) -> None:
    run = {"data": "cifar100", "method": "imagine", "backbone": backbone}
    config = make_config(run, {}, {})
    assert config.imagination.generator_form == form
    assert "--generator-form" not in command_of(config.to_json()), "its default is not repeated"
    asked = make_config(run, {}, {}, {"generator_form": "pooled"})
    assert asked.imagination.generator_form == "pooled"
    assert "--generator-form pooled" in command_of(asked.to_json())


@pytest.mark.slow
@pytest.mark.skipif(not pretrained.installed("efficientnet-lite0"), reason="needs the extra `pretrained`")
def test_imagination_runs_on_published_weights(tmp_path: Path) -> None:
    result = tiny_experiment("imagine", {"backbone": BACKBONE, "tasks": 2}).start(tmp_path / "run", Watch())
    assert result["last_nme"] > 40


@pytest.mark.parametrize("method", ["simplecil", "ranpac"])
def test_frozen_features_are_not_imagined_with(method: str) -> None:
    with pytest.raises(UserError, match="it replays no exemplars") as told:
        make_config({"method": method, "backbone": BACKBONE}, {}, {}, {**TINY_IMAGINATION, "imagine": True})
    assert "\n" not in str(told.value)
