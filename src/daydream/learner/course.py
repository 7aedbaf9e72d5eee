"""How a lesson goes: its stages in turn, on from where it was stopped, and without the pile if they diverge with it."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from daydream.components.generator_stage import BANK
from daydream.engine import Display, Diverged, Engine, EpochReport, Partial, Place
from daydream.learner.gently import trained
from daydream.learner.lesson import Lesson
from daydream.learner.lesson_checkpoint import Keeper, Standing
from daydream.stages.stage import Stage, State


def train(lesson: Lesson, display: Display, model: Path | None = None) -> tuple[State, Mapping[str, float], float]:
    """Run a lesson's stages on a copy of what was known; return the state, what stages measured, and the seconds.

    Beside the file of a `model` it is kept how far the lesson has come, and taken up where something is kept. A lesson
    never dies of its pile: one whose stages diverge with it is taken again without.
    """
    began, hardware = time.monotonic(), lesson.given.hardware
    hardware.set_up()
    engine = Engine(hardware, lesson.method.setup.seed)
    keeper = None if model is None else Keeper(lesson, model)
    with contextlib.nullcontext() if keeper is None else keeper.telling():
        found = None if keeper is None else keeper.found()
        course = Course(lesson, engine, display, keeper, found or Standing(lesson.begun()))
        without = ", without the unlabelled images" if course.standing.without_pile else ""
        headline = f"going on with the lesson where it was stopped{without}" if found else ""
        display.begins(headline, [(Place(), stage) for stage in lesson.stages])
        course.run()
    return course.standing.state, course.standing.measured, course.standing.seconds + time.monotonic() - began


@dataclass
class Course:
    """A lesson under way, and the watcher that the engine asks for: shown, and kept where there is a place for it."""

    lesson: Lesson
    engine: Engine
    display: Display
    keeper: Keeper | None
    standing: Standing

    def run(self) -> None:
        """Run what is left of the lesson; where its stages diverge with the pile, all of it without."""
        try:
            self._run_stages()
            return
        except Diverged:
            if self.lesson.from_pile is None:
                raise
        self.display.say("note: the training diverged with the unlabelled images: the lesson is taken without them")
        self.lesson.leave_pile_out()
        self.standing = Standing(self.lesson.begun(), without_pile=True, seconds=self.standing.seconds)
        self._run_stages()

    def _run_stages(self) -> None:
        """Run each stage that is left."""
        standing, stages = self.standing, self.lesson.stages
        for number in range(standing.stage, len(stages)):
            stage = stages[number]
            needed = any(later.exemplars or BANK in later.train_mode for later in stages[number + 1 :])
            if trained(self._run, stage, standing, self.display, needed) and stage.report is not None:
                standing.measured = {**standing.measured, **stage.report(standing.state)}
            standing.stage, standing.partial, standing.gently = number + 1, None, False
            if self.wants_checkpoint(0):
                self.checkpoint(None)

    def _run(self, stage: Stage) -> None:
        """Run the stage that the lesson stands in, from where it stands."""
        self.stage, standing = stage, self.standing
        self.display.stage_begins(Place(), stage, standing.partial.epoch if standing.partial else 0)
        self.engine.run(stage, standing.state, (self.lesson.index, standing.stage), self, standing.partial)

    def epoch(self, report: EpochReport) -> None:
        self.display.epoch_ends(Place(), self.stage, report)

    def stop_asked(self) -> bool:
        return self.display.stop_asked()

    def wants_checkpoint(self, epoch: int) -> bool:
        return self.keeper is not None and self.keeper.due

    def checkpoint(self, partial: Partial | None) -> None:
        if self.keeper is not None:
            self.keeper.keep(self.standing, self.stage, partial)
