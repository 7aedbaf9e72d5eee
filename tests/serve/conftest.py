"""A server with a tiny untrained network, and folders of tiny pictures."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from own_images import names, write_classes, write_pile

if TYPE_CHECKING:
    from serving import Asking

NUMBERS = itertools.count()

for needed in ("fastapi", "httpx", "onnxruntime", "python_multipart"):
    pytest.importorskip(needed)


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("photos")
    write_classes(top / "first", range(2), 8)
    write_classes(top / "second", range(2, 3), 8)
    write_classes(top / "more", range(2), 2, first=8)
    write_classes(top / "test", range(2), 4, test=True)
    write_pile(top / "pile", 8)
    return top


@pytest.fixture(scope="session")
def named() -> list[str]:
    return names(range(3))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder whose models are served."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[Any]:
    """A server for all tests of a module, which has a process at hand when the second begins."""
    from serving import client_of

    with client_of(place) as made:
        yield made


@pytest.fixture
def model(client: Any, place: Path, request: Any) -> "Asking":
    """A new model for each test."""
    from serving import TINY, Asking

    name = f"{re.sub('[^a-z]+', '-', request.node.originalname)[:50]}-{next(NUMBERS)}"
    answer = client.post("/api/models", json={"name": name, **TINY})
    assert answer.status_code == 201, answer.text
    return Asking(client, name, place)
