"""A tiny run that imagines, and its state after the base task."""

import pytest
from imagining import after_base
from tiny_runs import tiny_experiment

from daydream.experiment.experiment import Experiment
from daydream.stages.stage import State


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return tiny_experiment("imagine")


@pytest.fixture(scope="module")
def base(experiment: Experiment) -> State:
    """The state when the first increment begins; to be copied, not changed."""
    return after_base(experiment)
