"""The settings of what a method carries, and what follows from them. Imports no torch before it is asked."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from daydream.errors import UserError
from daydream.settings import as_arguments, flag, from_dict, with_defaults

if TYPE_CHECKING:
    from daydream.methods.method import Method

BESIDE_GENERATORS = 0.5
"""The weight of the pile's distillation where generators imagine (held-out images chose it: docs/notebook)."""
KEYS = ("parts", "imagination", "pile")
"""Sections of a config, one for each component's settings."""


def component_settings(kind: "type[Method[Any]]", base_epochs: int | None = None) -> dict[str, type]:
    """Return the settings of what a method can carry, by their key in config.json, with the defaults it gives them.

    Those may depend on the epochs of the base task; None is the method's own number.
    """
    from daydream.components.imagination_settings import ImaginationSettings
    from daydream.components.parts import PartsSettings
    from daydream.components.pile_settings import PileSettings
    from daydream.data.unlabeled import PileSource

    found: dict[str, type] = {"parts": PartsSettings} if kind.carries else {}
    if kind.replays:
        found["imagination"] = ImaginationSettings
    if kind.replays or kind.needs_pile:
        found["pile"] = PileSettings if kind.replays else PileSource
    usual = kind.usual(base_epochs)
    return {key: with_defaults(settings, usual) for key, settings in found.items()}


def why_not(kind: "type[Method[Any]]", section: str, name: str) -> str:
    """Say why a setting of what is carried does not fit a method."""
    whole = {"imagination": "imagine", "pile": "pile_teach"}.get(section, name)
    usual = "it carries no parts" if section == "parts" else "it replays no exemplars"
    return kind.refuses.get(name) or kind.refuses.get(whole) or usual


def _refuse_replayed(
    name: str, kind: "type[Method[Any]]", given: Mapping[str, Mapping[str, Any]], classes: Mapping[str, type]
) -> None:
    """Raise the user's mistake if a method that replays nothing is given what needs that."""
    from daydream.components.imagination_settings import ImaginationSettings
    from daydream.components.pile_settings import TeachingSettings

    for key, replayed in (("imagination", ImaginationSettings), ("pile", TeachingSettings)):
        foreign = {field.name for field in fields(replayed)}
        for one in given.get(key) or {}:
            if key not in classes or one in foreign:
                raise UserError(f"{flag(one)} does not fit method '{name}': {why_not(kind, key, one)}")


@dataclass(frozen=True, kw_only=True)
class CarriedSettings:
    """The settings of all that a method carries; None where it cannot carry such a thing."""

    name: str
    """The method's name, for complaints."""
    kind: "type[Method[Any]]"
    parts: Any = None
    imagination: Any = None
    pile: Any = None
    usual: "Mapping[str, type] | None" = None
    """The classes of these settings, where their defaults are not the method's own."""

    @classmethod
    def of(
        cls,
        name: str,
        kind: "type[Method[Any]]",
        given: Mapping[str, Mapping[str, Any]],
        sections: Mapping[str, type] | None = None,
    ) -> "CarriedSettings":
        """Build the settings from plain values by section; each component checks its own, and all fit the method.

        `sections` are the settings' classes, where their defaults are not the method's own.
        """
        classes = component_settings(kind) if sections is None else sections
        if not kind.replays:
            _refuse_replayed(name, kind, given, classes)
        if not kind.carries and given.get("parts"):
            raise UserError(
                f"method '{name}' carries no parts, so there is no {flag(next(iter(given['parts'])))} for it"
            )
        built: dict[str, Any] = {key: from_dict(classes[key], given.get(key) or {}) for key in KEYS if key in classes}
        carried = cls(name=name, kind=kind, usual=sections, **built)
        carried.check()
        return carried

    @property
    def imagines(self) -> str:
        """Return what counterparts come from: generators, pixels that are mixed, a control, or (empty) nowhere."""
        if not self.imagination or not self.imagination.counterparts:
            return ""
        made = self.kind.imagines or ("generators" if self.imagination.imagine else "")
        return str(self.imagination.counterparts_from) if made == "generators" else made

    @property
    def oracle(self) -> bool:
        """Say whether it sees what no learner has: training images of old classes."""
        return self.imagines == "real"

    @property
    def pile_distill(self) -> float:
        """Return the weight of distillation on the pile: as given, or what suits the method."""
        if self.pile is None or not self.kind.replays:
            return 0.0
        if self.pile.pile_distill is not None:
            return float(self.pile.pile_distill)
        return BESIDE_GENERATORS if self.imagines not in ("", "pixels") or self.pile.pile_teach else 0.0

    @property
    def teaches_on_pile(self) -> bool:
        """Say whether losses on unlabelled images are among a stage's."""
        replays = self.pile is not None and self.kind.replays
        return replays and bool(
            self.pile_distill or self.pile.pile_labels or self.pile.pile_soft or self.pile.pile_teach
        )

    @property
    def turns_pile(self) -> bool:
        """Say whether the base task trains on unlabelled images."""
        return self.pile is not None and self.kind.replays and bool(self.pile.pile_base)

    @property
    def needs_pile(self) -> bool:
        """Say whether unlabelled images are used."""
        return bool(self.imagines) or self.teaches_on_pile or self.turns_pile or self.kind.needs_pile

    def check(self) -> None:
        """Raise the user's mistake if a component does not fit the method."""
        for name, value in (self.parts.wanted if self.parts else {}).items():
            why = self.kind.refuses.get(f"{name} {value}") or self.kind.refuses.get(name)
            if name in self.kind.carries and not why:
                continue
            fitting = ", ".join(map(flag, sorted(self.kind.carries - {"pile_distill"})))
            where = f": {why}" if why else f", which takes of these parts {fitting}"
            raise UserError(f"{flag(name)} {value} does not fit method '{self.name}'{where}")
        if self.imagines == "pixels" and self.imagination.counterparts_from != "generators":
            source = self.imagination.counterparts_from
            raise UserError(f"--counterparts-from {source} does not fit method '{self.name}', which mixes pixels")
        if self.pile_distill and "pile_distill" not in self.kind.carries:
            raise UserError(f"--pile-distill {self.pile_distill:g} does not fit method '{self.name}'")

    def without_effect(self) -> list[str]:
        """Return, as flags, the settings that differ from their defaults and change nothing."""
        # What turns a component on or off is never idle, even where it is off.
        used: dict[str, set[str]] = {
            "imagination": {"imagine", "counterparts"},
            "pile": {"pile_distill", "pile_teach"},
            "parts": set(),
        }
        if self.parts:
            used["parts"] = set(self.parts.switches)
        if self.needs_pile:
            used["pile"] |= set(asdict(self.pile))
            used["pile"] -= {"pile_batch"} if self.imagines else set()
            used["imagination"] |= set(asdict(self.imagination)) if self.imagines else set()
        words = []
        usual = self.usual or component_settings(self.kind)
        for key, settings in usual.items():
            if key not in KEYS:
                continue
            idle = {name: value for name, value in asdict(getattr(self, key)).items() if name not in used[key]}
            words += as_arguments(idle, settings)
        return words
