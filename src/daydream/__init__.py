"""Class-incremental learning that imagines its past."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daydream.api import Run as Run
    from daydream.api import resume as resume
    from daydream.api import run as run
    from daydream.learner import ExactLearner as ExactLearner
    from daydream.learner import Learner as Learner
    from daydream.learner import load as load

__all__ = ["ExactLearner", "Learner", "Run", "__version__", "load", "resume", "run"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what is asked for, and torch with it."""
    if name in ("ExactLearner", "Learner", "load"):
        from daydream import learner

        return getattr(learner, name)
    if name in ("run", "resume", "Run"):
        from daydream import api

        return getattr(api, name)
    raise AttributeError(f"module 'daydream' has no attribute '{name}'")
