"""Joint training: which images it sees."""

import pytest
from tiny_runs import tiny_experiment


@pytest.mark.parametrize(("kind", "tasks"), [("once", [6]), ("per-task", [2, 4, 6])])
def test_it_sees_all_classes_so_far(kind: str, tasks: list[int]) -> None:
    experiment = tiny_experiment("joint", kind=kind)
    seen = []
    for index in range(len(experiment.stream)):
        train = experiment.stages(experiment.stream.task(index))[0]
        seen.append(len(train.streams(experiment.fresh_state())["new"].images.labels.unique()))
    assert seen == tasks


def test_of_a_run_that_stops_it_sees_the_classes_before_the_stop() -> None:
    experiment = tiny_experiment("joint", {"tasks": 2})
    assert (experiment.num_tasks, experiment.stream.sizes) == (1, (4,))
