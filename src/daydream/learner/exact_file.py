"""An exact learner as one file: safetensors of the network and of what is known, JSON in its metadata.

Nothing in it can run code, and its reader trusts nothing: each part must fit the others.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_bytes
from safetensors.torch import save as save_bytes
from safetensors.torch import save_file
from torch import Tensor

from daydream import __version__, atomic
from daydream.data.augment import Prepare
from daydream.errors import UserError
from daydream.learner.exact import KEPT_STATES, ExactModel, Judged
from daydream.learner.exact_words import FORMAT, KIND, About, Look, Newer, Words, check_model, words_of
from daydream.learner.history import History, read, written
from daydream.learner.known import Known
from daydream.nets.network import Network, architecture
from daydream.nets.ridge import WIDEST, Projection, Ridge, Sums
from daydream.settings import require

SUMS = ("second", "sums", "counts")
DAMAGE = (SafetensorError, UserError, LookupError, ValueError, TypeError, AssertionError, RuntimeError, AttributeError)
"""What reading a damaged file may raise."""


@dataclass(frozen=True)
class Content:
    """All that a file holds."""

    net: Network
    origin: str
    """The name by which the network was asked for, which says whose weights it has."""
    prepare: Prepare
    model: ExactModel
    history: History
    earlier: tuple[History, ...]
    """What had happened before each of the model's earlier states was left."""


def save(path: Path, content: Content) -> None:
    """Write a file, whole or not at all; a new one is its owner's alone."""
    metadata, tensors = _parts(content)
    try:
        with atomic.replacing(path, atomic.rights_of(path)) as part:
            rights = part.stat().st_mode
            save_file(tensors, part, metadata)
            part.chmod(rights)
    except (OSError, SafetensorError) as error:
        before = "; the model that was there is untouched" if path.exists() else ""
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be written: {reason}{before}") from error


def load(path: Path, device: torch.device) -> Content:
    """Read a file back; one that is damaged or none of ours is said in one line."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise UserError(f"{path} is not a model file but a folder or a device")
    try:
        with safe_open(path, framework="pt") as file:
            about = words_of(file.metadata())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return _content(about, tensors, device)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except Newer as error:
        raise UserError(f"{path} {error}") from None
    except DAMAGE as error:
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{path} is damaged or no model ({reason}); take a copy of it that is whole") from error


def as_bytes(content: Content) -> bytes:
    """Return what `save` writes, to stand inside another file."""
    metadata, tensors = _parts(content)
    return save_bytes(tensors, metadata)


def of_bytes(data: bytes, device: torch.device) -> Content:
    """Read what `as_bytes` gives; whoever reads the file around it says what is damaged."""
    header = data[8 : 8 + int.from_bytes(data[:8], "little")]
    return _content(words_of(json.loads(header).get("__metadata__")), load_bytes(data), device)


def _parts(content: Content) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata of a file, and its tensors by name."""
    words, tensors = packed(content.model)
    net = content.net
    tensors |= {f"net/{k}": v for k, v in net.state_dict().items() if not k.startswith("head.")}
    about = {
        "format": FORMAT,
        "daydream": __version__,
        "model": words,
        "backbone": architecture(net.kinds[0]),
        "origin": content.origin,
        "prepare": asdict(content.prepare),
        "history": [written(history) for history in (content.history, *content.earlier)],
    }
    metadata = {"kind": KIND, "about": json.dumps(about)}
    return metadata, {name: value.contiguous().cpu() for name, value in tensors.items()}


def _content(about: About, tensors: Mapping[str, Tensor], device: torch.device) -> Content:
    """Build a file's content, once each part is known to fit the others."""
    backbone = about["backbone"]
    require(architecture(backbone) == backbone, "it asks for weights from elsewhere")
    net = Network(backbone, "linear").requires_grad_(False)
    weights = {name.removeprefix("net/"): value for name, value in tensors.items() if name.startswith("net/")}
    net.load_state_dict(weights)
    model = unpacked(about["model"], tensors)
    history, *earlier = map(read, about["history"])
    require(len(earlier) == len(model.earlier), "its history does not fit its states")
    return Content(net.to(device), about["origin"], _prepare(about["prepare"]), model, history, tuple(earlier))


def _prepare(look: Look) -> Prepare:
    mean, std = look["mean"], look["std"]
    return Prepare((mean[0], mean[1], mean[2]), (std[0], std[1], std[2]), look["size"])


def packed(model: ExactModel) -> tuple[Words, dict[str, Tensor]]:
    """Return what JSON can hold of a model, and its tensors by name."""
    judged, projection = model.judged, model.judged.ridge.projection
    about: Words = {
        "embedding": model.embedding,
        "names": [list(known.names) for known in (model.known, *model.earlier)],
        "temperature": judged.temperature,
        "accuracy": list(judged.accuracy),
        "strength": judged.ridge.strength,
        "projection": None if projection is None else [projection.width, projection.seed],
    }
    tensors = {"weight": judged.ridge.weight, "bias": judged.ridge.bias, "confidences": judged.confidences}
    for number, known in enumerate((model.known, *model.earlier)):
        parts = {"labels": known.labels, "digests": known.digests, "features": known.features}
        parts |= {part: getattr(known.sums, part) for part in SUMS} if known.sums is not None else {}
        tensors |= {f"state{number}/{part}": value for part, value in parts.items() if value is not None}
    return about, tensors


def unpacked(about: Words, tensors: Mapping[str, Tensor]) -> ExactModel:
    """Build a model of a file's content, once each part is known to fit the others."""
    check_model(about)
    names = about["names"]
    require(len(names) <= 1 + KEPT_STATES, "its states are not whole")
    known, *earlier = (_known(number, names[number], tensors) for number in range(len(names)))
    require((known.features is None) != (known.sums is None), "it keeps neither features nor sums")
    for state in earlier:
        fits = state.features is None and (state.sums is None) == (known.sums is None)
        inside = known.sums is not None or bool(torch.isin(state.digests, known.digests).all())
        require(fits and inside, "an earlier state of it does not fit")
    return ExactModel(about["embedding"], known, _judged(about, tensors, known), tuple(earlier))


def _known(number: int, names: list[str], tensors: Mapping[str, Tensor]) -> Known:
    parts = {part: tensors.get(f"state{number}/{part}") for part in ("labels", "digests", "features", *SUMS)}
    labels, digests, features = parts["labels"], parts["digests"], parts["features"]
    assert labels is not None
    assert digests is not None
    plain = labels.dtype == digests.dtype == torch.int64 and labels.shape == digests.shape == (len(labels),)
    require(plain and len(labels) > 0, "its pictures are not whole")
    require(bool((torch.bincount(labels, minlength=len(names)) > 0).all()), "a class of it has no picture")
    require(int(labels.max()) < len(names), "its labels do not fit its classes")
    if features is not None:
        fits = features.dtype == torch.float32 and features.ndim == 2 and len(features) == len(labels)
        require(fits and bool(torch.isfinite(features).all()), "its features do not fit its pictures")
    second, sums, counts = (parts[part] for part in SUMS)
    if second is None or sums is None or counts is None:
        return Known(tuple(names), labels, digests, features)
    dim = second.shape[0]
    shapes = (second.shape, sums.shape, counts.shape) == ((dim, dim), (len(names), dim), (len(names),))
    require(shapes and all(_plain(value) for value in (second, sums, counts)), "its sums do not fit")
    return Known(tuple(names), labels, digests, features, Sums(second, sums, counts))


def _plain(sums: Tensor) -> bool:
    return sums.dtype == torch.float64 and bool(sums.isfinite().all())


def _judged(about: Words, tensors: Mapping[str, Tensor], known: Known) -> Judged:
    dim = known.features.shape[1] if known.features is not None else known.sums.second.shape[0] if known.sums else 0
    weight, bias, confidences = (tensors[name] for name in ("weight", "bias", "confidences"))
    projection = None
    if about["projection"] is not None:
        width, seed = about["projection"]
        require(0 < width <= WIDEST, "its projection is too wide, or none")
        projection = Projection(width, seed)
    columns = dim if projection is None else projection.width
    fits = weight.shape == (len(known.names), columns) and bias.shape == (len(known.names),)
    require(fits and weight.dtype == bias.dtype == torch.float64, "its classifier does not fit its classes")
    finite = all(bool(value.isfinite().all()) for value in (weight, bias, confidences))
    require(finite and confidences.ndim == 1, "its classifier is not all numbers")
    ridge = Ridge(weight, bias, about["strength"], projection)
    return Judged(ridge, about["temperature"], confidences, tuple(about["accuracy"]))
