"""Class-incremental learning that imagines its past."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daydream.api import Run as Run
    from daydream.api import resume as resume
    from daydream.api import run as run
    from daydream.learner import Learner as Learner

__all__ = ["Learner", "Run", "__version__", "resume", "run"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what is asked for, and torch with it."""
    if name == "Learner":
        from daydream.learner.learner import Learner

        return Learner
    if name in ("run", "resume", "Run"):
        from daydream import api

        return getattr(api, name)
    raise AttributeError(f"module 'daydream' has no attribute '{name}'")
