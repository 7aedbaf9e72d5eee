"""What a run is called: its method, its data set, its line in a list, and the command that repeats it.

Only settings as they are stored are looked at: to read a run imports no file that it names.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from daydream.experiment.config import RunSettings
from daydream.settings import as_arguments, as_words
from daydream.storage.run_folder import RunFolder


def method_name(name: str) -> str:
    return Path(name).name if ".py:" in name else name


def data_name(config: Mapping[str, Any]) -> str:
    """Name a run's data set, and which of its classes are labelled where not all are."""
    name, labelled = config["run"]["data"], config["data"].get("labelled")
    meant = " (a stand-in for ImageNet-Subset)" if name == "tiny-imagenet" else ""
    return f"{name} {labelled}{meant}" if labelled else str(name)


def variants(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name the method of each run, with flags for the settings in which runs of that method differ here.

    Only the configs are looked at: nothing is imported for it, a method in a user's file least of all.
    """
    sections = ("method", "imagination", "pile", "parts")
    found = [
        (config["run"]["method"], {(s, key): value for s in sections for key, value in (config.get(s) or {}).items()})
        for config in configs
    ]
    values: dict[tuple[str, tuple[str, str]], set[str]] = {}
    for method, settings in found:
        for key, value in settings.items():
            values.setdefault((method, key), set()).add(repr(value))

    def name(method: str, settings: Mapping[tuple[str, str], Any]) -> str:
        told = [(key, value) for key, value in settings.items() if len(values[method, key]) > 1 and value is not None]
        return " ".join([method_name(method), *(word for (_, key), value in told for word in as_words(key, value))])

    return [name(method, settings) for method, settings in found]


def command_of(config: dict[str, Any]) -> str:
    """Return the command that runs a config again. To read a run imports no file it names."""
    from daydream.components.carried import component_settings
    from daydream.data import source
    from daydream.methods import load_method

    run = config["run"]
    words = as_arguments(run, RunSettings)
    words += as_arguments(config["data"], source(run["data"]).Settings)
    if ".py:" in run["method"]:
        words += _in_full(config)
    else:
        words += as_arguments(config["method"], load_method(run["method"]).Settings)
        for key, settings in component_settings(load_method(run["method"])).items():
            words += as_arguments(config.get(key) or {}, settings)
    return shlex.join(["daydream", "run", *words])


def _in_full(config: Mapping[str, Any]) -> list[str]:
    """Write the settings of a method in a user's file, and of what it carries, whatever its defaults may be.

    What is false is left out: few settings are true by default, and those that are not have no flag for it.
    """
    found = [item for key in ("method", "imagination", "pile", "parts") for item in (config.get(key) or {}).items()]
    given = [(name, value) for name, value in found if value is not None and value is not False and value != ""]
    return [word for name, value in given for word in as_words(name, value)]


def summary_of(run: RunFolder) -> dict[str, Any]:
    """Return a run's line in a list, as plain values."""
    config, result = run.config, run.result
    settings = config["run"]
    found = result or {}
    return {
        "run": str(run.path),
        "method": method_name(settings["method"]),
        "data": settings["data"],
        "base": settings["base"],
        "steps": settings["steps"],
        "memory": settings["memory"],
        "budget": settings["budget"],
        "order": settings["order"],
        "backbone": settings["backbone"],
        "seed": settings["seed"],
        "evaluated_on": "validation" if settings["validation"] else "test",
        "status": "finished" if result else f"{run.tasks_done} tasks done",
        **{
            key: found.get(key)
            for key in ("average_nme", "average_cnn", "last_nme", "last_cnn", "forgetting", "seconds")
        },
    }
