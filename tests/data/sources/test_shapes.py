"""The embedded data set: the same bytes every time, no class told by anything but its outline."""

import hashlib
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from daydream.data import source
from daydream.data.sources.shapes import outlines, shapes, textures
from daydream.data.sources.shapes.shapes import LABELLED, PILE, Settings
from daydream.errors import UserError
from daydream.settings import from_dict

SMALL = Settings(classes=4, train_per_class=6, test_per_class=5, image_size=12, pile_size=70)


def pixels(image_set):
    return image_set.pixels.tensor


def test_images_have_the_shapes_asked_for():
    data = shapes.load(None, SMALL)
    assert pixels(data.train).shape == (24, 3, 12, 12)
    assert pixels(data.test).shape == (20, 3, 12, 12)
    assert pixels(data.train).dtype == torch.uint8
    assert data.train.labels.dtype == torch.int64
    assert data.train.counts().tolist() == [6] * 4
    assert data.test.counts().tolist() == [5] * 4
    assert data.class_names == ("triangle", "ring", "star5", "crescent") == data.test.class_names
    assert (data.mean, data.std, data.augmentation) == ((0.5,) * 3, (0.25,) * 3, "cifar")


def test_the_registry_finds_it_and_builds_its_settings():
    module = source("shapes")
    data = module.load(None, from_dict(module.Settings, {"classes": 2, "train_per_class": 1, "test_per_class": 1}))
    assert data.name == "shapes"
    assert data.train.image_size == (24, 24)


def test_the_same_settings_give_the_same_bytes():
    one, two = shapes.load(None, SMALL), shapes.load(None, SMALL)
    assert torch.equal(pixels(one.train), pixels(two.train))
    assert torch.equal(pixels(one.test), pixels(two.test))
    assert torch.equal(pixels(shapes.unlabeled(None, SMALL)), pixels(shapes.unlabeled(None, SMALL)))


def test_bytes_are_those_of_every_other_machine():
    """Change the digests only with a note in the changelog: results on `shapes` are comparable while they hold."""
    data, pile = shapes.load(None, SMALL), shapes.unlabeled(None, SMALL)
    digests = [hashlib.sha256(pixels(s).numpy().tobytes()).hexdigest()[:16] for s in (data.train, data.test, pile)]
    assert digests == ["52ad0432fe81fd80", "cca864f7f0e32a04", "98f36b227bf22ece"]


def test_a_class_does_not_depend_on_how_many_others_there_are():
    few = shapes.load(None, Settings(classes=2, train_per_class=3, test_per_class=2))
    many = shapes.load(None, Settings(classes=9, train_per_class=3, test_per_class=2))
    assert torch.equal(pixels(few.train), pixels(many.train)[:6])
    assert torch.equal(pixels(few.test), pixels(many.test)[:4])


@hypothesis_settings(max_examples=20, deadline=None)
@given(few=st.integers(1, 9), more=st.integers(0, 20), size=st.integers(8, 20))
def test_an_image_does_not_depend_on_how_many_follow(few, more, size):
    short = shapes.render("heart", few, size, 7, LABELLED)
    assert np.array_equal(short, shapes.render("heart", few + more, size, 7, LABELLED)[:few])


def test_rendering_in_chunks_changes_nothing(monkeypatch):
    whole = shapes.render("gear", 10, 16, 3, PILE)
    monkeypatch.setattr(shapes, "CHUNK_PIXELS", 3 * 16 * 16)
    assert np.array_equal(whole, shapes.render("gear", 10, 16, 3, PILE))


def test_pile_is_a_prefix_of_a_longer_pile():
    longer = shapes.unlabeled(None, Settings(classes=4, image_size=12, pile_size=200))
    assert torch.equal(pixels(shapes.unlabeled(None, SMALL)), pixels(longer)[:70])


def test_train_and_test_share_no_image():
    data = shapes.load(None, Settings(classes=5, train_per_class=40, test_per_class=40))
    train, test = (pixels(s).flatten(1).float() for s in (data.train, data.test))
    assert torch.cdist(train, test).min() > 100


def test_the_pile_shares_no_outline_with_the_classes(monkeypatch):
    seen = []
    monkeypatch.setattr(
        shapes, "render", lambda name, num, size, *_: seen.append(name) or np.zeros((num, 3, size, size), np.uint8)
    )
    settings = Settings(classes=20, image_size=8, pile_size=100)
    pile = shapes.unlabeled(None, settings)
    labelled = {outlines.name(i) for i in range(20)}
    assert len(seen) == len(set(seen)) == shapes.PILE_OUTLINES
    assert labelled.isdisjoint(seen)
    assert len(pile) == 100
    assert pile.class_names == ("unlabelled",)
    assert not pile.labels.any()


def test_the_pile_varies_more_than_the_classes():
    for name in ("turn", "squeeze", "texture", "saturation", "clutter", "occlusion", "light", "cast", "noise"):
        assert getattr(PILE, name) > getattr(LABELLED, name), name
    assert PILE.scale[0] < LABELLED.scale[0] < LABELLED.scale[1] < PILE.scale[1]
    assert PILE.contrast < LABELLED.contrast


def test_mean_colour_tells_no_class():
    """A nearest-centroid classifier on mean colour is right one time in ten, give or take three deviations."""
    data = shapes.load(None, Settings(classes=10, train_per_class=200, test_per_class=200, image_size=16))
    train, test = (pixels(s).float().mean(dim=(2, 3)) for s in (data.train, data.test))
    centroids = train.view(10, 200, 3).mean(dim=1)
    accuracy = (torch.cdist(test, centroids).argmin(1) == data.test.labels).float().mean().item()
    assert abs(accuracy - 0.1) < 3 * (0.1 * 0.9 / 2000) ** 0.5


def test_the_shape_stands_out_from_its_background():
    """The grey levels of the middle of a square and of the frame's corners differ in nearly every image."""
    images = shapes.render("square", 200, 24, 0, LABELLED).astype(float).mean(axis=1)
    middle = np.median(images[:, 8:16, 8:16], axis=(1, 2))
    corners = np.median(images[:, [0, 0, -1, -1, 1, -2], [0, -1, 0, -1, 1, -2]], axis=1)
    assert (np.abs(middle - corners) > 25).mean() > 0.9
    assert 0.3 < (middle > corners).mean() < 0.7


def coverage(name: str, angles: np.ndarray) -> np.ndarray:
    """Return the points [A, 48 * 48], 0 or 1, that an outline covers when turned by some angles."""
    x, y = textures.pixel_centres(48)
    u, v = textures.turned(x, y, np.radians(angles))
    tables = np.repeat(outlines.table(name)[None], len(angles), axis=0)
    return (textures.bilinear(tables, u, v) > 0).reshape(len(angles), -1).astype(np.float32)


def test_drawn_outlines_differ_pairwise_under_turns_and_mirroring():
    assert len(outlines.DRAWN) >= 40
    angles = np.arange(-50.0, 51.0, 10.0)
    upright, turned = {}, {}
    for name in outlines.DRAWN:
        planes = coverage(name, angles)
        upright[name] = planes[5]
        turned[name] = np.concatenate([planes, planes.reshape(-1, 48, 48)[:, :, ::-1].reshape(-1, 48 * 48)])
    for one, two in itertools.combinations(outlines.DRAWN, 2):
        shared = turned[two] @ upright[one]
        overlap = shared / (upright[one].sum() + turned[two].sum(axis=1) - shared)
        assert overlap.max() < 0.85, (one, two, overlap.max())


@pytest.mark.parametrize("name", [outlines.name(i) for i in range(len(outlines.DRAWN) + 40)])
def test_every_outline_fills_its_disc_sensibly(name):
    field = outlines.table(name)
    axis = np.linspace(-outlines.EXTENT, outlines.EXTENT, outlines.GRID)
    radius = np.hypot(*np.meshgrid(axis, axis))
    assert not (field[radius > 1.03] > 0).any()
    assert 0.12 < (field > 0).sum() / (radius < 1).sum() <= 0.95


def test_signed_distance_of_a_square():
    x, y = np.array([0.0, 2.0, 0.5, 2.0]), np.array([0.0, 0.0, 0.0, 2.0])
    distance = outlines.signed_distance(outlines.rect(-1, -1, 1, 1).vertices, x, y)
    assert np.allclose(distance, [1, -1, 0.5, -(2**0.5)])


def test_any_number_of_classes_works():
    data = shapes.load(None, Settings(classes=150, train_per_class=1, test_per_class=1, image_size=8))
    assert len(set(data.class_names)) == 150
    assert data.class_names[-1] == "blob-150"
    assert len(shapes.unlabeled(None, Settings(classes=150, image_size=8, pile_size=5))) == 5


@pytest.mark.parametrize("size", [8, 25, 64])
def test_any_size_works(size):
    images = shapes.render("star5", 2, size, 0, LABELLED)
    assert images.shape == (2, 3, size, size)
    assert images.std() > 10


@pytest.mark.parametrize(
    ("name", "value"),
    [("classes", 1), ("image_size", 7), ("train_per_class", 0), ("test_per_class", -1), ("pile_size", 0)],
)
def test_a_bad_setting_is_one_line_that_says_what_is_allowed(name, value):
    with pytest.raises(UserError, match=rf"'{name}' .* is {value}, but takes \d or more") as error:
        Settings(**{name: value})
    assert "\n" not in str(error.value)
