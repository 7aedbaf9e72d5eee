"""A run's settings: everything needed to run it again, as it stands in config.json."""

import dataclasses
import logging
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from daydream import __version__
from daydream.components.settings import KEYS, CarriedSettings
from daydream.errors import UserError
from daydream.settings import changed, from_dict, plain_json, require, setting, with_defaults
from daydream.storage.older import FORMAT, refuse_gone, upgraded
from daydream.storage.run_folder import RunFolder

log = logging.getLogger("daydream")


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What the run, not the method or the data set, decides."""

    data: str = setting("shapes", "data set: see `daydream datasets`")
    root: str = setting("", "folder or archive the data set is read from")
    method: str = setting("replay", "method: see `daydream methods`, or FILE.py:Class for your own")
    backbone: str = setting(
        "resnet32", "network: resnet32, resnet10, resnet18, resnet18-small, efficientnet-lite0 to 2, or timm:NAME"
    )
    cut: str = setting("stage3", "the stage the network is cut after, into a lower and an upper half", expert=True)
    base: int | None = setting(None, "classes of the base task; by default half of them")
    steps: int = setting(5, "increments the other classes arrive in")
    tasks: int | None = setting(None, "stop after this many tasks, base task included; by default run all")
    memory: int | None = setting(
        None, "exemplars kept, by the rule of --budget; by default 20 per class of the data set"
    )
    budget: Literal["total", "per_class"] = setting(
        "total", "whether --memory counts all exemplars or those of one class"
    )
    order: str = setting(
        "auto",
        "class order: icarl, lucir, paper-1, paper-2, paper-3, natural, seed:N or a file; auto takes "
        "icarl for cifar100, lucir for imagenet-subset, natural elsewhere",
    )
    seed: int = setting(1, "seed of everything random")
    validation: float = setting(0.0, "share of the training images held out and reported on instead of the test images")
    base_from: str = setting("", "a finished run whose base task this one starts from")
    device: str = setting("auto", "auto, cpu, cuda or cuda:N")
    precision: Literal["auto", "bf16", "tf32", "fp32"] = setting(
        "auto", "auto is bf16 on a GPU and fp32 on a CPU", expert=True
    )
    compile: bool | None = setting(None, "compile the network; by default on a GPU only", expert=True)
    checkpoint_every: int = setting(10, "epochs between checkpoints within a stage", expert=True)
    tensorboard: bool = setting(False, "also write TensorBoard events (needs the extra `tensorboard`)", expert=True)

    def __post_init__(self) -> None:
        require(self.checkpoint_every >= 1, f"--checkpoint-every {self.checkpoint_every} must be at least 1")
        require(self.tasks is None or self.tasks >= 1, f"--tasks {self.tasks} must be at least 1")
        require(self.seed >= 0, f"--seed {self.seed} must not be negative")
        require(0 <= self.validation < 1, f"--validation {self.validation} must lie between 0 and 1")
        require(self.memory is None or self.memory >= 0, f"--memory {self.memory} must not be negative")


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of a run, of its data set and of its method."""

    run: RunSettings
    data: Any
    """The data source's `Settings`."""
    method: Any
    """The method's `Settings`."""
    imagination: Any = None
    """`ImaginationSettings`, for a method that replays."""
    pile: Any = None
    """`PileSettings`, for a method that replays; where it needs a pile itself, `PileSource`."""
    parts: Any = None
    """`PartsSettings`, for a method that carries any."""

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": __version__,
            "run": asdict(self.run),
            "data": asdict(self.data),
            "method": asdict(self.method),
            "imagination": self.imagination and asdict(self.imagination),
            "pile": self.pile and asdict(self.pile),
            "parts": self.parts and asdict(self.parts),
        }

    @property
    def carried(self) -> CarriedSettings:
        """Return the settings of all that the method carries."""
        from daydream.methods import load_method

        kind, components = load_method(self.run.method), {key: getattr(self, key) for key in KEYS}
        usual = sections_of(self.run.data, self.run.method, self.run.backbone, self.method.base_epochs)
        return CarriedSettings(name=self.run.method, kind=kind, usual=usual, **components)


def sections_of(data: str, method: str, backbone: str = "", base_epochs: int | None = None) -> dict[str, type]:
    """Return the settings of a run on a data set by a method, by section, with the defaults that suit both.

    A recipe's may depend on the epochs of its base task; None is as many as are usual on that data set.

    A data set that one size cannot serve says so in its `DEFAULTS`. Maps of published weights are of another scale than
    those of a network trained here, for which the paper's losses were weighted.
    """
    from daydream.components.settings import component_settings
    from daydream.data import source
    from daydream.methods import load_method

    kind, own = load_method(method), source(data)
    own_defaults: dict[str, Any] = getattr(own, "DEFAULTS", {})
    epochs = base_epochs or own_defaults.get("base_epochs", kind.Settings.base_epochs)
    carried = component_settings(kind, epochs)
    sections = {"run": RunSettings, "data": own.Settings, "method": kind.Settings, **carried}
    published = backbone.startswith("efficientnet-") and not backbone.endswith("+untrained")
    scale = {"generator_form": "relative"} if published or backbone.endswith("+pretrained") else {}
    usual = {**kind.usual(epochs), **own_defaults, **scale}
    return {key: settings if key == "data" else with_defaults(settings, usual) for key, settings in sections.items()}


def make_config(
    run: Mapping[str, Any],
    data: Mapping[str, Any],
    method: Mapping[str, Any],
    imagination: Mapping[str, Any] | None = None,
    pile: Mapping[str, Any] | None = None,
    parts: Mapping[str, Any] | None = None,
) -> Config:
    """Build a config from plain values; each component checks its own."""
    from daydream.methods import load_method, resolve

    plain = from_dict(RunSettings, run)
    kind = load_method(plain.method)
    sections = sections_of(plain.data, plain.method, plain.backbone, method.get("base_epochs"))
    settings: RunSettings = from_dict(sections["run"], run)
    settings = dataclasses.replace(
        settings,
        method=resolve(settings.method),
        root=_absolute(settings.root),
        base_from=_absolute(settings.base_from),
        order=_absolute(settings.order) if Path(settings.order).is_file() else settings.order,
    )
    data_settings: Any = from_dict(sections["data"], _absolute_files(data))
    given = {"imagination": imagination or {}, "pile": _absolute_pile(pile or {}), "parts": parts or {}}
    carried = CarriedSettings.of(settings.method, kind, given, sections)
    components = {key: getattr(carried, key) for key in KEYS}
    return Config(run=settings, data=data_settings, method=from_dict(sections["method"], method), **components)


def completed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored settings in today's words, with those of data sets that could not be said when they were stored."""
    from daydream.data import source

    whole = upgraded(stored)
    data = asdict(from_dict(source(whole["run"]["data"]).Settings, whole["data"]))
    return {**whole, "data": plain_json(data)}


def config_from_json(stored: Mapping[str, Any]) -> Config:
    """Read a config.json back."""
    stored = upgraded(stored)
    if stored.get("format") != FORMAT:
        raise UserError(f"config.json has format {stored.get('format')!r}; this daydream reads format {FORMAT}")
    refuse_gone(stored)
    whole = completed(stored)
    components = {key: whole.get(key) for key in KEYS}
    return make_config(whole["run"], whole["data"], whole["method"], **components)


def check_importing(run: RunFolder) -> None:
    """Before a run goes on whose method lies in a file: refuse what changed, and say which file is imported and why."""
    stored = run.config
    name = stored["run"]["method"]
    if ".py:" not in name:
        return
    from daydream.methods import source_digest

    file, config = Path(name.rpartition(":")[0]), f"{run.path / 'config.json'}"
    if not file.is_absolute() or not stored.get("method_source"):
        raise UserError(f"{config} names the method {name}, but not as daydream writes it: nothing was imported")
    found = run.identity
    if found is not None:
        before = completed(found)
        check_unchanged(before, {key: completed(stored).get(key) for key in before}, str(run.path))
    if file.is_file() and source_digest(name) != stored["method_source"]:
        raise UserError(
            f"{run.path}: the contents of its method's file {file} changed since it began: restore them, or start a "
            "new run; nothing was imported"
        )
    log.warning("importing %s: %s names it as the run's method; its code runs with your rights", file, config)


def check_no_code(run: RunFolder, trusted: str, doing: str) -> None:
    """Refuse to read a run by a method in a file, unless its user names that file: a run folder may be a stranger's."""
    from daydream.methods import resolve

    name = run.config["run"]["method"]
    if ".py:" in name and resolve(trusted) != name:
        raise UserError(
            f"{run.path} names a method in a file, {name}, which {doing} would import: if you trust that file, give "
            f"--method {name}"
        )


def _absolute(path: str) -> str:
    """Make a path valid from any folder: a run may be resumed from another one."""
    return str(Path(path).expanduser().resolve()) if path else ""


def _absolute_files(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Make the paths among a data set's settings valid from any folder, where they name something from this one."""
    test, subset = (str(data.get(key, "")) for key in ("test_folder", "subset"))
    found = {"test_folder": _absolute(test)} if test and Path(test).expanduser().is_dir() else {}
    if subset not in ("", "first", "seed1993") and Path(subset).is_file():  # a convention's name is no file
        found["subset"] = _absolute(subset)
    return {**data, **found}


def _absolute_pile(pile: Mapping[str, Any]) -> Mapping[str, Any]:
    name, colon, folder = str(pile.get("unlabeled", "")).partition(":")
    return {**pile, "unlabeled": f"{name}:{_absolute(folder)}"} if colon else pile


def environment() -> dict[str, str]:
    """Return the versions and the machine a result belongs to."""
    import torch

    return {
        "daydream": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }


OUTSIDE = {
    "fingerprint": "the images or their classes",
    "pile_fingerprint": "the unlabelled images",
    "method_source": "the contents of its method's file",
}
"""What a run depends on that no setting of it says, in words."""


def check_unchanged(before: Mapping[str, Any], now: Mapping[str, Any], where: str) -> None:
    """Raise the user's mistake if settings differ, naming them."""
    names = changed(before, now)
    if names and all(name in OUTSIDE for name in names):
        what = " and ".join(OUTSIDE[name] for name in names)
        raise UserError(f"{where}: {what} changed since its checkpoint: restore them, or start a new run")
    if names:
        raise UserError(
            f"{where}: the settings changed since its checkpoint ({', '.join(names)}); a run goes on with the settings "
            "it began with: restore config.json, or start a new run"
        )
