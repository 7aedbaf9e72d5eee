"""What a model says of its pictures, on pictures that were made wrong on purpose."""

from dataclasses import replace

import pytest
import torch
from exactly import Pictures, pictures

from daydream.errors import UserError
from daydream.learner.advice import ask_next, doubts, outlook


def test_pictures_of_the_wrong_class_are_doubted_and_no_others() -> None:
    given = pictures((30,) * 4, apart=1.5)
    labels = given.labels.clone()
    wrong = torch.tensor([0, 35, 70])
    labels[wrong] = (labels[wrong] + 1) % 4
    found = [d for d in doubts(replace(given, labels=labels).taught()) if d.kind == "mislabelled"]
    assert len(found) >= 2
    for doubt in found:
        (place,) = (given.digests == doubt.digest).nonzero().squeeze(1).tolist()
        assert place in wrong.tolist()
        assert doubt.name == given.names[int(labels[place])]
        assert doubt.other == given.names[int(given.labels[place])]


def test_doubles_and_odd_pictures_are_found() -> None:
    given = pictures((20, 20), dim=24, apart=4.0)
    features = given.features.clone()
    features[1] = 1.0001 * features[30]  # of the other class
    draws = torch.Generator().manual_seed(4)
    features[5] = 10 * torch.randn(24, generator=draws)
    found = doubts(replace(given, features=features).taught())
    doubled = [d for d in found if d.kind == "doubled"]
    assert {d.digest for d in doubled} == set(given.digests[[1, 30]].tolist())
    assert {(d.name, d.other) for d in doubled} == {("a", "b"), ("b", "a")}
    odd = [d.digest for d in found if d.kind == "odd"]
    assert odd[0] == int(given.digests[5])
    assert len(odd) < 4


def test_nothing_is_doubted_of_pictures_that_are_as_they_should_be() -> None:
    assert doubts(pictures((20,) * 4, apart=2.0).taught()) == []


def test_the_pictures_to_label_next_lie_between_classes() -> None:
    given = pictures((30, 30), apart=2.0)
    model = given.taught()
    centres = [given.of(name).features.mean(0) for name in ("a", "b")]
    between = (centres[0] / centres[0].norm() + centres[1] / centres[1].norm()) * 4
    noise = 0.3 * torch.randn(3, 24, generator=torch.Generator().manual_seed(0))
    pile = torch.cat([given.features[:5], between + noise, given.features[-5:]])
    assert sorted(ask_next(model, pile, 3).tolist()) == [5, 6, 7]
    assert len(ask_next(model, pile, 50)) == len(pile)


def test_a_double_of_what_is_asked_waits() -> None:
    given = pictures((30, 30), apart=0.5)
    model = given.taught()
    one = pictures((1, 1), apart=0.5, draw=3).features
    pile = torch.cat([one[:1], one[:1], one[1:]])
    first = ask_next(model, pile, 2).tolist()
    assert 2 in first


def test_the_outlook_names_what_is_confused() -> None:
    given = pictures((25,) * 4, apart=3.0)
    features = given.features.clone()
    mixed = given.labels >= 2
    features[mixed] = pictures((25,) * 4, apart=3.0, draw=5).features[0] + torch.randn(
        int(mixed.sum()), 24, generator=torch.Generator().manual_seed(1)
    )
    found = outlook(replace(given, features=features).taught())
    assert found.confused == ("c", "d")
    assert found.accuracy is not None
    assert 60 < found.accuracy < 90
    assert "c and d are confused most" in found.sentence
    assert "\n" not in found.sentence


def test_the_gain_of_more_pictures_is_measured() -> None:
    hard = outlook(pictures((40,) * 4, dim=200, apart=0.2).taught())
    easy = outlook(pictures((40,) * 4, apart=4.0).taught())
    assert hard.gain > hard.doubt > 1
    assert hard.confused is not None
    assert f"brought these two {hard.gain:.0f} points (give or take {hard.doubt:.0f})" in hard.sentence
    assert easy.gain == 0
    assert easy.confused is None
    assert "no two classes are confused" in easy.sentence


def test_of_too_few_pictures_it_says_so() -> None:
    assert outlook(pictures((1, 1)).taught()).sentence.startswith("Too few pictures")
    assert outlook(pictures((9,)).taught()).accuracy is None
    assert doubts(pictures((1,)).taught()) == []


def test_a_class_of_one_picture_is_told_and_confused_with_none() -> None:
    """Without its only picture every classifier takes it for another."""
    found = outlook(pictures((1, 20, 20), apart=4.0).taught())
    assert (found.single, found.confused) == (1, None)
    assert "but nothing is known of 1 with one picture: give another of each first; no two" in found.sentence
    assert outlook(pictures((20, 20), apart=4.0).taught()).single == 0


def test_what_cannot_be_said_is_refused() -> None:
    sums: Pictures = pictures()
    with pytest.raises(UserError, match="keeps no features"):
        doubts(sums.taught(keep_features=False))
    with pytest.raises(UserError, match="one class has nothing to decide"):
        ask_next(pictures((5,)).taught(), torch.randn(3, 24), 1)
