"""Run a stage from its beginning to its end, whoever trains it."""

from collections.abc import Iterator
from dataclasses import dataclass

from daydream.engine.distributed import ALONE, Team
from daydream.engine.feed import Feed
from daydream.engine.hardware import Hardware
from daydream.engine.lockstep import Lockstep
from daydream.engine.loop import Loop, Partial, Training, Watcher
from daydream.stages.stage import Stage, State


@dataclass(frozen=True)
class Engine:
    """Runs stages on a device; knows no method."""

    hardware: Hardware
    seed: int
    team: Team = ALONE

    def run(
        self, stage: Stage, state: State, place: tuple[str | int, ...], watcher: Watcher, partial: Partial | None = None
    ) -> None:
        """Run a stage from its beginning, or on from where `partial` left it. `place` names its random numbers."""
        for training in self.trainings(stage, state, place, watcher, partial):
            Lockstep([training]).train()

    def trainings(
        self, stage: Stage, state: State, place: tuple[str | int, ...], watcher: Watcher, partial: Partial | None = None
    ) -> Iterator[Training]:
        """Run a stage but for its training, if it has any, which is handed out: done before one asks for more."""
        if partial is None and stage.begin is not None:
            stage.begin(state)
        self.team.agree(state)
        if stage.epochs:
            loop = Loop(stage, state, self.hardware, Feed(stage, state, place, self.seed, self.team), self.team)
            training = Training(loop, watcher, partial or Partial(0, 0), place)
            yield training
            if training.failure is not None:
                raise training.failure
        if stage.finish is not None:
            stage.finish(state)
        self.team.agree(state)
