"""The feed: which images, labels, fields and random numbers a step sees, wherever the pixels live."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from daydream import rng
from daydream.data.augment import CropFlip, Plain, Prepare
from daydream.data.images import ImageSet, Pixels, Resident
from daydream.engine.feed import Feed, StreamFeed, shuffled
from daydream.protocol.memory import Budget, Memory
from daydream.stages.stage import Batch, Batches, Samples, Stage, State

CPU = torch.device("cpu")
PREPARE = Prepare((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255), 8)  # leaves pixel values as they are
COUNT, SIZE, STEPS = 10, 4, 5


@dataclass(frozen=True)
class Elsewhere:
    """Pixels that are not resident: they come one batch after the other."""

    tensor: Tensor
    fetched: list[list[int]] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        n, c, h, w = self.tensor.shape
        return n, c, h, w

    @property
    def device(self) -> torch.device:
        return CPU

    def fetch(self, index: Tensor) -> Tensor:
        self.fetched.append(index.tolist())
        return self.tensor[index]

    def batches(self, rows: Tensor) -> Iterator[Tensor]:
        return (self.fetch(row) for row in rows)

    def select(self, index: Tensor) -> "Elsewhere":
        return Elsewhere(self.tensor[index])

    def to(self, device: torch.device) -> "Elsewhere":
        return self


def pictures() -> Tensor:
    """Image i is all of value 10 i."""
    return (10 * torch.arange(COUNT)).to(torch.uint8).view(-1, 1, 1, 1).repeat(1, 3, 8, 8)


def image_set(pixels: Pixels) -> ImageSet:
    return ImageSet(pixels, torch.arange(COUNT) % 3, ("a", "b", "c"))


def noise(generator: torch.Generator, steps: int, size: int) -> Tensor:
    return torch.randn(steps, size, 2, generator=generator)


def plain_batches(pixels: Pixels | None = None) -> Batches:
    images = image_set(pixels or Resident(pictures()))
    fields = {"old": torch.arange(COUNT * 2.0).view(COUNT, 2)}
    return Batches(images=images, size=SIZE, augment=Plain(PREPARE), fields=fields, noise={"dice": noise})


def random_batches(pixels: Pixels) -> Batches:
    """Random pixels, cropped, mirrored and jittered."""
    return Batches(images=image_set(pixels), size=SIZE, augment=CropFlip(PREPARE), noise={"dice": noise})


def random_pictures() -> Tensor:
    return torch.randint(0, 256, (COUNT, 3, 8, 8), generator=torch.Generator().manual_seed(1)).to(torch.uint8)


def feed_of(batches: Batches, place: tuple[str | int, ...] = (0, "base"), seed: int = 1) -> Feed:
    stage = Stage(
        name="s",
        epochs=3,
        steps=STEPS,
        streams=lambda state: {"new": batches},
        scalars={"ramp": lambda c: c.epoch * 100 + c.step + c.steps / 10 + c.epochs / 100},
    )
    return Feed(stage, State(Memory.empty(Budget("total", 0)), CPU), place, seed)


def read_epoch(feed: Feed, epoch: int, first: int = 0) -> list[Batch]:
    feed.load(epoch, first)
    found = []
    for step in range(first, STEPS):
        feed.advance()
        batch = feed.read(torch.tensor([step]))
        # What is not resident is read into one buffer: keep the images of this step.
        found.append(Batch({"new": copied(batch["new"])}, batch.scalars))
    return found


def copied(samples: Samples) -> Samples:
    return Samples(samples.images.clone(), samples.labels, samples.index, samples.fields)


def same(a: Samples, b: Samples) -> bool:
    return (
        torch.equal(a.images, b.images)
        and torch.equal(a.labels, b.labels)
        and torch.equal(a.index, b.index)
        and set(a.fields) == set(b.fields)
        and all(torch.equal(a.fields[k], b.fields[k]) for k in a.fields)
    )


# --- dealing ---------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(1, 8), st.integers(1, 8), st.integers(0, 1000))
def test_every_image_is_dealt_once_a_round(count: int, steps: int, size: int, seed: int) -> None:
    index = shuffled(torch.Generator().manual_seed(seed), count, steps, size)
    assert index.shape == (steps, size)
    dealt = index.flatten().tolist()
    for start in range(0, len(dealt), count):
        hand = dealt[start : start + count]
        assert len(set(hand)) == len(hand)
        assert set(hand) <= set(range(count))


def test_rounds_differ() -> None:
    index = shuffled(torch.Generator().manual_seed(0), 20, 2, 20)
    assert index[0].tolist() != index[1].tolist()
    assert index[0].tolist() != list(range(20))


# --- what a step sees ------------------------------------------------------------------------------------------------


def test_a_batch_holds_the_images_labels_and_rows_of_its_index() -> None:
    for batch in read_epoch(feed_of(plain_batches()), 0):
        samples = batch["new"]
        assert samples.images.shape == (SIZE, 3, 8, 8)
        for position, i in enumerate(samples.index.tolist()):
            torch.testing.assert_close(samples.images[position], torch.full((3, 8, 8), 10.0 * i))
            assert samples.labels[position] == i % 3
            assert samples.fields["old"][position].tolist() == [2 * i, 2 * i + 1]


def test_index_and_noise_are_those_of_the_named_generators() -> None:
    found = read_epoch(feed_of(plain_batches(), place=(2, "increment"), seed=7), 1)
    names = (2, "increment", 1, "new")
    index = shuffled(rng.generator(7, "batches", *names), COUNT, STEPS, SIZE)
    dice = noise(rng.generator(7, "noise/dice", *names), STEPS, SIZE)
    for step, batch in enumerate(found):
        assert torch.equal(batch["new"].index, index[step])
        assert torch.equal(batch["new"].fields["dice"], dice[step])


def test_augmentation_takes_its_own_step_of_its_own_generator() -> None:
    pixels = random_pictures()
    found = read_epoch(feed_of(random_batches(Resident(pixels)), place=(2, "x"), seed=7), 1)
    draws = CropFlip(PREPARE).draw(rng.generator(7, "augment", 2, "x", 1, "new"), STEPS, SIZE)
    for step, batch in enumerate(found):
        row = {name: values[step] for name, values in draws.items()}
        assert torch.equal(batch["new"].images, CropFlip(PREPARE)(pixels[batch["new"].index], row))


def test_an_epochs_draws_repeat_and_differ_from_any_other() -> None:
    def indices(epoch: int, place: tuple[str | int, ...] = (0, "base"), seed: int = 1) -> tuple[int, ...]:
        batches = read_epoch(feed_of(plain_batches(), place, seed), epoch)
        return tuple(i for batch in batches for i in batch["new"].index.tolist())

    assert indices(1) == indices(1)
    others = [indices(0), indices(2), indices(1, (1, "base")), indices(1, (0, "other")), indices(1, seed=2)]
    assert len({indices(1), *others}) == 6


def test_a_feed_read_before_gives_what_a_fresh_one_gives() -> None:
    """Tables are refilled in place: a captured step keeps reading the same memory."""
    feed = feed_of(plain_batches())
    read_epoch(feed, 0)
    where = {name: table.data_ptr() for name, table in feed.streams["new"].tables.items()}
    again = read_epoch(feed, 2)
    assert {name: table.data_ptr() for name, table in feed.streams["new"].tables.items()} == where
    fresh = read_epoch(feed_of(plain_batches()), 2)
    assert all(same(a["new"], b["new"]) for a, b in zip(again, fresh, strict=True))


def test_a_streams_own_draw_is_followed() -> None:
    def by_hand(generator: torch.Generator, steps: int, before: Mapping[str, Tensor]) -> Tensor:
        assert before == {}
        return torch.arange(steps)[:, None].repeat(1, SIZE)

    images = image_set(Resident(pictures()))
    batches = Batches(images=images, size=SIZE, augment=Plain(PREPARE), draw=by_hand)
    for step, batch in enumerate(read_epoch(feed_of(batches), 0)):
        assert batch["new"].index.tolist() == [step] * SIZE


def test_a_stream_may_follow_those_listed_before_it() -> None:
    def next_of_new(generator: torch.Generator, steps: int, before: Mapping[str, Tensor]) -> Tensor:
        return (before["new"] + 1) % COUNT

    images = image_set(Resident(pictures()))
    partner = Batches(images=images, size=SIZE, augment=Plain(PREPARE), draw=next_of_new)
    stage = Stage(name="s", epochs=1, steps=STEPS, streams=lambda state: {"new": plain_batches(), "partner": partner})
    feed = Feed(stage, State(Memory.empty(Budget("total", 0)), CPU), (0, "base"), 1)
    feed.load(0)
    for step in range(STEPS):
        batch = feed.read(torch.tensor([step]))
        assert torch.equal(batch["partner"].index, (batch["new"].index + 1) % COUNT)
    assert feed.images_per_step == 2 * SIZE


def test_a_draw_of_the_wrong_shape_is_refused() -> None:
    images = image_set(Resident(pictures()))
    batches = Batches(
        images=images, size=SIZE, augment=Plain(PREPARE), draw=lambda g, steps, _: torch.zeros(steps, 1).long()
    )
    with pytest.raises(AssertionError):
        feed_of(batches).load(0)


def test_scalars_follow_the_clock() -> None:
    feed = feed_of(plain_batches())
    for epoch in (0, 2):
        values = [float(batch.scalars["ramp"]) for batch in read_epoch(feed, epoch)]
        assert values == pytest.approx([epoch * 100 + step + 0.5 + 0.03 for step in range(STEPS)])
    assert feed.images_per_step == SIZE


# --- pixels that are elsewhere ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1, 3])
def test_pixels_elsewhere_give_the_same_samples(first: int) -> None:
    resident = read_epoch(feed_of(random_batches(Resident(random_pictures()))), 1, first)
    pixels = Elsewhere(random_pictures())
    elsewhere = read_epoch(feed_of(random_batches(pixels)), 1, first)
    assert len(elsewhere) == STEPS - first
    assert all(same(a["new"], b["new"]) for a, b in zip(resident, elsewhere, strict=True))
    assert pixels.fetched == [batch["new"].index.tolist() for batch in elsewhere], "nothing is fetched in vain"


def test_starting_late_sees_what_the_whole_epoch_saw() -> None:
    for pixels in (Resident(random_pictures()), Elsewhere(random_pictures())):
        whole = read_epoch(feed_of(random_batches(pixels)), 2)
        late = read_epoch(feed_of(random_batches(pixels)), 2, first=3)
        assert all(same(a["new"], b["new"]) for a, b in zip(whole[3:], late, strict=True))


def test_pixels_elsewhere_land_in_one_place_epoch_after_epoch() -> None:
    feed = feed_of(plain_batches(Elsewhere(pictures())))
    read_epoch(feed, 0)
    stream = feed.streams["new"]
    assert stream.buffer is not None
    where = stream.buffer.data_ptr()
    found = read_epoch(feed, 1)
    assert stream.buffer.data_ptr() == where
    expected = read_epoch(feed_of(plain_batches()), 1)
    assert all(same(a["new"], b["new"]) for a, b in zip(found, expected, strict=True))


def test_an_epoch_cut_short_does_not_leak_into_the_next() -> None:
    feed = feed_of(plain_batches(Elsewhere(pictures())))
    feed.load(0)
    feed.advance()
    found = read_epoch(feed, 1)
    expected = read_epoch(feed_of(plain_batches()), 1)
    assert all(same(a["new"], b["new"]) for a, b in zip(found, expected, strict=True))


def test_resident_pixels_need_no_buffer() -> None:
    stream = StreamFeed(plain_batches(), CPU)
    stream.load((0,), 1, STEPS, 0, CPU)
    stream.advance()
    assert stream.buffer is None
