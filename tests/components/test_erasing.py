"""Blank squares against loops; who sees them, and that they make another base task."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from stages_driven import batch_of, begun, drive
from tiny_runs import Watch, tiny_experiment
from torch import Tensor

from daydream.components.erasing import blanked, draw_middles
from daydream.errors import UserError
from daydream.experiment import Experiment
from daydream.stage import Batch, Stage, State


@pytest.mark.parametrize("share", [0.2, 0.375, 0.9])
def test_squares_against_a_loop(share: float) -> None:
    generator = torch.Generator().manual_seed(1)
    images, middles = torch.randn(5, 3, 8, 8, generator=generator), torch.rand(5, 2, generator=generator)
    expected = images.clone()
    for image, (down, across) in zip(expected, middles.tolist(), strict=True):
        for row in range(8):
            for column in range(8):
                if max(abs((row + 0.5) / 8 - down), abs((column + 0.5) / 8 - across)) < share / 2:
                    image[:, row, column] = 0
    found = blanked(images.contiguous(memory_format=torch.channels_last), middles, share)
    assert torch.equal(found, expected)
    assert not torch.equal(found, images)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_a_square_has_the_side_that_was_asked_for() -> None:
    assert int((blanked(torch.ones(1, 1, 32, 32), torch.tensor([[0.5, 0.5]]), 0.375) == 0).sum()) == 12 * 12
    assert int((blanked(torch.ones(1, 1, 32, 32), torch.tensor([[0.0, 1.0]]), 0.375) == 0).sum()) == 6 * 6


def test_middles_lie_anywhere_in_the_image() -> None:
    drawn = draw_middles(torch.Generator().manual_seed(1), 50, 40)
    assert drawn.shape == (50, 40, 2)
    assert 0 <= float(drawn.min()) < 0.01 < 0.99 < float(drawn.max()) <= 1


def watched(experiment: Experiment, task: int, seen: list[Batch]) -> Stage:
    """Return a task's training stage as the experiment's parts make it, with losses that only look at their batch."""
    assert experiment.parts is not None
    plain = experiment.method.stages(experiment.stream.task(task))[0]

    def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
        seen.append(batch)
        return {}

    return experiment.parts.stages(experiment.stream.task(task), [replace(plain, losses=losses)])[0]


def test_an_increment_sees_them_in_new_images_and_exemplars_and_leaves_other_streams_alone() -> None:
    """Imagination adds its pile to a stage that has blank squares already."""
    experiment, seen = tiny_experiment(parts={"erase": 0.5}), list[Batch]()
    state = experiment.fresh_state()
    for stage in experiment.stages(experiment.stream.task(0)):
        state = begun(state, stage) if stage.epochs else state
        drive(experiment, state, 0, stage)
    stage = watched(experiment, 1, seen)
    state = begun(state, stage)
    batch = batch_of(stage, state, 1)
    pile = replace(batch["new"], fields={})
    stage.losses(state, replace(batch, streams={**batch.streams, "pile": pile}))
    for name in ("new", "old"):
        found, given = seen[0][name].images, batch[name].images
        blank = (found == 0).all(dim=1, keepdim=True)
        assert torch.equal(found, torch.where(blank, 0.0, given))
        shares = blank.float().mean(dim=(1, 2, 3))
        assert 0 < float(shares.min()) <= float(shares.max()) <= 0.25
        assert len(set(map(str, blank.tolist()))) > 1  # each image has its own
    assert seen[0]["pile"] is pile


@pytest.mark.parametrize(("views", "count"), [("four", 32), ("one", 8)])
def test_turned_images_have_them_too(views: str, count: int) -> None:
    experiment = tiny_experiment(parts={"erase": 0.5, "rotations": "base", "rotation_views": views})
    seen = list[Batch]()
    stage = watched(experiment, 0, seen)
    state = begun(experiment.fresh_state(), stage)
    stage.losses(state, batch_of(stage, state, 0))
    images = seen[0]["new"].images
    assert len(images) == count
    assert all(bool((image == 0).all(dim=0).any()) for image in images)


def test_a_base_task_is_shared_only_with_the_same_squares(tmp_path: Path) -> None:
    tiny_experiment(run={"tasks": 1}, parts={"erase": 0.5}).start(tmp_path / "blank", Watch())
    taken = {"tasks": 1, "base_from": str(tmp_path / "blank")}
    for share in (0.0, 0.25):
        with pytest.raises(UserError, match="erase"):
            tiny_experiment(run=taken, parts={"erase": share}).start(tmp_path / "other", Watch())
    tiny_experiment(run=taken, parts={"erase": 0.5, "blend": "0.5"}).start(tmp_path / "same", Watch())
