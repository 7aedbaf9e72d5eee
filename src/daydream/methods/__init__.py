"""Class-incremental methods, one file a paper: found by name, imported when asked for.

All that the author of a method needs comes from here and from `daydream.stages` (losses, schedules).
"""

import hashlib
import importlib
import importlib.util
import inspect
from pathlib import Path
from typing import Any

from daydream.errors import UserError, unknown
from daydream.methods.method import (
    Method,
    Prediction,
    RebalancingSettings,
    RehearsalSettings,
    Setup,
    TrainingSettings,
    by_both,
    joined,
    memory_names,
    network,
)  # fmt: skip
from daydream.nets.network import Network
from daydream.protocol.stream import Stream, Task
from daydream.settings import require, setting
from daydream.stages.stage import SGD, Adam, Batch, Batches, Group, Samples, Stage, State

__all__ = [
    "METHODS", "SGD", "Adam", "Batch", "Batches", "Group", "Method", "Network", "Prediction", "RebalancingSettings",
    "RehearsalSettings", "Samples", "Setup", "Stage", "State", "Stream", "Task", "TrainingSettings", "by_both",
    "joined", "load_method", "memory_names", "network", "require", "resolve", "setting", "source_digest",
]  # fmt: skip

METHODS: dict[str, tuple[str, str]] = {
    "finetune": (
        "daydream.methods.finetune:Finetune",
        "train on the new classes alone: the lower bound, which forgets",
    ),
    "replay": ("daydream.methods.replay:Replay", "exemplars, feature distillation, proxies: the paper's Baseline"),
    "imagine": ("daydream.methods.replay:Imagine", "replay and imagined counterparts: the paper's method"),
    "dream": (
        "daydream.methods.replay:Dream",
        "replay, rotations as classes, weights blended; taught on the pile or, if long, imagining: our recipe",
    ),
    "mixup": ("daydream.methods.replay:Mixup", "replay and pixel mixtures of exemplars and unlabelled images"),
    "icarl": ("daydream.methods.icarl:ICaRL", "sigmoid outputs, binary cross-entropy with the old network's answers"),
    "bic": ("daydream.methods.bic:BiC", "distillation, then two numbers that correct the bias towards new classes"),
    "ucir": ("daydream.methods.ucir:UCIR", "cosine head, features held to the old ones, a margin for old classes"),
    "dde": ("daydream.methods.dde:DDE", "ucir; images classified beside their neighbours, momentum's bias removed"),
    "tpcil": ("daydream.methods.tpcil:TPCIL", "a graph of anchors, its similarities held by correlation: a reading"),
    "mnemonics": ("daydream.methods.mnemonics:Mnemonics", "ucir; exemplars whose pixels learn, by a bilevel gradient"),
    "podnet": ("daydream.methods.podnet:PODNet", "every stage's pooled maps held to the old ones, proxies, NCA"),
    "der": ("daydream.methods.der:DER", "a new extractor for every task beside the frozen old ones: the network grows"),
    "der-pruned": (
        "daydream.methods.der_pruned:PrunedDER",
        "der whose extractors lose the channels that matter least",
    ),
    "foster": (
        "daydream.methods.foster:FOSTER",
        "a second extractor learns what the old network lacks, then both are taught to one",
    ),
    "dmc": (
        "daydream.methods.dmc:DMC",
        "an expert on new classes, then a student of two teachers on the pile alone",
    ),
    "gd": ("daydream.methods.gd:GD", "three teachers, of old, of new and of all classes, on unlabelled images too"),
    "simplecil": ("daydream.methods.simplecil:SimpleCIL", "nearest class mean on frozen features; nothing is kept"),
    "ranpac": ("daydream.methods.ranpac:RanPAC", "random projection and ridge regression on frozen features"),
    "joint": ("daydream.methods.joint:Joint", "train on all data at once (or again at each task): the upper bound"),
}


def load_method(name: str) -> type[Method[Any]]:
    """Return a method's class by its name, or from `FILE.py:Class`."""
    if ".py:" in name:
        return _from_file(*name.rsplit(":", 1))
    if name not in METHODS:
        raise unknown("method", name, [*METHODS, "FILE.py:Class"])
    module, attribute = METHODS[name][0].split(":")
    found: type[Method[Any]] = getattr(importlib.import_module(module), attribute)
    return found


def resolve(name: str) -> str:
    """Make a method's name valid from any folder: a file's path becomes absolute."""
    file, colon, attribute = name.rpartition(":")
    return f"{Path(file).resolve()}{colon}{attribute}" if ".py:" in name else name


def source_digest(name: str) -> str | None:
    """Return the digest of a user's own method file, or None for a method of ours."""
    return hashlib.sha256(Path(name.rsplit(":", 1)[0]).read_bytes()).hexdigest()[:16] if ".py:" in name else None


def _from_file(file: str, attribute: str) -> type[Method[Any]]:
    path = Path(file)
    if not path.is_file():
        raise UserError(f"--method {file}:{attribute}: there is no file {file}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"--method {file}: the file cannot be imported: {type(error).__name__}: {error}") from error
    found = getattr(module, attribute, None)
    if not (inspect.isclass(found) and issubclass(found, Method)):
        own = [
            k
            for k, v in vars(module).items()
            if inspect.isclass(v) and issubclass(v, Method) and v.__module__ == path.stem
        ]
        raise UserError(
            f"--method {file}:{attribute}: the file has no method '{attribute}' (it has: {', '.join(own) or 'none'})"
        )
    return found
