"""The pile in the base task: what is turned how, its loss, what it leaves behind, and that the base task is another."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from stages_driven import after_task, batch_of, begun
from tiny_runs import StopIn, Watch, tiny_experiment, without_times

from daydream.components.pile_base import HEAD, draw_turns, turned_by
from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.experiment import base_task
from daydream.methods.method import network
from daydream.storage.run_folder import RunFolder

WEIGHT = 0.7


def test_each_image_is_turned_by_its_own_quarters() -> None:
    images, turns = torch.randn(6, 3, 8, 8), torch.tensor([0, 1, 2, 3, 1, 0])
    found = turned_by(images, turns)
    for image, turned, turn in zip(images, found, turns.tolist(), strict=True):
        assert torch.equal(turned, torch.rot90(image, turn, (1, 2)))
    assert torch.bincount(draw_turns(torch.Generator().manual_seed(1), 50, 80).flatten()).min() > 900


def test_the_term_is_the_cross_entropy_of_the_turns_and_the_others_stay() -> None:
    experiment = tiny_experiment(pile={"pile_base": WEIGHT})
    task = experiment.stream.task(0)
    plain, carried = experiment.method.stages(task)[0], experiment.stages(task)[0]
    state = begun(experiment.fresh_state(), carried)
    batch, net = batch_of(carried, state, 0), network(state).eval()  # in evaluation mode batches do not matter
    assert len(batch["pile"].labels) == len(batch["new"].labels) // 2
    with torch.no_grad():
        terms, without = carried.losses(state, batch), plain.losses(state, batch)
        z = net.features(turned_by(batch["pile"].images, batch["pile"].fields["turn"]))
        expected = WEIGHT * F.cross_entropy(z @ state.tensors[HEAD].T, batch["pile"].fields["turn"])
    torch.testing.assert_close(terms["pile_turns"], expected)
    torch.testing.assert_close(terms["ce"], without["ce"])
    assert state.tensors[HEAD] is carried.trains(state)[-1].tensors[0]


@pytest.mark.parametrize("rotations", ["none", "base"])
def test_only_the_base_task_has_it_and_its_head_goes(rotations: str) -> None:
    experiment = tiny_experiment("dream", parts={"rotations": rotations}, pile={"pile_base": WEIGHT})
    state = after_task(experiment, experiment.fresh_state(), 0)
    assert HEAD not in state.tensors
    for row in experiment.plan():
        names = [stage.name for stage in row.stages if "pile" in (stage.shared_as or {})]
        assert names == (["train"] if row.task == 0 else [])


def test_alone_it_mines_nothing_and_a_run_resumes_inside_it_to_the_same_numbers(tmp_path: Path) -> None:
    experiment = tiny_experiment(run={"tasks": 2}, pile={"pile_base": WEIGHT})
    assert [stage.name for stage in experiment.plan()[0].stages] == ["train", "select"]
    whole = experiment.start(tmp_path / "whole", Watch())
    again = tiny_experiment(run={"tasks": 2}, pile={"pile_base": WEIGHT})
    with pytest.raises(Interrupted):
        again.start(tmp_path / "stopped", StopIn(0, "train"))
    result = tiny_experiment(run={"tasks": 2}, pile={"pile_base": WEIGHT}).resume(
        RunFolder.open(tmp_path / "stopped"), Watch()
    )
    assert without_times(result) == without_times(whole)
    with pytest.raises(UserError, match="pile_base"):
        base_task.read(tiny_experiment(), tmp_path / "whole")
