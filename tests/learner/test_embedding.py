"""Features of pictures: the same whatever comes along, and from disk where they were computed before."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from daydream.data.augment import Prepare
from daydream.data.images import Resident
from daydream.learner import embedding
from daydream.learner.embedding import BATCH, Embedder, FeatureCache, identity_of, pixel_digests
from daydream.nets.network import Network

PREPARE = Prepare((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), 16)
IMAGES = torch.randint(0, 256, (41, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def net(seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return Network("resnet10", "linear")


class Counting(Embedder):
    """Counts the pictures that pass the network."""

    computed_in_all = 0

    def computed(self, pixels: Resident) -> torch.Tensor:  # type: ignore[override]
        self.computed_in_all += len(pixels.tensor)
        return super().computed(pixels)


def test_a_feature_does_not_depend_on_what_comes_along() -> None:
    embed = Embedder(net(), PREPARE)
    whole = embed(Resident(IMAGES))
    assert whole.shape == (41, 64)
    assert whole.dtype == torch.float32
    alone = torch.cat([embed(Resident(IMAGES[i : i + 1])) for i in (0, 5, BATCH, BATCH + 8)])
    assert torch.allclose(alone, whole[[0, 5, BATCH, BATCH + 8]], atol=1e-6)
    order = torch.randperm(len(IMAGES), generator=torch.Generator().manual_seed(1))
    assert torch.allclose(embed(Resident(IMAGES[order])), whole[order], atol=1e-6)
    assert embed(Resident(IMAGES[:0])).shape == (0, 64)


def test_pictures_seen_before_are_not_computed_again(tmp_path: Path) -> None:
    embed = Counting(net(), PREPARE, FeatureCache(tmp_path / "features"))
    first = embed(Resident(IMAGES[:20]))
    assert embed.computed_in_all == 20
    second = Counting(net(), PREPARE, FeatureCache(tmp_path / "features"))
    found = second(Resident(IMAGES[5:25]))
    assert second.computed_in_all == 5
    assert torch.equal(found[:15], first[5:])
    assert torch.allclose(found, Embedder(net(), PREPARE)(Resident(IMAGES[5:25])), atol=1e-6)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_two_threads_give_what_one_gives_and_leave_two(two_threads: None) -> None:
    embed = Embedder(net(), PREPARE)
    both = embed(Resident(IMAGES))
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert torch.equal(embed(Resident(IMAGES)), both)


def test_features_of_another_network_or_preparation_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Prepare((0.4, 0.5, 0.5), (0.5, 0.5, 0.5), 16)
    found = {identity_of(net(), PREPARE), identity_of(net(1), PREPARE), identity_of(net(), other)}
    assert identity_of(net(), PREPARE) in found
    monkeypatch.setattr(embedding, "VERSION", 99)
    assert len({*found, identity_of(net(), PREPARE)}) == 4


def test_a_head_that_grows_changes_no_feature() -> None:
    grown = net()
    before = identity_of(grown, PREPARE)
    grown.head.grow(3)
    assert identity_of(grown, PREPARE) == before


def test_the_cache_is_its_owners_alone_and_forgets(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "features")
    embed = Embedder(net(), PREPARE, cache)
    features = embed(Resident(IMAGES[:8]))
    (file,) = (tmp_path / "features").iterdir()
    assert stat.S_IMODE((tmp_path / "features").stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    digests, raw = pixel_digests(Resident(IMAGES[:8])), features[3].numpy().tobytes()
    assert raw[:64] in file.read_bytes()
    cache.forget(digests[3:4])
    assert set(cache.get(embed.identity, digests)) == set(digests.tolist()) - {int(digests[3])}
    assert raw[:64] not in file.read_bytes()


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100])
def test_a_cache_that_cannot_be_used_costs_nothing_but_time(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "features"
    folder.mkdir()
    (folder / f"{identity_of(net(), PREPARE)}.features").write_bytes(content)
    expected = Embedder(net(), PREPARE)(Resident(IMAGES[:4]))
    assert torch.equal(Embedder(net(), PREPARE, FeatureCache(folder))(Resident(IMAGES[:4])), expected)
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    assert torch.equal(Embedder(net(), PREPARE, FeatureCache(blocked))(Resident(IMAGES[:4])), expected)


def test_equal_pixels_have_equal_digests() -> None:
    digests = pixel_digests(Resident(torch.cat([IMAGES[:3], IMAGES[:1]])))
    assert digests[0] == digests[3]
    assert len(digests.unique()) == 3
