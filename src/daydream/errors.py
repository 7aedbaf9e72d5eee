"""The one exception for a user's mistakes, caught once, in the command line."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake of the user's: one line saying what was given, what is allowed and what to do."""


def unknown(kind: str, given: str, known: Iterable[str]) -> UserError:
    """Name the nearest known name and all the others."""
    names = sorted(known)
    near = difflib.get_close_matches(given.lower(), names, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return UserError(f"unknown {kind} '{given}'{hint} (known: {', '.join(names)})")
