"""Class-incremental learning that imagines its past."""

__version__ = "0.1.0"
