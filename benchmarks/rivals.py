"""The classifiers one would try first, from scikit-learn, on the features that the exact learner gets.

Logistic regression sees standardised features and weighs classes alike; its strength C is chosen by three-fold
cross-validation (two where a class has few pictures). With fewer pictures than features both are rotated first, so that
the features beyond are zero: the solution is the same, and found in a tenth of the time.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

LOGISTIC, HOG = "logistic regression", "HOG + logistic regression"
STRENGTHS = (1e-2, 1e-1, 1e-3, 1e-4)  # of those that are equal the first is taken
Numbers = NDArray[Any]


class Logistic:
    """Logistic regression on standardised features, C by cross-validation."""

    def fit(self, x: Numbers, y: Numbers) -> "Logistic":
        """Fit features [N, D]."""
        self.scale = StandardScaler().fit(x)
        z = self.scale.transform(x)
        self.turn = np.linalg.svd(z, full_matrices=False)[2].T if len(z) < z.shape[1] else np.eye(z.shape[1])
        search = GridSearchCV(
            LogisticRegression(max_iter=200, class_weight="balanced"),
            {"C": STRENGTHS},
            cv=min(3, int(np.bincount(y).min())),
            scoring="balanced_accuracy",
        )
        self.search = search.fit(z @ self.turn, y)
        return self

    def turned(self, x: Numbers) -> Numbers:
        found: Numbers = self.scale.transform(x) @ self.turn
        return found

    def predict(self, x: Numbers) -> Numbers:
        found: Numbers = self.search.predict(self.turned(x))
        return found

    def predict_proba(self, x: Numbers) -> Numbers:
        found: Numbers = self.search.predict_proba(self.turned(x))
        return found


RIVALS: dict[str, Callable[[], Any]] = {
    LOGISTIC: Logistic,
    "shrinkage LDA": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    "nearest mean": lambda: make_pipeline(Normalizer(), NearestCentroid()),
    "5 nearest": lambda: KNeighborsClassifier(5, metric="cosine"),
    HOG: Logistic,
}
