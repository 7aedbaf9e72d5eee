"""What to say of an option that a command has for other methods or data sets, and not for those it was given."""

from collections.abc import Sequence
from dataclasses import fields

from daydream.cli.flags import given


def explained(words: Sequence[str], option: str) -> str | None:
    """Return whose setting an option is, and why it does not fit; None where it is nobody's."""
    if words[:1] not in (["run"], ["learn"]):
        return None
    name = option.removeprefix("--").removeprefix("no-").replace("-", "_")
    off = _already_off(words, option, name)
    return off or _of_component(words, option, name) or _of_method(words, option, name) or _of_data(words, option, name)


def _already_off(words: Sequence[str], option: str, name: str) -> str | None:
    """Explain a `--no-X` that does not exist, as X is off where it is not asked for."""
    from daydream.components.settings import component_settings
    from daydream.methods import load_method

    kind = load_method(given(words, "--method", "replay"))
    known = {
        field.name for settings in (kind.Settings, *component_settings(kind).values()) for field in fields(settings)
    }
    off = option.startswith("--no-") and name in known
    return f"{option}: --{option.removeprefix('--no-')} is off by default here, so leave it out" if off else None


def _of_component(words: Sequence[str], option: str, name: str) -> str | None:
    from daydream.components.settings import component_settings, why_not
    from daydream.methods import load_method

    method = given(words, "--method", "replay")
    kind = load_method(method)
    carried = component_settings(load_method("replay"))
    key = next((key for key, settings in carried.items() if name in {field.name for field in fields(settings)}), None)
    if key is None:
        return None
    return f"{option} does not fit method '{method}': {why_not(kind, key, name)}"


def _of_method(words: Sequence[str], option: str, name: str) -> str | None:
    from daydream.methods import METHODS, load_method

    owners = [method for method in METHODS if name in {field.name for field in fields(load_method(method).Settings)}]
    given_one = given(words, "--method", "replay")
    return f"{option} is a setting of {', '.join(owners)}, not of method '{given_one}'" if owners else None


def _of_data(words: Sequence[str], option: str, name: str) -> str | None:
    from daydream.data import SOURCES, source
    from daydream.experiment.config import RunSettings

    if words[0] != "run":
        return None
    owners = [data for data in SOURCES if name in {field.name for field in fields(source(data).Settings)}]
    one = given(words, "--data", RunSettings().data)
    return f"{option} is a setting of data set {', '.join(owners)}, not of {one}" if owners else None
