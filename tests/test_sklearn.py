"""The exact learner as a scikit-learn classifier: its own checks, pictures in every form, and lessons in any order."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from own_images import drawn, with_random_weights
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from daydream import ExactLearner
from daydream.sklearn import Classifier

TINY = {"image_size": 32}


@parametrize_with_checks([Classifier()])
def test_scikit_learns_own_checks(estimator: Classifier, check: Any) -> None:
    """All of them, on tables of features; scikit-learn itself skips what needs pandas or SCIPY_ARRAY_API."""
    check(estimator)


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Return 30 pictures [N, H, W, 3] of three classes, mixed, and their names."""
    with_random_weights(monkeypatch)
    train = drawn(16).train
    index = (train.labels < 3).nonzero().squeeze(1).reshape(3, -1)[:, :10].T.flatten()
    names = np.array([train.class_names[label] for label in train.labels[index].tolist()])
    return train.pixels.fetch(index).permute(0, 2, 3, 1).contiguous().numpy(), names


@pytest.fixture(scope="module")
def table() -> tuple[NDArray[np.float64], NDArray[Any]]:
    found: tuple[NDArray[np.float64], NDArray[Any]] = make_blobs(90, 5, centers=4, cluster_std=3.0, random_state=1)
    return found


def test_lessons_in_any_order_and_split_are_all_at_once(table: tuple[NDArray[np.float64], NDArray[Any]]) -> None:
    x, y = table
    whole = Classifier().fit(x, y)
    draws = np.random.default_rng(0)
    for _ in range(5):
        parts = np.split(draws.permutation(len(x)), np.sort(draws.choice(np.arange(1, len(x)), 9, replace=False)))
        model = Classifier()
        for part in parts:
            model.partial_fit(x[part], y[part])
        assert model.classes_.tolist() == whole.classes_.tolist()
        np.testing.assert_allclose(model.predict_proba(x), whole.predict_proba(x), atol=1e-8)


def test_classes_still_to_come_have_no_probability(table: tuple[NDArray[np.float64], NDArray[Any]]) -> None:
    x, y = table
    model = Classifier().partial_fit(x[y < 2], y[y < 2], classes=[0, 1, 2, 7])
    assert model.classes_.tolist() == [0, 1, 2, 7]
    found = model.predict_proba(x)
    assert (found[:, 2:] == 0).all()
    np.testing.assert_allclose(found.sum(1), 1)
    model.partial_fit(x[y >= 2], y[y >= 2])
    assert model.classes_.tolist() == [0, 1, 2, 3, 7]
    assert model.score(x, y) == Classifier().fit(x, y).score(x, y) > 0.7


def test_length_tells_in_a_table() -> None:
    """Classes that lie in one direction, near and far: alike at unit length."""
    x = np.array([[1.0, 1.0], [1.1, 1.1], [0.9, 0.9], [9.0, 9.0], [9.5, 9.5], [8.5, 8.5]])
    y = ["near"] * 3 + ["far"] * 3
    assert Classifier().fit(x, y).predict(x).tolist() == y


def test_pictures_in_every_form_give_the_learners_answers(
    pictures: tuple[NDArray[np.uint8], NDArray[Any]], tmp_path: Path
) -> None:
    arrays, names = pictures
    paths = []
    for number, (array, name) in enumerate(zip(arrays, names, strict=True)):
        (tmp_path / name).mkdir(exist_ok=True)
        paths.append(tmp_path / name / f"{number}.png")
        Image.fromarray(array).save(paths[-1])
    model = Classifier(**TINY).fit(arrays, names)
    expected = model.predict_proba(arrays[:4])
    forms = [paths, list(map(str, paths)), np.array(list(map(str, paths))), [Image.open(path) for path in paths]]
    column = np.array(list(map(str, paths)), dtype=object)[:, None]  # as a selection of columns gives it
    for x in [*forms, list(arrays), column]:
        again = clone(model).fit(x, names.tolist())
        np.testing.assert_allclose(again.predict_proba(x[:4]), expected, atol=1e-6)
    learner = ExactLearner.create(**TINY)
    learner.learn(tmp_path)
    found = learner.probabilities(paths[:4]).numpy()
    order = [learner.names.index(name) for name in model.classes_]
    np.testing.assert_allclose(found[:, order], expected, atol=1e-5)
    assert model.score(arrays, names) > 0.5
    unpickled = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(unpickled.predict_proba(paths[:4]), expected, atol=1e-6)


def test_it_goes_into_pipelines_and_searches(
    pictures: tuple[NDArray[np.uint8], NDArray[Any]], table: tuple[NDArray[np.float64], NDArray[Any]]
) -> None:
    search = GridSearchCV(make_pipeline(Classifier()), {"classifier__image_size": [16, 32]}, cv=2)
    search.fit(*pictures)
    assert search.best_params_["classifier__image_size"] in (16, 32)
    assert search.predict(pictures[0]).shape == (30,)
    assert cross_val_score(make_pipeline(StandardScaler(), Classifier()), *table).mean() > 0.7


def test_mistakes_are_said(pictures: tuple[NDArray[np.uint8], NDArray[Any]], tmp_path: Path) -> None:
    arrays, names = pictures
    model = Classifier(**TINY).fit(arrays, names)
    with pytest.raises(ValueError, match="has learnt pictures, not a table"):
        model.predict(np.zeros((2, 3)))
    for nothing in ([], np.zeros((0, 16, 16, 3), np.uint8)):
        with pytest.raises(ValueError, match="there are no pictures: X is empty"):
            model.predict_proba(nothing)
    with pytest.raises(ValueError, match="are uint8, from 0 to 255; these are float64"):
        model.predict(arrays / 255)
    with pytest.raises(ValueError, match="there are 30 pictures, but 29 labels"):
        model.fit(arrays, names[1:])
    with pytest.raises(ValueError, match="NaN"):
        model.fit(arrays[:2], [1.0, float("nan")])
    with pytest.raises(ValueError, match="has learnt a table, not pictures"):
        Classifier().fit(np.eye(3), [0, 1, 2]).partial_fit(arrays, names)
