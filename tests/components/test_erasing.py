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
from daydream.experiment.experiment import Experiment
from daydream.nets.network import Network
from daydream.stages.stage import Batch, Samples, Stage, State


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


def watched(experiment: Experiment, task: int, seen: list[Batch]) -> list[Stage]:
    """Return a task's training stages as the experiment's parts make them, with losses that only look at batches."""
    assert experiment.carried.parts is not None
    plain = experiment.method.stages(experiment.stream.task(task))[0]

    def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
        seen.append(batch)
        return {}

    return experiment.carried.parts.stages(experiment.stream.task(task), [replace(plain, losses=losses)])


def after_base(experiment: Experiment) -> State:
    state = experiment.fresh_state()
    for stage in experiment.stages(experiment.stream.task(0)):
        state = begun(state, stage) if stage.epochs else state
        drive(experiment, state, 0, stage)
    return state


def holes(images: Tensor) -> Tensor:
    """Return [B, h, w], true where an image is blank."""
    return (images == 0).all(dim=1)


def test_an_increment_sees_them_in_new_images_and_exemplars_each_at_its_own_place() -> None:
    experiment, seen = tiny_experiment(parts={"erase": 0.5}), list[Batch]()
    [stage] = watched(experiment, 1, seen)
    state = begun(after_base(experiment), stage)
    batch = batch_of(stage, state, 1)
    stage.losses(state, batch)
    for name in ("new", "old"):
        found, blank = seen[0][name].images, holes(seen[0][name].images)
        assert torch.equal(found, torch.where(blank[:, None], 0.0, batch[name].images))
        shares = blank.float().mean(dim=(1, 2))
        assert 0 < float(shares.min()) <= float(shares.max()) <= 0.25
        assert len(set(map(str, blank.tolist()))) > 1


def test_counterparts_are_imagined_from_whole_images(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = tiny_experiment("imagine", parts={"erase": 0.5})
    imagination, seen = experiment.carried.imagination, list[tuple[Samples, Samples]]()
    assert imagination is not None
    company = imagination.company

    def noted(state: State, net: Network, exemplars: Samples, pile: Samples) -> object:
        seen.append((exemplars, pile))
        return company(state, net, exemplars, pile)

    monkeypatch.setattr(imagination, "company", noted)
    state = after_base(experiment)
    stage = experiment.stages(experiment.stream.task(1))[0]
    state = begun(state, stage)
    batch = batch_of(stage, state, 1)
    stage.losses(state, batch)
    exemplars, pile = seen[0]
    assert torch.equal(exemplars.images, batch["old"].images)
    assert torch.equal(pile.images, batch["pile"].images)
    assert not holes(exemplars.images).any()


def test_turned_images_have_them_too_in_the_same_place_in_every_turn() -> None:
    experiment, seen = tiny_experiment(parts={"erase": 0.5, "rotations": "base"}), list[Batch]()
    stage = watched(experiment, 0, seen)[0]
    state = begun(experiment.fresh_state(), stage)
    stage.losses(state, batch_of(stage, state, 0))
    blank = holes(seen[0]["new"].images)
    assert len(blank) == 32
    assert blank.any(dim=(1, 2)).all()
    assert all(torch.equal(turn, blank[:8]) for turn in blank.split(8))
    assert not torch.equal(blank, blank.rot90(1, (1, 2)))


def test_upright_epochs_at_the_end_have_them() -> None:
    experiment, seen = tiny_experiment(base_epochs=5, parts={"erase": 0.5, "rotations": "base"}), list[Batch]()
    turned, upright = watched(experiment, 0, seen)
    state = begun(experiment.fresh_state(), turned)
    upright.losses(state, batch_of(upright, state, 0))
    assert holes(seen[0]["new"].images).any(dim=(1, 2)).all()


def test_a_base_task_is_shared_only_with_the_same_squares(tmp_path: Path) -> None:
    tiny_experiment(run={"tasks": 1}, parts={"erase": 0.5}).start(tmp_path / "blank", Watch())
    taken = {"tasks": 1, "base_from": str(tmp_path / "blank")}
    for share in (0.0, 0.25):
        with pytest.raises(UserError, match="erase"):
            tiny_experiment(run=taken, parts={"erase": share}).start(tmp_path / "other", Watch())
    tiny_experiment(run=taken, parts={"erase": 0.5, "blend": 0.5}).start(tmp_path / "same", Watch())
