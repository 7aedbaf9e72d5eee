"""A lesson never dies of its pile: generators that diverge are trained again more gently, then left out."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from own_images import TINY_LESSON, taken, tiny_learner, without_clock, write_classes, write_pile
from torch import nn

from daydream import Learner
from daydream.components.generator_stage import BANK
from daydream.engine import Display, Diverged, Interrupted
from daydream.learner import gently, lesson_checkpoint
from daydream.learner.gently import GENTLER, trained
from daydream.learner.lesson_checkpoint import Standing
from daydream.protocol.memory import Budget, Memory
from daydream.stages.stage import SGD, Stage, State

pytestmark = pytest.mark.slow

LOUD = {"generator_form": "paper", "decoupling": 1e20, "generator_updates": 4}
"""Weights under which no learning rate of ours is gentle enough."""
TOO_FAST = {"generator_lr": 1e12, "generator_updates": 4}
"""A learning rate at which weights overflow within a few steps, by their decay alone."""


class Heard(Display):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_second_try_is_gentler_and_there_is_no_third(failures: int) -> None:
    state = State(Memory.empty(Budget("total", 4)), torch.device("cpu"), {"net": nn.BatchNorm1d(2)})
    stage = Stage(name="imagine", optimizer=SGD(lr=0.5), train_mode=frozenset({BANK}))
    standing, rates, heard = Standing(state), list[float](), Heard()

    def run(stage: Stage) -> None:
        assert BANK not in state.nets, "a second try begins without what diverged"
        state.nets[BANK] = nn.BatchNorm1d(2)
        rates.append(stage.optimizer.lr)
        if len(rates) <= failures:
            raise Diverged("it diverged")

    assert trained(run, stage, standing, heard, needed=False) == (failures < 2)
    assert standing.gently == (failures > 0)
    assert rates == [0.5, 0.5 * GENTLER][: failures + 1]
    assert len(heard.lines) == failures
    assert (BANK in state.nets) == (failures < 2)
    assert failures == 0 or not state.nets["net"].training


def test_generators_that_the_lesson_needs_are_not_left_out_in_silence() -> None:
    state = State(Memory.empty(Budget("total", 4)), torch.device("cpu"))

    def run(stage: Stage) -> None:
        raise Diverged("it diverged")

    stage = Stage(name="imagine old classes", train_mode=frozenset({BANK}))
    with pytest.raises(Diverged):
        trained(run, stage, Standing(state), Heard(), needed=True)


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


class Ended(Heard):
    """Ends a lesson some steps after a word was said: politely, or as a machine does that falls over."""

    def __init__(self, word: str, steps: int, crashes: bool = False) -> None:
        super().__init__()
        self.word, self.steps, self.crashes = word, steps, crashes

    def stop_asked(self) -> bool:
        self.steps -= self.word in "".join(self.lines)
        if self.steps < 0 and self.crashes:
            raise RuntimeError("the machine fell over")
        return self.steps < 0


class Bench:
    """A lesson whose generators diverge, to be taken straight or with stops."""

    def __init__(self, folder: Path, number: int, **made: Any) -> None:
        self.folder, self.number, self.made, self.model = folder, number, made, folder / "m.daydream"
        self.pile = write_pile(folder / "pile", 30)
        self.classes = [write_classes(folder / name, range(2 * k, 2 * k + 2), 6) for k, name in enumerate("ab")]
        if number:
            learner = tiny_learner(**made)
            learner.learn(self.classes[0], self.pile, **TINY_LESSON)
            learner.save(self.model)

    def take(self, display: Display, to: str, beside: bool = True) -> None:
        """Take the lesson from what was known before it, or on from what is kept of it."""
        learner = Learner.load(self.model, device="cpu") if self.number else tiny_learner(**self.made)
        settings = {**TINY_LESSON, "epochs": 2, "generator_epochs": 2}
        taken(learner, self.classes[self.number], self.model if beside else None, display, settings, self.pile)
        learner.save(self.folder / to)

    def stands(self) -> tuple[int, int, bool, bool]:
        """Return where it stands: stage, epoch, whether in a second try, whether without the pile."""
        kept = json.loads((self.folder / ".m.daydream.lesson" / "latest.json").read_text())
        epoch = kept["partial"]["epoch"] if kept["partial"] else 0
        return kept["stage"], epoch, kept["gently"], kept["without_pile"]

    def same(self) -> bool:
        return without_clock(self.folder / "straight") == without_clock(self.folder / "stopped")


SAVED, LEFT_OUT, ALONE = "saved by the second try", "left out", "taken without the pile"


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    if request.param == SAVED:
        monkeypatch.setattr(gently, "GENTLER", 1e-14)
    made = Bench(tmp_path, int(request.param == ALONE), **(TOO_FAST if request.param == SAVED else LOUD))
    heard = Heard()
    made.take(heard, "straight", beside=False)
    said = {SAVED: "again at a learning rate", LEFT_OUT: "diverged again", ALONE: "taken without them"}
    assert said[request.param] in heard.lines[-1]
    return made


@pytest.mark.parametrize(
    ("bench", "tries"),
    [
        (SAVED, [(False, False), (True, False)]),
        (LEFT_OUT, [(False, False), (True, False)]),
        (ALONE, [(True, False), (False, True)]),
    ],
    indirect=["bench"],
)
def test_a_lesson_stopped_over_and_over_while_it_diverges_is_one_that_nobody_stopped(
    bench: Bench, tries: list[tuple[bool, bool]]
) -> None:
    """Every second step, those between a loss that is no number any more and the end of its epoch included."""
    stood = []
    while not (bench.folder / "stopped").exists():
        with contextlib.suppress(Interrupted):
            bench.take(Ended("", 2), "stopped")
            continue
        stood.append(bench.stands()[2:])
        assert len(stood) < 20
    assert bench.same()
    assert list(dict.fromkeys(stood)) == tries


@pytest.mark.parametrize(
    ("bench", "word", "stands"),
    [
        (SAVED, "again at a learning rate", (2, 1, True, False)),
        (ALONE, "taken without them", (0, 1, False, True)),
    ],
    indirect=["bench"],
)
def test_a_lesson_killed_after_it_diverged_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch, bench: Bench, word: str, stands: tuple[int, int, bool, bool]
) -> None:
    monkeypatch.setattr(lesson_checkpoint, "SECONDS", 0.0)
    with pytest.raises(RuntimeError, match="fell over"):
        bench.take(Ended(word, 5, crashes=True), "stopped")
    assert bench.stands() == stands
    heard = Heard()
    bench.take(heard, "stopped")
    assert heard.lines == [], "it went on behind what diverged"
    assert bench.same()


@pytest.mark.parametrize("bench", [LEFT_OUT], indirect=True)
def test_a_lesson_killed_without_its_generators_does_not_try_them_again(
    monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    monkeypatch.setattr(lesson_checkpoint, "SECONDS", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr("daydream.learner.verdict.judge", None)
        with pytest.raises(TypeError):
            bench.take(Heard(), "stopped")
    assert bench.stands() == (3, 0, False, False)
    heard = Heard()
    bench.take(heard, "stopped")
    assert heard.lines == []
    assert bench.same()
