"""A lesson never dies of its pile: generators that diverge are trained again more gently, then left out."""

from pathlib import Path

import pytest
import torch
from own_images import TINY_LESSON, tiny_learner, write_classes, write_pile
from torch import nn

from daydream import Learner
from daydream.components.generator_stage import BANK
from daydream.engine import Display, Diverged
from daydream.learner.gently import GENTLER, generators_trained
from daydream.protocol.memory import Budget, Memory
from daydream.stages.stage import SGD, Stage, State

pytestmark = pytest.mark.slow

LOUD = {"generator_form": "paper", "decoupling": 1e20}
"""Weights under which no learning rate of ours is gentle enough."""


class Heard(Display):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_second_try_is_gentler_and_there_is_no_third(failures: int) -> None:
    state = State(Memory.empty(Budget("total", 4)), torch.device("cpu"), {"net": nn.BatchNorm1d(2)})
    stage, rates, heard = Stage(name="imagine", optimizer=SGD(lr=0.5)), list[float](), Heard()

    def run(stage: Stage) -> None:
        assert BANK not in state.nets, "a second try begins without what diverged"
        state.nets[BANK] = nn.BatchNorm1d(2)
        rates.append(stage.optimizer.lr)
        if len(rates) <= failures:
            raise Diverged("it diverged")

    assert generators_trained(run, stage, state, heard, needed=False) == (failures < 2)
    assert rates == [0.5, 0.5 * GENTLER][: failures + 1]
    assert len(heard.lines) == failures
    assert (BANK in state.nets) == (failures < 2)
    assert failures == 0 or not state.nets["net"].training


def test_generators_that_the_lesson_needs_are_not_left_out_in_silence() -> None:
    state = State(Memory.empty(Budget("total", 4)), torch.device("cpu"))

    def run(stage: Stage) -> None:
        raise Diverged("it diverged")

    with pytest.raises(Diverged):
        generators_trained(run, Stage(name="imagine old classes"), state, Heard(), needed=True)


def test_what_was_learnt_is_kept_and_a_later_lesson_goes_without_the_pile(tmp_path: Path) -> None:
    pile = write_pile(tmp_path / "pile", 30)
    a, b = write_classes(tmp_path / "a", range(2), 6), write_classes(tmp_path / "b", range(2, 4), 6)
    loud, calm = tiny_learner(**LOUD), tiny_learner()
    heard = Heard()
    record = loud.learn(a, pile, display=heard, **TINY_LESSON)
    assert record.counterparts_right is None
    assert [line for line in heard.lines if "again at a learning rate of" in line]
    assert "no generators yet" in heard.lines[-1]
    calm.learn(a, **TINY_LESSON)
    kept, alone = loud.taught.state.nets["net"].state_dict(), calm.taught.state.nets["net"].state_dict()
    assert all(torch.equal(kept[name], alone[name]) for name in alone), "the network is that of a lesson without"
    loud.save(tmp_path / "model.daydream")
    again = Learner.load(tmp_path / "model.daydream", device="cpu")
    heard = Heard()
    again.learn(b, display=heard, **TINY_LESSON)
    assert "without them" in heard.lines[-1]
    assert [row.generator for row in again.classes] == [False] * 4
    assert len(again.taught.pile) == 30, "a later lesson may try it again"
    again.save(tmp_path / "model.daydream")


def test_a_lesson_that_diverges_by_itself_fails(tmp_path: Path) -> None:
    a, pile = write_classes(tmp_path / "a", range(2), 6), write_pile(tmp_path / "pile", 30)
    learner = tiny_learner()
    with pytest.raises(Diverged, match="stage 'train'"):
        learner.learn(a, pile, **{**TINY_LESSON, "epochs": 3, "lr": 1e30})
    assert learner.model is None
