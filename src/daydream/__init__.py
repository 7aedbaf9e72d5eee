"""Class-incremental learning that imagines its past."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daydream.learner.learner import Learner

__all__ = ["Learner", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import `Learner`, and torch with it, when it is asked for."""
    if name == "Learner":
        from daydream.learner.learner import Learner

        return Learner
    raise AttributeError(f"module 'daydream' has no attribute '{name}'")
