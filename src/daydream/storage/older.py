"""Settings as earlier versions stored them, in today's words: the one table of what moved and what went.

Format 1 is read in full: a run, a result or a model of then is listed, shown, reported and compared like one of today.
What had no successor is kept under `gone`, where it was not what today's code always does; such a run cannot be run
again, and says so.
"""

from collections.abc import Mapping
from typing import Any

from daydream.errors import UserError

FORMAT = 2
"""Of a run's config.json."""
MOVED = {
    ("parts", "pile_distill"): ("pile", "pile_distill"),
    ("imagination", "pile_distillation"): ("pile", "pile_distill"),
    ("imagination", "pile_labels"): ("pile", "pile_labels"),
    ("imagination", "mining"): ("pile", "mining"),
}
"""Where a setting went: one term of the pile had two names."""
ALWAYS: dict[tuple[str, str], tuple[Any, ...]] = {
    ("run", "capture"): (None, True, False),
    ("data", "data_seed"): (0,),
    ("method", "momentum"): (0.9,),
    ("method", "temperature"): (2.0,),
    ("method", "correction_lr"): (0.1,),
    ("method", "negatives"): (2,),
    ("method", "balanced_finetune"): (False, True),
    ("method", "finetune_lr"): (0.01, 0.05),
    ("method", "spatial"): (None,),
    ("method", "flat"): (1.0,),
    ("imagination", "mixup_alpha"): (1.0,),
    ("parts", "blend_statistics"): ("blend",),
    ("parts", "rotation_views"): ("four",),
    ("parts", "rotation_settle"): (0.2,),
    ("parts", "ema"): (0.0,),
}
"""Settings that went, and the values that say what the code now does without being asked."""
RULES = ("counts", "held-out")
"""Ways to choose the share of a blended network that went; a number is what is left."""
IMAGINING = ("imagine", "dream", "mixup")
"""Methods of format 1 that imagined without being asked."""


def upgraded(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored config in today's format; one of a later version is returned as it is."""
    if config.get("format") != 1:
        return dict(config)
    sections = ("run", "data", "method", "imagination", "pile", "parts")
    new = {key: dict(config[key]) if config.get(key) is not None else None for key in sections}
    gone, rule = dict[str, Any](), (new["parts"] or {}).get("blend")
    if rule in RULES:
        gone["parts.blend"] = rule
    _upgrade_parts(new["parts"])
    if new["pile"] is not None:
        new["pile"] |= _pile_of(new)
    for section, name in MOVED:
        (new[section] or {}).pop(name, None)
    method = new["method"] or {}
    if "balanced_finetune" in method and not method["balanced_finetune"]:
        method["finetune_epochs"] = 0
    for (section, name), values in ALWAYS.items():
        found = (new[section] or {}).pop(name, values[0])
        if found not in values:
            gone[f"{section}.{name}"] = found
    data = new["data"]
    if data is not None and "num_labelled" in data:
        count = data.pop("num_labelled")
        data["labelled"] = "" if count == 100 else f"0:{count}"
    return {**config, **new, "format": FORMAT, **({"gone": gone} if gone else {})}


def upgraded_parts(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of parts that a model file of format 1 holds."""
    whole = dict(parts)
    _upgrade_parts(whole)
    known = {name for section, name in (*MOVED, *ALWAYS) if section == "parts"}
    return {name: value for name, value in whole.items() if name not in known}


def refuse_gone(config: Mapping[str, Any]) -> None:
    """Raise the user's mistake if a config asks for what there is no more."""
    for name, value in (config.get("gone") or {}).items():
        raise UserError(f"its setting {name} was {value!r}, which this daydream no longer has (CHANGELOG.md)")


def _upgrade_parts(parts: dict[str, Any] | None) -> None:
    """Write parts as today's: off where the setting did not exist yet."""
    if parts is None:
        return
    parts.setdefault("erase", 0.0)
    parts.setdefault("rotation_settle", 0.0)
    if parts.get("rotations", "none") == "none":
        parts |= {"rotation_settle": 0.2, "rotation_views": "four"}
    blend = str(parts.get("blend", 1))
    if blend in RULES:
        parts["blend"] = 1.0  # the rule itself is told as gone
        return
    try:
        parts["blend"] = float(blend)
    except ValueError as error:
        raise UserError(f"its setting parts.blend is {blend!r}, which no version wrote") from error
    if parts["blend"] == 1:
        parts["blend_statistics"] = "blend"


def _pile_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a config of format 1 says of the pile in other sections."""
    imagination, parts = config["imagination"] or {}, config["parts"] or {}
    asked = imagination.get("imagine") or config["run"]["method"] in IMAGINING
    imagines = bool(asked and imagination.get("counterparts", 2))
    weight = imagination.get("pile_distillation", 0.0) if imagines else parts.get("pile_distill", 0.0)
    labels = imagination.get("pile_labels", 0.0) if imagines else 0.0
    return {
        "pile_distill": weight,
        "pile_labels": labels,
        "pile_soft": 0.0,
        "mining": imagination.get("mining", "entropy"),
    }
