"""Generators that diverge are trained again more gently, then left out; what the lesson taught before is kept."""

from collections.abc import Callable
from dataclasses import replace

from daydream.components.generator_stage import BANK
from daydream.engine import Display, Diverged
from daydream.stages.stage import Stage, State

GENTLER = 0.1
"""Share of the learning rate in the second try."""


def generators_trained(
    run: Callable[[Stage], None], stage: Stage, state: State, display: Display, needed: bool
) -> bool:
    """Run a stage that trains generators; say whether they are in the state.

    Where the stages to come need them, a second divergence is theirs to hear of.
    """
    gentle = replace(stage, optimizer=replace(stage.optimizer, lr=GENTLER * stage.optimizer.lr))
    try:
        run(stage)
    except Diverged:
        left_out(state)
        display.say(f"note: stage '{stage.name}' diverged: again at a learning rate of {gentle.optimizer.lr:g}")
        try:
            run(gentle)
        except Diverged:
            left_out(state)
            if needed:
                raise
            display.say(
                f"note: stage '{stage.name}' diverged again: the lesson is kept, its new classes have no generators yet"
            )
            return False
    return True


def left_out(state: State) -> None:
    """Take away generators that diverged, and leave the state as every stage does."""
    state.nets.pop(BANK, None)
    for net in state.nets.values():
        net.eval()
