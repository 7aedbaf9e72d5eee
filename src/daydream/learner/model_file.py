"""A model as one portable file: a zip of JSON and safetensors, stored as they are. Nothing in it can run code.

| member | what it holds |
|---|---|
| `model.json` | format, version, settings, preprocessing, classes, lessons, temperature, networks' shapes |
| `tensors.safetensors` | the networks (generators too), a method's other tensors, held-out confidences, image digests |
| `images.safetensors` | exemplars, held-out images and the kept share of the pile, as uint8 pixels |
| `exact.safetensors` | of a model that adapted from an exact one, that one's whole file |

Pixels are kept as bytes, not as PNG: they come back exactly, at once, and no image decoder has to face a hostile file.

A reader trusts nothing. Members are not compressed and are as long as the file has room for, so there is no bomb; their
names are those above, and none is ever extracted; networks are built without memory first, and must have the very
shapes the file holds.
"""

import contextlib
import json
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from daydream import __version__, atomic
from daydream.components.carried import kinds_of
from daydream.data.images import ImageSet, Resident
from daydream.errors import UserError
from daydream.escapes import from_json
from daydream.learner import exact_file
from daydream.learner.making import complete
from daydream.learner.model import ClassRecord, LessonRecord, Model, Preprocessing
from daydream.learner.settings import ModelSettings
from daydream.methods import METHODS, load_method
from daydream.methods.method import network
from daydream.nets.extractor import whole
from daydream.nets.generators import GeneratorBank
from daydream.nets.network import architecture
from daydream.settings import from_dict, mismatch, require
from daydream.stages.stage import State
from daydream.storage.older import upgraded_parts
from daydream.storage.state import pack, unpack

FORMAT = 2
"""Format 1 held the settings of parts alone, under `parts`."""
MEMBERS = ("model.json", "tensors.safetensors", "images.safetensors")
EXACT = "exact.safetensors"
JSON_BYTES = 2**25
DAMAGE = (
    zipfile.BadZipFile,
    SafetensorError,
    UserError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    RuntimeError,
    EOFError,
    struct.error,
)
"""What reading a damaged file may raise."""


def write(path: Path, model: Model) -> None:
    """Write a model; until it is whole, and if it cannot be, what was there before stays."""
    info, components = pack(model.state)
    about = {
        "format": FORMAT,
        "daydream": __version__,
        "settings": asdict(model.settings),
        "preprocessing": asdict(model.preprocessing),
        "classes": [asdict(record) for record in model.classes],
        "lessons": [asdict(record) for record in model.lessons],
        "carried": model.carried,
        "temperature": model.temperature,
        "networks": info["nets"],
    }
    memory = components.pop("memory")
    tensors = {f"{part}/{name}": value for part, values in components.items() for name, value in values.items()}
    tensors |= {"confidences": model.confidences, "seen": model.seen}
    held = model.held_out
    images = {f"memory/{name}": value for name, value in memory.items()}
    images |= {"held_out/images": held.pixels.fetch(torch.arange(len(held))), "held_out/labels": held.labels}
    images["pile"] = model.pile
    rights = atomic.rights_of(path)  # a new file's are its owner's alone: it holds pictures
    content = dict(zip(MEMBERS, (json.dumps(about, indent=1).encode(), _bytes(tensors), _bytes(images)), strict=True))
    content |= {EXACT: model.exact} if model.exact else {}
    try:
        with (
            atomic.replacing(path, rights) as part,
            zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive,
        ):
            for name, data in content.items():
                archive.writestr(zipfile.ZipInfo(name), data)
    except OSError as error:
        before = "; the model that was there is untouched" if path.exists() else ""
        raise UserError(f"{path} cannot be written: {error.strerror or error}{before}") from error


def read(path: Path, device: torch.device) -> Model:
    """Read a model; a file that is damaged, hostile or none of ours is the user's to know, in one line."""
    if not path.exists():
        raise UserError(f"there is no model {path}: make one with `daydream learn {path} FOLDER`")
    if not path.is_file():
        raise UserError(f"{path} is not a model file but a folder or a device")
    try:
        with path.open("rb") as file:
            if file.read(4) != b"PK\3\4":
                raise UserError(f"{path} is not a model file")
            with _damage(path):
                members = _members(file, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    with _damage(path):
        about = from_json(members["model.json"])
        model = _model(about, load(members["tensors.safetensors"]), load(members["images.safetensors"]), device)
        return replace(model, exact=_checked_exact(members.get(EXACT, b""), model))


class _Newer(Exception):
    """The file's format is one of a later version."""


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except _Newer as error:
        raise UserError(f"{path} {error}") from None
    except DAMAGE as error:
        reason = " ".join(f"{error}".split())[:120] or type(error).__name__
        raise UserError(f"{path} is damaged or cut short ({reason}); take a copy of it that is whole") from error


def _bytes(tensors: Mapping[str, Tensor]) -> bytes:
    return save({name: value.detach().contiguous().cpu() for name, value in tensors.items()})


def _members(file: Any, size: int) -> dict[str, bytes]:
    """Return the members of an archive of `size` bytes, once their names and lengths are known to be ours."""
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        plain = all(
            entry.compress_type == zipfile.ZIP_STORED
            and entry.file_size == entry.compress_size
            and not entry.flag_bits & 1
            for entry in entries
        )
        require(plain and sum(entry.file_size for entry in entries) <= size, "its members are not stored as they are")
        about = [entry for entry in entries if entry.filename == MEMBERS[0]]
        require(len(about) == 1 and about[0].file_size <= JSON_BYTES, f"it has no {MEMBERS[0]}")
        _check_format(from_json(archive.read(about[0])))
        names = sorted(entry.filename for entry in entries)
        require(names in (sorted(MEMBERS), sorted((*MEMBERS, EXACT))), "its members are not a model's")
        return {entry.filename: archive.read(entry) for entry in entries}


def _check_format(about: Mapping[str, Any]) -> None:
    found = about["format"]
    require(isinstance(found, int) and found >= 1, "it has no format")
    if found > FORMAT:
        raise _Newer(
            f"was written by daydream {about.get('daydream')} in format {found}; this is daydream {__version__}, which "
            f"reads up to format {FORMAT}: upgrade it"
        )


def _model(
    about: Mapping[str, Any], tensors: dict[str, Tensor], images: dict[str, Tensor], device: torch.device
) -> Model:
    """Build a model of a file's content, once each part is known to fit the others."""
    settings = from_dict(ModelSettings, about["settings"])
    require(settings.method is None or settings.method in METHODS, f"its method is '{settings.method}'")
    said = (settings.backbone, settings.cut, settings.memory)
    require(None not in said, "its settings do not say its backbone, its cut or its memory")
    preprocessing = from_dict(Preprocessing, about["preprocessing"])
    require(len(preprocessing.mean) == len(preprocessing.std) == 3, "its preprocessing is not of three channels")
    require(8 <= preprocessing.size <= preprocessing.canvas, "its image sizes do not fit")
    classes = tuple(from_dict(ClassRecord, record) for record in about["classes"])
    lessons = tuple(from_dict(LessonRecord, record) for record in about["lessons"])
    _check_history(classes, lessons)
    names = tuple(record.name for record in classes)
    temperature = about["temperature"]
    require(not mismatch(temperature, float, "") and temperature > 0, "its temperature is no number above 0")
    _check_images(images, len(names), preprocessing.canvas)
    finite = all(bool(value.isfinite().all()) for value in tensors.values() if value.is_floating_point())
    require(finite, "its weights are not all numbers")
    require(tensors["seen"].dtype == torch.int64 and tensors["confidences"].ndim == 1, "its numbers are not numbers")
    held_out = ImageSet(Resident(images["held_out/images"].to(device)), images["held_out/labels"], names)
    return Model(
        settings=settings,
        carried=_carried(settings, about),
        preprocessing=preprocessing,
        state=_state(settings, about["networks"], tensors, images, len(names), device),
        classes=classes,
        lessons=lessons,
        temperature=float(temperature),
        confidences=tensors["confidences"],
        held_out=held_out,
        pile=images["pile"],
        seen=tensors["seen"],
    )


def _checked_exact(data: bytes, model: Model) -> bytes:
    """Return the file of an exact model as it is, once it is known to be whole and of the same classes."""
    if data:
        content = exact_file.of_bytes(data, torch.device("cpu"))
        require(sorted(content.model.names) == sorted(model.names), "its exact model knows other classes")
        require(content.prepare.size == model.preprocessing.canvas, "its exact model sees other pictures")
    return data


def _carried(settings: ModelSettings, about: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings of what the model carries; a file of format 1 is from before there was more than parts."""
    stored = about["carried"] if about["format"] > 1 else {"parts": upgraded_parts(about.get("parts", {}))}
    return complete(load_method(settings.method or "replay"), stored)


def _check_history(classes: tuple[ClassRecord, ...], lessons: tuple[LessonRecord, ...]) -> None:
    """Raise if classes and lessons do not tell one story."""
    names, arrivals = [record.name for record in classes], [record.lesson for record in classes]
    require(len(set(names)) == len(names) >= 2, "its class names are not one each")
    require(
        arrivals[0] >= 1 and arrivals == sorted(arrivals) and arrivals[-1] <= len(lessons), "its lessons do not fit"
    )
    for number, lesson in enumerate(lessons, 1):
        known = sum(arrival <= number for arrival in arrivals)
        require(len(lesson.class_accuracy) == known, f"its lesson {number} does not fit its classes")


def _check_images(images: Mapping[str, Tensor], num_classes: int, canvas: int) -> None:
    """Raise if images are not of the stored size, or labels not of the classes."""
    for pixels in (images["memory/images"], images["held_out/images"], images["pile"]):
        square = tuple(pixels.shape[1:]) == (3, canvas, canvas) or len(pixels) == 0
        require(pixels.dtype == torch.uint8 and pixels.ndim == 4 and square, "its images are not of its size")
    for part in ("memory", "held_out"):
        labels = images[f"{part}/labels"]
        inside = labels.dtype == torch.int64 and bool(((labels >= 0) & (labels < num_classes)).all())
        require(inside and labels.shape == images[f"{part}/images"].shape[:1], "its labels do not fit its classes")
    tested = torch.bincount(images["held_out/labels"], minlength=num_classes)
    require(bool((tested > 0).all()), "a class of it has no held-out image")
    ranks = images["memory/ranks"]
    require(ranks.dtype == torch.int64 and ranks.shape == images["memory/labels"].shape, "its ranks do not fit")


def _state(
    settings: ModelSettings,
    nets: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    images: Mapping[str, Tensor],
    num_classes: int,
    device: torch.device,
) -> State:
    """Build the state: networks, a method's tensors, exemplars."""
    builders, components = kinds_of(load_method(settings.method or "replay")), _components(tensors)
    components["memory"] = {name: images[f"memory/{name}"] for name in ("images", "labels", "ranks")}
    budget = {"rule": "per_class", "size": settings.memory}
    state = unpack({"nets": nets, "budget": budget}, components, builders, device)
    net, bank = network(state), state.nets.get("generators")
    require(net.head.num_classes == num_classes, "its head does not fit its classes")
    whole(state.nets)  # raises where the head does not fit what stands beside the network
    require(
        net.kinds[0] == architecture(settings.backbone or "") and net.kinds[2] == settings.cut, "its network is another"
    )
    known = bank.classes if isinstance(bank, GeneratorBank) else 0
    require((bank is None or known > 0) and known <= num_classes, "its generators do not fit its classes")
    return state


def _components(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Sort tensors named `component/name` into their components."""
    found: dict[str, dict[str, Tensor]] = {"tensors": {}}
    for name, value in tensors.items():
        part, slash, rest = name.partition("/")
        if slash:
            found.setdefault(part, {})[rest] = value
    return found
