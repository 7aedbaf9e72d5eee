"""A finished base task that many runs start from: its networks, and what they depend on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from daydream.errors import UserError
from daydream.settings import changed, plain_json
from daydream.stages.stage import Kinds, Stage, State
from daydream.storage.checkpoint_files import load_checkpoint, naming_damage, save_checkpoint
from daydream.storage.records import LatestBase
from daydream.storage.run_folder import RunFolder
from daydream.storage.state import pack, unpack

if TYPE_CHECKING:
    from daydream.experiment.experiment import Experiment


@dataclass(frozen=True)
class Base:
    """A base task read from a run, already checked against the run that is to start from it."""

    path: Path
    info: Mapping[str, Any]
    components: Mapping[str, Mapping[str, Tensor]]


def conditions(experiment: "Experiment") -> dict[str, Any]:
    """Return what the base task depends on besides its own settings."""
    run, stream = experiment.config.run, experiment.stream
    return {
        "data": experiment.fingerprint,
        "base": stream.sizes[0],
        "order": list(stream.train.class_names[: stream.sizes[0]]),
        "backbone": run.backbone,
        "cut": run.cut,
        "validation": run.validation,
    }


def write(experiment: "Experiment", run: Path, stage: Stage, state: State) -> None:
    """Keep the state after the base task's shared stage beside the run."""
    info, components = pack(state)
    whole = {"conditions": conditions(experiment), "settings": dict(stage.shared_as or {}), "state": info}
    save_checkpoint(run / "base", whole, components)


def read(experiment: "Experiment", path: Path) -> Base:
    """Read a run's base task, or say what does not match."""
    RunFolder.open(path)
    found = load_checkpoint(path / "base", LatestBase)
    if found is None:
        raise UserError(f"--base-from {path}: that run has not finished its base task, or its method does not share it")
    wanted = [stage.shared_as for stage in experiment.stages(experiment.stream.task(0)) if stage.shared_as]
    if not wanted:
        raise UserError(
            f"--base-from: method '{experiment.config.run.method}' cannot start from another run's base task"
        )
    _refuse_changes(path, found[0]["conditions"], conditions(experiment))
    _refuse_changes(path, found[0]["settings"], plain_json(wanted[0]))
    return Base(path, *found)


def take(given: Base, state: State, kinds: Kinds) -> None:
    """Put the base task's networks and tensors in the place of the stage that would have trained them."""
    with naming_damage(given.path / "base"):
        loaded = unpack(given.info["state"], given.components, kinds, state.device)
    state.nets, state.tensors = loaded.nets, loaded.tensors


def _refuse_changes(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    names = changed(theirs, ours)
    if names:
        details = "; ".join(
            f"{name}: {_short(theirs.get(name))} there, {_short(ours.get(name))} here" for name in names
        )
        raise UserError(f"--base-from {path} does not match this run ({details})")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."
