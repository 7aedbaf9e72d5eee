"""What a run is called: its method, its data set, its line in a list, and the command that repeats it.

Only settings as they are stored are looked at: to read a run imports no file that it names.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daydream.experiment.config import RunSettings, sections_of
from daydream.settings import as_arguments, as_words
from daydream.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from daydream.experiment.experiment import Experiment


def method_name(name: str) -> str:
    return Path(name).name if ".py:" in name else name


def is_oracle(config: Mapping[str, Any]) -> bool:
    """Say whether a run sees what no learner has, as its folder says."""
    return bool(config.get("oracle"))


def data_name(config: Mapping[str, Any]) -> str:
    """Name a run's data set, and which of its classes are labelled where not all are."""
    name, labelled = config["run"]["data"], config["data"].get("labelled")
    meant = " (a stand-in for ImageNet-Subset)" if name == "tiny-imagenet" else ""
    return f"{name} {labelled}{meant}" if labelled else str(name)


def variants(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name the method of each run, with flags for the settings in which runs of that method differ here.

    Only the configs are looked at: nothing is imported for it, a method in a user's file least of all.
    """
    sections = ("method", "imagination", "pile", "parts", "gone")
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

    marks = [" (oracle)" if is_oracle(config) else "" for config in configs]
    return [name(method, settings) + mark for (method, settings), mark in zip(found, marks, strict=True)]


def command_of(config: dict[str, Any]) -> str:
    """Return the command that runs a config again. To read a run imports no file it names."""
    run = config["run"]
    if ".py:" in run["method"]:
        sections = sections_of(run["data"], RunSettings().method, run["backbone"])
        words = [
            *as_arguments(run, sections["run"]),
            *as_arguments(config["data"], sections["data"]),
            *_in_full(config),
        ]
    else:
        sections = sections_of(run["data"], run["method"], run["backbone"], config["method"].get("base_epochs"))
        words = [word for key, kind in sections.items() for word in as_arguments(config.get(key) or {}, kind)]
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
        "method": method_name(settings["method"]) + (" (oracle)" if is_oracle(config) else ""),
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


def headline(experiment: "Experiment") -> str:
    """Name a run by what a reader must know to compare it."""
    run, sizes = experiment.config.run, experiment.stream.sizes
    tasks = f"{sizes[0]} classes" + (f" + {len(sizes) - 1} x {sizes[1]}" if len(sizes) > 1 else "")
    memory = f"memory {experiment.budget}" if experiment.method.keeps_exemplars else "no memory"
    oracle = ", an oracle that sees old classes' images" if experiment.config.carried.oracle else ""
    method = method_name(run.method) + oracle
    note = f" ({experiment.data.note})" if experiment.data.note else ""
    return f"{method} on {run.data}{note}, {tasks}, order {run.order}, {memory}, {run.backbone}, seed {run.seed}"


def task_text(row: Mapping[str, Any]) -> str:
    parts = [f"task {row['task'] + 1}: {row['classes']} classes"]
    for kind in ("cnn", "nme"):
        if row[kind] is not None:
            old = "" if row[kind]["old"] is None else f", old {row[kind]['old']:.1f}"
            parts.append(f"{kind.upper()} {row[kind]['top1']:.2f} (new {row[kind]['new']:.1f}{old})")
    return ", ".join(parts)
