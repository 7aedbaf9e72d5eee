"""A server in this process, and what is asked of it."""

import contextlib
import io
import socket
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from fastapi.testclient import TestClient

from daydream.serve.app import make_app
from daydream.serve.guard import Gate
from daydream.serve.models import Models

OWN = "http://127.0.0.1:8765"
TINY = {"backbone": "resnet10", "image_size": 16}


class Asking:
    """A client of one model."""

    def __init__(self, client: TestClient, name: str, folder: Path) -> None:
        self.client, self.name, self.folder = client, name, folder

    def __call__(self, method: str, path: str = "", expect: int = 200, **given: Any) -> Any:
        answer = self.client.request(method, f"/api/models/{self.name}{path}", **given)
        assert answer.status_code == expect, answer.text
        return answer.json()

    def upload(self, folder: Path, expect: int = 201, **query: Any) -> Any:
        return self("POST", "/pictures", expect, files=files_of(folder), params=query)

    def teach(self, state: str = "done") -> Any:
        self("POST", "/lessons", 202, json={})
        return self.ended(state)

    def ended(self, state: str = "done") -> Any:
        until = time.monotonic() + 60
        while (lesson := self("GET")["lesson"])["state"] == "running" and time.monotonic() < until:
            time.sleep(0.05)
        assert lesson["state"] == state, lesson
        return lesson

    def settled(self) -> None:
        """Wait until no lesson is under way."""
        until = time.monotonic() + 60
        while ((self("GET")["lesson"]) or {"state": "done"})["state"] == "running" and time.monotonic() < until:
            time.sleep(0.05)

    @property
    def beside(self) -> Path:
        return self.folder / f"{self.name}.daydream.pictures"

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.daydream"


def files_of(folder: Path) -> list[tuple[str, tuple[str, bytes]]]:
    """Return the pictures under a folder as a form's files, named by their paths."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [("files", (str(path.relative_to(folder)), path.read_bytes())) for path in paths]


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def client_of(place: Path, gate: Gate | None = None, keep: bool = True, raising: bool = True) -> TestClient:
    return TestClient(make_app(Models(place, keep), gate or Gate()), base_url=OWN, raise_server_exceptions=raising)


def began_with(folder: Path, program: str) -> Path:
    """Return a folder for the path of modules, by which a process that teaches begins with a program."""
    folder.mkdir()
    only = "import sys\nif 'daydream.serve.worker' in sys.orig_argv:\n"
    (folder / "sitecustomize.py").write_text(only + "".join(f"    {line}\n" for line in program.splitlines()))
    return folder


@contextlib.contextmanager
def listening(place: Path, keep: bool = True, **given: Any) -> Iterator[str]:
    """Serve a folder of models over HTTP from a thread; yield the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    app = make_app(Models(place, keep), Gate(**given))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
