"""What tests of a method share: the tiny experiment that a module names by `METHOD`, with its `SETTINGS`, made once."""

from typing import Any

import pytest
from stages_driven import after_task
from tiny_runs import Watch, tiny_experiment

from daydream.experiment.experiment import Experiment
from daydream.protocol.stream import Task
from daydream.stages.stage import Stage, State
from daydream.storage.run_folder import RunFolder


def made(module: Any) -> Experiment:
    return tiny_experiment(module.METHOD, **getattr(module, "SETTINGS", {}))


@pytest.fixture(scope="module")
def experiment(request: pytest.FixtureRequest) -> Experiment:
    return made(request.module)


@pytest.fixture(scope="module")
def known(experiment: Experiment) -> State:
    """The state when the second increment begins; to be copied, not changed."""
    return after_task(experiment, after_task(experiment, experiment.fresh_state(), 0), 1)


@pytest.fixture(scope="module")
def task(experiment: Experiment) -> Task:
    """The second increment: 4 old classes and 2 new ones."""
    return experiment.stream.task(2)


@pytest.fixture(scope="module")
def stages(experiment: Experiment, task: Task) -> list[Stage]:
    return experiment.stages(task)


@pytest.fixture(scope="module")
def unbroken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of the experiment that nobody stopped."""
    folder = tmp_path_factory.mktemp(request.module.METHOD) / "run"
    made(request.module).start(folder, Watch())
    return RunFolder(folder)
