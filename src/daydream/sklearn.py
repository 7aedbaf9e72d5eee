"""The exact learner as scikit-learn knows classifiers: in pipelines, searches and cross-validation.

    model = Classifier().fit(["photos/tulip/1.jpg", ...], ["tulip", ...])
    model.partial_fit(more, their_labels)  # nothing is forgotten: the order of lessons changes nothing

X are pictures (files, Pillow images, or arrays [H, W, 3] of uint8), of which a frozen network makes features, or a
table [N, D] of features. Features enter at unit length, as ridge regression takes them; those of a table get a 1 beside
them first, so that length tells as well as direction. Columns of a table in different units should be brought to one
scale first, by a StandardScaler in a pipeline: a part fitted by itself would scale its lesson otherwise than the next.

Shapes: N pictures, D features, C classes.
"""

import hashlib
import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from daydream.learner import exact
from daydream.learner.embedding import Embedder, FeatureCache, pixel_digests
from daydream.learner.exact import ExactModel
from daydream.learner.exact_learner import ExactLearner
from daydream.learner.opening import USUAL
from daydream.learner.pictures import stored

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("daydream.sklearn needs scikit-learn 1.6 or later: pip install 'daydream[sklearn]'") from error

Labels = NDArray[Any]
CHUNK = 256
"""Pictures in memory at once."""


class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Ridge regression on frozen features, its strength and its probabilities by leaving pictures out in turn."""

    classes_: Labels
    model_: ExactModel
    embed_: Embedder | None
    """What makes features of pictures; None where a table was learnt."""

    def __init__(self, backbone: str = USUAL, image_size: int | None = None, device: str = "cpu") -> None:
        self.backbone, self.image_size, self.device = backbone, image_size, device

    def fit(self, X: Any, y: Any) -> Self:
        """Learn pictures and their labels, and nothing of before."""
        return self._learn(X, y, None, fresh=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn more pictures; `classes` may name some that are still to come."""
        return self._learn(X, y, classes, fresh=not hasattr(self, "model_"))

    def predict(self, X: Any) -> Labels:
        """Return the most likely label of each picture [N]."""
        probabilities = self.predict_proba(X)
        labels: Labels = self.classes_[probabilities.argmax(1)]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return calibrated probabilities [N, C], classes in the order of `classes_`; of one still to come, 0."""
        check_is_fitted(self)
        _, features = self._features(column(X), None)
        found = exact.probabilities(self.model_, features).numpy()
        whole = np.zeros((len(found), len(self.classes_)))
        place = {str(label): column for column, label in enumerate(self.classes_.tolist())}
        whole[:, [place[name] for name in self.model_.names]] = found
        return whole

    def _learn(self, X: Any, y: Any, classes: Any, fresh: bool) -> Self:
        labels, (digests, features) = self._given(X, y, fresh)
        before = None if fresh else self.model_
        known = np.unique(labels) if fresh else np.union1d(self.classes_, labels)
        known = known if classes is None else np.union1d(known, np.asarray(classes))
        names = [str(label) for label in known.tolist()]
        place = torch.from_numpy(np.searchsorted(known, labels))
        self.model_ = exact.learn(before, self._identity(features), names, place, digests, features)
        self.classes_ = known
        return self

    def _given(self, X: Any, y: Any, fresh: bool) -> tuple[Labels, tuple[Tensor, Tensor]]:
        """Return checked labels [N], and digests [N] and features [N, D] of what they are of."""
        X = column(X)
        if not are_pictures(X):
            table, labels = validate_data(self, X, y, reset=fresh)
        else:
            table, labels = None, check_array(y, ensure_2d=False, dtype=None, input_name="y")
            if len(X) != len(labels):
                raise ValueError(f"there are {len(X)} pictures, but {len(labels)} labels")
            if fresh:
                made = ExactLearner.create(
                    self.backbone, image_size=self.image_size, cache=FeatureCache(), device=self.device
                )
                self.embed_ = made.embed
        check_classification_targets(labels)
        if fresh and table is not None:
            self.embed_ = None
        return labels, self._features(X, table)

    def _features(self, X: Any, table: NDArray[Any] | None) -> tuple[Tensor, Tensor]:
        """Return digests [N] and features [N, D] of pictures, or of a table, which is checked unless it was."""
        if self.embed_ is not None and not len(X):
            raise ValueError("there are no pictures: X is empty")
        if are_pictures(X) != (self.embed_ is not None):
            taught, given = ("a table", "pictures") if self.embed_ is None else ("pictures", "a table")
            raise ValueError(f"this classifier has learnt {taught}, not {given}")
        if self.embed_ is None:
            rows = validate_data(self, X, reset=False) if table is None else table
            features = torch.from_numpy(np.column_stack([rows, np.ones(len(rows))]).astype(np.float32))
            return row_digests(features), features
        parts = []
        for first in range(0, len(X), CHUNK):
            pixels = stored(list(X[first : first + CHUNK]), self.embed_.prepare.size)
            digests = pixel_digests(pixels)
            parts.append((digests, self.embed_(pixels, digests)))
        return torch.cat([digests for digests, _ in parts]), torch.cat([features for _, features in parts])

    def _identity(self, features: Tensor) -> str:
        return f"a table of {features.shape[1]}" if self.embed_ is None else str(self.embed_.identity)


def column(X: Any) -> Any:
    """Return the files or images [N] of a column [N, 1], as a selection of columns gives it; all else as it is."""
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.shape[1] != 1 or not len(X):
        return X
    return X[:, 0] if X.dtype.kind in "OUT" and not number(X[0, 0]) else X


def number(value: Any) -> bool:
    return isinstance(value, int | float | np.number)


def are_pictures(X: Any) -> bool:
    """Say whether X are pictures: files, Pillow images or arrays of uint8; else it is meant as a table."""
    if isinstance(X, np.ndarray) and X.ndim > 1:
        if X.ndim == 4 and X.dtype != np.uint8:
            raise ValueError(f"arrays of pictures are uint8, from 0 to 255; these are {X.dtype}")
        return X.ndim in (3, 4) and X.dtype == np.uint8
    if not isinstance(X, Sequence | np.ndarray) or isinstance(X, str | bytes) or not len(X):
        return False
    first = X[0]
    if isinstance(first, np.ndarray):
        return first.ndim in (2, 3) and first.dtype == np.uint8
    return isinstance(first, str | os.PathLike | Image.Image)


def row_digests(features: Tensor) -> Tensor:
    """Return a number [N] for each row, equal for equal rows."""
    found = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in features.numpy()]
    return torch.tensor([int.from_bytes(digest, "little", signed=True) for digest in found], dtype=torch.int64)
