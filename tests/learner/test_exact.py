"""The exact learner: what it knows does not depend on how it came, and what it forgot was never there."""

import random
from collections.abc import Callable

import pytest
import torch
from exactly import Pictures, by_name, pictures
from torch import Tensor

from daydream.errors import UserError
from daydream.learner import exact
from daydream.learner.calibration import expected_calibration_error
from daydream.learner.exact import ExactModel

PROBE = torch.randn(20, 24, generator=torch.Generator().manual_seed(9))


def same(ours: ExactModel, theirs: ExactModel) -> None:
    assert sorted(ours.names) == sorted(theirs.names)
    assert torch.allclose(by_name(ours, PROBE), by_name(theirs, PROBE), atol=1e-5)
    ours_rejects, theirs_rejects = exact.rejection(ours, 0.1), exact.rejection(theirs, 0.1)
    assert ours_rejects == pytest.approx(theirs_rejects, abs=1e-5)
    accuracies = [dict(zip(model.names, model.judged.accuracy, strict=True)) for model in (ours, theirs)]
    assert accuracies[0] == accuracies[1]


def lessons(given: Pictures, parts: int, seed: int) -> list[Pictures]:
    """Split pictures at random, whatever their class, into lessons of different sizes."""
    draw = random.Random(seed)
    places = list(range(len(given.labels)))
    draw.shuffle(places)
    cuts = sorted(draw.sample(range(1, len(places)), parts - 1))
    return [given.where(torch.tensor(places[a:b])) for a, b in zip([0, *cuts], [*cuts, len(places)], strict=True)]


@pytest.mark.parametrize("seed", range(5))
def test_ten_lessons_in_any_order_and_split_are_one(seed: int) -> None:
    given, model = pictures(), None
    for lesson in lessons(given, 10, seed):
        model = lesson.taught(model)
    assert model is not None
    same(model, given.taught())


@pytest.mark.parametrize("seed", range(2))
def test_so_they_are_where_only_sums_are_kept(seed: int) -> None:
    given, model = pictures(), None
    for lesson in lessons(given, 10, seed):
        model = lesson.taught(model, keep_features=False)
    whole = given.taught(keep_features=False)
    assert model is not None
    assert model.known.features is None
    orders = [sorted(range(4), key=m.names.__getitem__) for m in (model, whole)]
    assert torch.allclose(exact.scores(model, PROBE)[:, orders[0]], exact.scores(whole, PROBE)[:, orders[1]], atol=1e-5)


def test_classes_come_in_their_order_of_arrival() -> None:
    given = pictures()
    model = given.of("a", "b").taught(given.of("c", "d").taught())
    assert model.names == ("c", "d", "a", "b")
    said = exact.scores(model, given.features).argmax(1)
    truth = torch.tensor([model.names.index(given.names[label]) for label in given.labels])
    assert float((said == truth).double().mean()) > 0.9


def test_a_forgotten_class_was_never_learnt() -> None:
    given = pictures()
    model = given.taught()
    forgot = exact.forget(model, exact.pictures_of(model, "b"))
    same(forgot, given.of("a", "c", "d").taught())
    assert forgot.earlier == ()
    gone = set(given.of("b").digests.tolist())
    assert not gone & set(forgot.known.digests.tolist())


def test_a_forgotten_picture_was_never_learnt_and_earlier_states_go_with_it() -> None:
    given = pictures()
    model = given.of("c", "d").taught(given.of("a", "b").taught())
    assert model.earlier
    forgot = exact.forget(model, exact.pictures_with(model, given.digests[3:5]))
    rest = torch.tensor([place for place in range(len(given.labels)) if place not in (3, 4)])
    same(forgot, given.where(rest).taught())
    assert forgot.earlier == ()
    for tensor in (forgot.known.digests, *(state.digests for state in forgot.earlier)):
        assert not bool(torch.isin(given.digests[3:5], tensor).any())


def test_sums_forget_pictures_that_are_given_again() -> None:
    given = pictures()
    model = given.taught(keep_features=False)
    gone = exact.pictures_of(model, "b")
    with pytest.raises(UserError, match="can only forget pictures that are given again"):
        exact.forget(model, gone)
    order = [given.digests.tolist().index(digest) for digest in model.known.digests[gone].tolist()]
    forgot = exact.forget(model, gone, given.features[torch.tensor(order)])
    never = given.of("a", "c", "d").taught(keep_features=False)
    assert forgot.names == never.names
    assert torch.allclose(exact.scores(forgot, PROBE), exact.scores(never, PROBE), atol=1e-5)


@pytest.mark.parametrize("keep", [True, False])
def test_undone_lessons_were_never_learnt(keep: bool) -> None:
    given = pictures()
    models = [given.of("a", "b").taught(keep_features=keep)]
    for name in ("c", "d"):
        models.append(given.of(name).taught(models[-1]))
    models.append(exact.rename(models[-1], "d", "z"))
    back = models[-1]
    for expected in reversed(models[:-1]):
        back = exact.undo(back)
        assert back.names == expected.names
        assert torch.allclose(exact.scores(back, PROBE), exact.scores(expected, PROBE), atol=1e-9)
    with pytest.raises(UserError, match="no earlier state to go back to"):
        exact.undo(back)


def test_only_the_last_three_states_are_kept() -> None:
    given, model = pictures((9, 9, 9, 9)), None
    for lesson in lessons(given, 6, 0):
        model = lesson.taught(model)
    assert model is not None
    assert len(model.earlier) == exact.KEPT_STATES
    assert all(state.features is None for state in model.earlier)  # no picture is held twice


def test_a_picture_learnt_again_changes_nothing() -> None:
    given = pictures()
    model = given.taught()
    assert given.where(torch.arange(5)).taught(model) is model
    assert len(given.where(torch.tensor([0, 0, 1, 1])).taught().known.labels) == 2


@pytest.mark.parametrize("count", [1, 4])
def test_one_class_or_one_picture_is_a_lesson(count: int) -> None:
    one = pictures((count,))
    model = one.taught()
    assert model.names == ("a",)
    assert torch.equal(exact.probabilities(model, PROBE), torch.ones(20, 1).double())
    assert model.judged.accuracy == (None,)
    assert exact.accuracy(model) is None
    more = pictures((3, 1))
    two = more.of("b").taught(more.of("a").taught())
    assert bool(torch.isfinite(exact.probabilities(two, PROBE)).all())
    assert two.judged.accuracy[1] is None


def test_renaming_changes_a_name_and_nothing_else() -> None:
    given = pictures()
    model = given.taught()
    renamed = exact.rename(model, "b", "zebra")
    assert renamed.names == ("a", "zebra", "c", "d")
    assert torch.allclose(exact.probabilities(renamed, PROBE), exact.probabilities(model, PROBE), atol=1e-9)


@pytest.mark.parametrize("keep", [True, False])
def test_merged_classes_are_learnt_as_one(keep: bool) -> None:
    given = pictures()
    merged = exact.merge(given.taught(keep_features=keep), ["d", "b"], "both")
    labels = torch.where(given.labels == 3, 1, given.labels)
    whole = Pictures(("a", "both", "c", ""), labels, given.digests, given.features)
    expected = whole.taught(keep_features=keep)
    assert merged.names == expected.names == ("a", "both", "c")
    assert torch.allclose(exact.scores(merged, PROBE), exact.scores(expected, PROBE), atol=1e-6)


def test_a_picture_of_two_merged_classes_is_kept_once() -> None:
    given = pictures((4, 4))
    digests = given.digests.clone()
    digests[4] = digests[0]
    features = given.features.clone()
    features[4] = features[0]
    model = Pictures(given.names, given.labels, digests, features).taught()
    assert len(model.known.labels) == 8
    assert len(exact.merge(model, ["a", "b"], "a").known.labels) == 7


def test_probabilities_mean_something() -> None:
    model, test = pictures((60,) * 4, apart=0.5).taught(), pictures((300,) * 4, apart=0.5, draw=1)
    p = exact.probabilities(model, test.features)
    right = float((p.argmax(1) == test.labels).double().mean())
    assert 0.5 < right < 0.95
    assert expected_calibration_error(p, test.labels) < 0.06
    said = exact.accuracy(model)
    assert said is not None
    assert abs(said - 100 * right) < 8


def test_how_known_a_picture_looks_is_its_highest_score_and_its_nearest_cosine() -> None:
    given = pictures((6, 7, 5))
    model, known = given.taught(), given.taught().known
    assert known.features is not None
    for feature, looks in zip(PROBE, exact.looks(model, PROBE).tolist(), strict=True):
        cosines = [float(torch.cosine_similarity(feature, own, dim=0)) for own in known.features]
        assert looks == pytest.approx(float(exact.scores(model, feature[None]).max()) + max(cosines), abs=1e-5)
    scores = exact.left_out(known).left_out
    for place, looks in enumerate(model.judged.confidences.tolist()):  # of a picture left out, all others are learnt
        others = [own for other, own in enumerate(known.features) if other != place]
        near = max(float(torch.cosine_similarity(known.features[place], own, dim=0)) for own in others)
        assert looks == pytest.approx(float(scores[place].max()) + near, abs=1e-5)


def test_classes_never_shown_look_less_known_than_their_probabilities_tell() -> None:
    train, test = pictures((30,) * 8, apart=0.6), pictures((60,) * 8, apart=0.6, draw=1)
    model = train.of(*"abcd").taught()
    known, strange = test.of(*"abcd").features, test.of(*"efgh").features

    def told_apart(values: Callable[[Tensor], Tensor]) -> float:
        return float((values(known)[:, None] > values(strange)[None]).double().mean())

    by_looks = told_apart(lambda features: exact.looks(model, features))
    assert by_looks > told_apart(lambda features: exact.probabilities(model, features).amax(1)) + 0.03


def test_a_rejection_costs_about_the_share_that_was_asked() -> None:
    model, test = pictures((60,) * 4).taught(), pictures((300,) * 4, draw=1)
    below = exact.looks(model, test.features) < exact.rejection(model, 0.2)
    assert 0.1 < float(below.double().mean()) < 0.3


def test_a_model_of_sums_is_calibrated_on_test_pictures_and_not_before() -> None:
    model, test = pictures((60,) * 4, apart=0.5).taught(keep_features=False), pictures((80,) * 4, apart=0.5, draw=1)
    for refused in (lambda: exact.probabilities(model, PROBE), lambda: exact.rejection(model, 0.1)):
        with pytest.raises(UserError, match="test pictures"):
            refused()
    judged = exact.calibrated(model, test.features, test.labels)
    again = pictures((300,) * 4, apart=0.5, draw=2)
    assert expected_calibration_error(exact.probabilities(judged, again.features), again.labels) < 0.06


@pytest.mark.parametrize("counts", [(1, 12, 12, 12), (1, 1, 12, 12), (1, 1, 1, 1)])
def test_a_class_of_one_picture_leaves_probabilities_that_mean_something(counts: tuple[int, ...]) -> None:
    """Its own error without it is the same whatever the strength: that drove it to the grid's end, and all to 1 / C."""
    model, test = pictures(counts, apart=2.0).taught(), pictures((50,) * 4, apart=2.0, draw=1)
    p = exact.probabilities(model, test.features)
    assert float((p.argmax(1) == test.labels).double().mean()) > 0.9
    assert float(-p.gather(1, test.labels[:, None]).log().mean()) < 0.5  # log 4 is 1.39
    told = exact.accuracy(model)
    assert told is None if set(counts) == {1} else told is not None and told > 90


def test_a_small_class_is_not_swallowed() -> None:
    counts = (200, 10, 10, 10)
    model, test = pictures(counts, apart=0.6).taught(), pictures((100,) * 4, apart=0.6, draw=1)
    right = (exact.scores(model, test.features).argmax(1) == test.labels).double()
    shares = [float(right[test.labels == label].mean()) for label in range(4)]
    assert min(shares) > 0.45


def mistakes(model: ExactModel, given: Pictures) -> list[tuple[str, object]]:
    none = torch.zeros(0, dtype=torch.int64)
    return [
        ("unknown class 'x'", lambda: exact.pictures_of(model, "x")),
        ("nothing would be left", lambda: exact.forget(model, torch.ones(len(model.known.labels), dtype=torch.bool))),
        ("1 of 1 pictures are not among", lambda: exact.pictures_with(model, torch.tensor([5]))),
        ("there is a class 'a' already", lambda: exact.rename(model, "b", "a")),
        ("unknown class 'x'", lambda: exact.rename(model, "x", "y")),
        ("two classes or more", lambda: exact.merge(model, ["a", "a"], "b")),
        ("there is a class 'c' already", lambda: exact.merge(model, ["a", "b"], "c")),
        ("must lie between 0 and 1", lambda: exact.rejection(model, 1.0)),
        ("needs a picture", lambda: exact.learn(model, "net", ("a",), none, none, torch.zeros(0, 24))),
        ("another network", lambda: exact.learn(model, "x", given.names, given.labels, given.digests, given.features)),
    ]


@pytest.mark.parametrize("number", range(10))
def test_mistakes_are_said_in_one_line(number: int) -> None:
    given = pictures()
    message, call = mistakes(given.taught(), given)[number]
    with pytest.raises(UserError, match=message) as caught:
        call()  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_pictures_all_alike_can_be_learnt() -> None:
    alike = Pictures(("a", "b"), torch.tensor([0, 0, 1, 1]), torch.arange(4), torch.ones(4, 24))
    p: Tensor = exact.probabilities(alike.taught(), PROBE)
    assert torch.allclose(p, torch.full((20, 2), 0.5).double())
