"""What the server knows of a model file: its words, what predicts, and the pictures it has learnt."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daydream.serve.pictures import id_of
from daydream.serve.predictor import Predictor


@dataclass
class View:
    """What the server knows of a model file."""

    about: dict[str, Any]
    predictor: Predictor | None = None
    names: dict[str, list[str]] = field(default_factory=dict)
    """Of each picture that was learnt, by ID, its classes."""

    @classmethod
    def of(cls, about: dict[str, Any], raw: dict[str, bytes], before: "View | None") -> "View":
        told = about["names"] and about["temperature"] is not None
        predictor = Predictor(about, raw, before.predictor if before is not None else None) if told else None
        found: dict[str, list[str]] = {}
        ids, labels = (np.frombuffer(raw.get(part, b""), np.int64).tolist() for part in ("digests", "labels"))
        for digest, label in zip(ids, labels, strict=True):
            found.setdefault(id_of(digest), []).append(about["names"][label])
        return cls(about, predictor, found)

    @property
    def accuracies(self) -> dict[str, float | None]:
        return {row["name"]: (row["accuracy"] or [None])[-1] for row in self.about["classes"]}
