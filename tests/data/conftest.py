"""Tiny files for the data sets' tests; the cache of decoded images goes to a folder of its own."""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from daydream.errors import UserError

MakeImages = Callable[..., list[Path]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DAYDREAM_CACHE", str(folder))
    return folder


@pytest.fixture
def make_images() -> MakeImages:
    """Write `count` images of one grey value each; `first` is the first one's value, the next have one more."""

    def make(
        folder: Path, count: int, first: int = 0, size: tuple[int, int] = (64, 64), suffix: str = "png"
    ) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{folder.name}_{i}.{suffix}" for i in range(count)]
        for i, path in enumerate(paths):
            Image.fromarray(np.full((size[1], size[0], 3), first + i, np.uint8)).save(path)
        return paths

    return make


@pytest.fixture
def user_error() -> Callable[..., contextlib.AbstractContextManager[None]]:
    """Expect the user's mistake, told in one line that contains all the given words."""

    @contextlib.contextmanager
    def expect(*words: object) -> Iterator[None]:
        with pytest.raises(UserError) as caught:
            yield
        message = str(caught.value)
        assert "\n" not in message
        for word in words:
            assert re.search(re.escape(str(word)), message), f"{word!r} is not in: {message}"

    return expect
