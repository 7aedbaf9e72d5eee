"""What a method carries beside itself: the settings of its components."""

from typing import TYPE_CHECKING, Any

from daydream.settings import with_defaults

if TYPE_CHECKING:
    from daydream.methods.method import Method


def component_settings(kind: "type[Method[Any]]") -> dict[str, type]:
    """Return the settings of what a method can carry, by their key in config.json, with the defaults it gives them."""
    from daydream.components.imagination import ImaginationSettings
    from daydream.components.parts import PartsSettings
    from daydream.data.unlabeled import PileSettings

    found: dict[str, type] = {"parts": PartsSettings} if kind.carries else {}
    if kind.replays:
        found["imagination"] = ImaginationSettings
    if kind.replays or kind.needs_pile:
        found["pile"] = PileSettings
    return {key: with_defaults(settings, kind.defaults) for key, settings in found.items()}


BEFORE = {"rotation_settle": 0.0, "erase": 0.0, "pile_distill": 0.0}
"""What settings of parts that came later were before they could be said."""
