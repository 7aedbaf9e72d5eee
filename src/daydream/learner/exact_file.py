"""An exact model as JSON and named tensors, for a model file, and back; a reader trusts nothing."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from daydream.learner.exact import KEPT_STATES, ExactModel, Judged, Known
from daydream.nets.ridge import WIDEST, Projection, Ridge, Sums
from daydream.settings import require

SUMS = ("second", "sums", "counts")


def packed(model: ExactModel) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what JSON can hold of a model, and its tensors by name."""
    judged, projection = model.judged, model.judged.ridge.projection
    about = {
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


def unpacked(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> ExactModel:
    """Build a model of a file's content, once each part is known to fit the others."""
    names = about["names"]
    require(isinstance(names, list) and 1 <= len(names) <= 1 + KEPT_STATES, "its states are not whole")
    known, *earlier = (_known(number, names[number], tensors) for number in range(len(names)))
    require((known.features is None) != (known.sums is None), "it keeps neither features nor sums")
    for state in earlier:
        fits = state.features is None and (state.sums is None) == (known.sums is None)
        inside = known.sums is not None or bool(torch.isin(state.digests, known.digests).all())
        require(fits and inside, "an earlier state of it does not fit")
    return ExactModel(str(about["embedding"]), known, _judged(about, tensors, known), tuple(earlier))


def _known(number: int, names: Any, tensors: Mapping[str, Tensor]) -> Known:
    parts = {part: tensors.get(f"state{number}/{part}") for part in ("labels", "digests", "features", *SUMS)}
    labels, digests, features = parts["labels"], parts["digests"], parts["features"]
    assert labels is not None
    assert digests is not None
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    require(texts and 0 < len(names) == len(set(names)), "its class names are not whole")
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


def _judged(about: Mapping[str, Any], tensors: Mapping[str, Tensor], known: Known) -> Judged:
    dim = known.features.shape[1] if known.features is not None else known.sums.second.shape[0] if known.sums else 0
    weight, bias, confidences = (tensors[name] for name in ("weight", "bias", "confidences"))
    projection = None
    if about["projection"] is not None:
        width, seed = about["projection"]
        require(type(width) is type(seed) is int and 0 < width <= WIDEST, "its projection is too wide, or none")
        projection = Projection(width, seed)
    columns = dim if projection is None else projection.width
    fits = weight.shape == (len(known.names), columns) and bias.shape == (len(known.names),)
    require(fits and weight.dtype == bias.dtype == torch.float64, "its classifier does not fit its classes")
    finite = all(bool(value.isfinite().all()) for value in (weight, bias, confidences))
    require(finite and confidences.ndim == 1, "its classifier is not all numbers")
    temperature, accuracy = about["temperature"], about["accuracy"]
    require(temperature is None or 0 < float(temperature) < float("inf"), "its temperature is none")
    numbers = all(value is None or 0 <= float(value) <= 100 for value in accuracy)
    require(numbers and len(accuracy) == len(known.names), "its accuracies do not fit its classes")
    ridge = Ridge(weight, bias, float(about["strength"]), projection)
    return Judged(ridge, None if temperature is None else float(temperature), confidences, tuple(accuracy))
