"""Generators that diverge are trained again more gently, then left out; what the lesson taught before is kept."""

from collections.abc import Callable
from dataclasses import replace

from daydream.components.generator_stage import BANK
from daydream.engine import Display, Diverged
from daydream.learner.lesson_checkpoint import Standing
from daydream.stages.stage import Stage

GENTLER = 0.1
"""Share of the learning rate in the second try."""


def trained(run: Callable[[Stage], None], stage: Stage, standing: Standing, display: Display, needed: bool) -> bool:
    """Run the stage that the lesson stands in; say whether what it trains is in the state.

    One that trains generators may have a second try. Where the stages to come need them, the divergence of that is
    theirs to hear of.
    """
    if BANK not in stage.train_mode:
        run(stage)
        return True
    gentle = replace(stage, optimizer=replace(stage.optimizer, lr=GENTLER * stage.optimizer.lr))
    if not standing.gently:
        try:
            run(stage)
            return True
        except Diverged:
            left_out(standing)
            standing.gently = True
            display.say(f"note: stage '{stage.name}' diverged: again at a learning rate of {gentle.optimizer.lr:g}")
    try:
        run(gentle)
        return True
    except Diverged:
        left_out(standing)
        if needed:
            raise
        display.say(
            f"note: stage '{stage.name}' diverged again: the lesson is kept, its new classes have no generators yet"
        )
        return False


def left_out(standing: Standing) -> None:
    """Take away generators that diverged, and stand before their stage, with the state as every stage leaves it."""
    standing.partial = None
    standing.state.nets.pop(BANK, None)
    for net in standing.state.nets.values():
        net.eval()
