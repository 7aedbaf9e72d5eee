"""A server to be killed: what it acknowledged must be there when it starts again, and its model whole."""

import contextlib
import os
import random
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from forked import Command, writing
from listening import family
from own_images import write_classes
from serving import TINY, files_of

from daydream.learner.exact_learner import ExactLearner

URL = "/api/models/m"
PATIENCE = 120.0


class Server:
    """`daydream serve` on a folder of models, the model m's file and pictures in it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.command = Command("serve", str(place), "--port", str(port), "--no-browser")
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)
        until(self._up, "the server does not start")

    def _up(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self.client.get("/api").status_code == 200
        return False

    def upload(self, folder: Path) -> Any:
        return self.client.post(f"{URL}/pictures", files=files_of(folder)).raise_for_status().json()

    def teach(self) -> None:
        """Have what waits taught, and wait until that is done."""
        self.client.post(f"{URL}/lessons", json={}).raise_for_status()
        until(lambda: self.model()["lesson"]["state"] != "running", "the lesson does not end")
        assert self.model()["lesson"]["state"] == "done", self.model()["lesson"]

    def do(self, what: str, folder: Path) -> None:
        """Do one of the things that are killed."""
        {"upload": partial(self.upload, folder), "lesson": self.teach, "undo": self.undo}[what]()

    def undo(self) -> None:
        self.client.post(f"{URL}/undo").raise_for_status()

    def model(self) -> Any:
        return self.client.get(URL).raise_for_status().json()

    def kept(self) -> dict[str, int]:
        """Return how many pictures are kept of each class."""
        return {row["name"]: row["kept"] for row in self.model()["classes"]}

    def held(self, number: int) -> None:
        """Send a signal to the server and to the process that teaches for it."""
        for process in family(self.command.process):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def kill(self) -> None:
        """End all at once: what one of them was writing stays half written."""
        self.held(signal.SIGSTOP)
        self.held(signal.SIGKILL)
        os.waitpid(self.command.process, 0)
        self.client.close()

    def killed_in(self, act: Callable[[], object], moment: Callable[[], bool]) -> bool:
        """Begin something and kill all at some moment; say whether it had been acknowledged by then."""

        def ask() -> None:
            with contextlib.suppress(httpx.HTTPError):
                act()

        asking = threading.Thread(target=ask)
        asking.start()
        while asking.is_alive() and not moment():
            time.sleep(0.0005)
        self.held(signal.SIGSTOP)
        done = not asking.is_alive()
        self.kill()
        asking.join()
        return done


def until(true: Callable[[], bool], complaint: str) -> None:
    last = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > last:
            raise TimeoutError(complaint)
        time.sleep(0.01)


def predictions(models: Path, photos: Path) -> list[list[float]]:
    """Return what the model's file says of all pictures."""
    paths = [str(path) for folder in ("two", "third") for path in sorted((photos / folder).glob("*/*.png"))]
    found: list[list[float]] = ExactLearner.load(models / "m.daydream").probabilities(paths).tolist()
    return found


@dataclass
class Serving:
    """Servers of copies of a model of two classes, to be taught a third."""

    place: Path
    dice: random.Random
    counted: Callable[[str, Path, bool], None]
    inside: float
    """Of the kills, how many are to fall into a write."""
    seconds: dict[str, float] = field(default_factory=dict)
    said: dict[int, list[list[float]]] = field(default_factory=dict)
    """What the model says of the pictures, by the number of its classes."""
    pictures: dict[int, dict[str, int]] = field(default_factory=dict)
    """How many pictures there are of each class."""

    @classmethod
    def made_ready(cls, place: Path, *given: Any) -> "Serving":
        """Teach a model that nobody kills, and keep it as it is after its first lesson."""
        serving = cls(place, *given)
        write_classes(serving.photos / "two", range(2), 10)
        write_classes(serving.photos / "third", range(2, 3), 10)
        (place / "models").mkdir()
        server = Server(place / "models")
        server.client.post("/api/models", json={"name": "m", **TINY}).raise_for_status()
        for count, folder in ((2, "two"), (3, "third")):
            serving.timed("upload", lambda folder=folder: server.upload(serving.photos / folder))
            serving.timed("lesson", server.teach)
            serving.said[count] = predictions(place / "models", serving.photos)
            serving.pictures[count] = server.kept()
            if count == 2:
                shutil.copytree(place / "models", place / "taught")
        serving.timed("undo", server.undo)
        server.kill()
        return serving

    @property
    def photos(self) -> Path:
        return self.place / "photos"

    def timed(self, what: str, act: Callable[[], object]) -> None:
        began = time.monotonic()
        act()
        self.seconds[what] = time.monotonic() - began

    def case(self, folder: Path) -> str:
        """Kill servers of one model in uploads, lessons and undos, and let one finish; return what is wrong with it."""
        models, known, may = folder / "models", self.pictures[2], {2}
        shutil.copytree(self.place / "taught", models)
        for _ in range(self.dice.randrange(2, 7)):
            server = Server(models)
            if wrong := self.wrong(server, known, may):
                server.kill()
                return wrong
            classes = len(predictions(models, self.photos)[0])
            what = self.dice.choice(("upload", "lesson", "undo"))
            if what != "upload":  # of an upload that was killed some pictures may be there, and make another lesson
                server.upload(self.photos / "third")
                known = self.pictures[3]
            if (what, classes) in (("undo", 2), ("lesson", 3)):
                (server.teach if classes == 2 else server.undo)()
            act = partial(server.do, what, self.photos / "third")
            last, inside = time.monotonic() + self.dice.uniform(0, self.seconds[what]), self.dice.random() < self.inside
            moment = (lambda: writing(models)) if inside else (lambda last=last: time.monotonic() > last)
            acknowledged = server.killed_in(act, moment)
            self.counted(f"server's {what}", models, acknowledged)
            if what == "upload":
                known, may = self.pictures[3] if acknowledged else known, {classes}
            else:
                after = 3 if what == "lesson" else 2
                may = {after} if acknowledged else {2, 3}
        return self.finished(Server(models), known, may)

    def finished(self, server: Server, known: dict[str, int], may: set[int]) -> str:
        wrong = self.wrong(server, known, may)
        if not wrong:
            server.upload(self.photos / "third")
            if any(row["waiting"] for row in server.model()["classes"]):
                server.teach()
            wrong = self.wrong(server, self.pictures[3], {3})
        server.kill()
        left = [path.name for path in server.place.rglob("*.part")]
        return wrong or (f"left over: {left}" if left else "")

    def wrong(self, server: Server, known: dict[str, int], may: set[int]) -> str:
        """Say what is wrong with a server that has begun: what it acknowledged must be there, and its model whole.

        The model may know so many classes, and must say what one says that nobody killed.
        """
        kept = server.kept()
        lost = {name: count for name, count in known.items() if kept.get(name, 0) < count}
        said = predictions(server.place, self.photos)
        if lost or len(said[0]) not in may:
            return f"lost: {lost}" if lost else f"its model knows {len(said[0])} classes and should know one of {may}"
        return "" if said == self.said[len(said[0])] else "its model says something else"
