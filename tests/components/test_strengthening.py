"""Strong augmentation as a part: who sees it, what it leaves alone, and that it makes another base task."""

from pathlib import Path

import pytest
from stages_driven import after_task, batch_of, begun
from tiny_runs import Watch, tiny_experiment

from daydream.components.strengthening import strengthened
from daydream.data.strong import Strong
from daydream.errors import UserError
from daydream.experiment import base_task


def test_every_stream_of_a_stage_is_augmented_strongly_and_its_images_are_those_it_had() -> None:
    experiment = tiny_experiment()
    state = after_task(experiment, experiment.fresh_state(), 0)
    plain = experiment.method.stages(experiment.stream.task(1))[0]
    state, strong = begun(state, plain), strengthened(plain)
    for name, own in plain.streams(state).items():
        assert strong.streams(state)[name].augment == Strong(own.augment)
    weak, batch = batch_of(plain, state, 1), batch_of(strong, state, 1)
    for name in ("new", "old"):
        assert batch[name].index.equal(weak[name].index)
        assert not batch[name].images.equal(weak[name].images)
    assert plain.shared_as is None
    assert strong.shared_as is None


def test_a_method_of_two_trainings_sees_it_in_both_and_herds_plain_images() -> None:
    experiment = tiny_experiment("foster", parts={"augment": "strong", "erase": 0.5})
    state = after_task(experiment, experiment.fresh_state(), 0)
    boost, compress, select = experiment.stages(experiment.stream.task(1))
    for stage in (boost, compress):
        assert stage.begin is not None
        stage.begin(state)
        assert all(isinstance(own.augment, Strong) for own in stage.streams(state).values())
    assert not select.epochs


def test_a_base_task_trained_without_it_is_another(tmp_path: Path) -> None:
    tiny_experiment(run={"tasks": 1}).start(tmp_path / "plain", Watch())
    with pytest.raises(UserError, match="augment"):
        base_task.read(tiny_experiment(parts={"augment": "strong"}), tmp_path / "plain")
