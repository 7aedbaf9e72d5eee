"""The models that are served: each with its pictures, a worker process, and what the page sees of it."""

import asyncio
import contextlib
import re
import tempfile
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from daydream.atomic import signature
from daydream.serve import uploads
from daydream.serve.jobs import Died, Lesson, Stopped, Worker, Workers
from daydream.serve.journal import Journal, interrupted
from daydream.serve.pictures import BESIDE, Kept, Pictures, digest_of_id, id_of
from daydream.serve.predictor import Predictor
from daydream.serve.refusal import Refusal

SUFFIX = ".daydream"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _-]{0,62}")
RESTED = 20.0
"""Seconds between two looks at idle processes."""
PICTURE_SECONDS = 0.006
"""What decoding and keeping a picture's feature take beside the network."""


@dataclass
class View:
    """What the server knows of a model file."""

    about: dict[str, Any]
    predictor: Predictor | None = None
    names: dict[str, list[str]] = field(default_factory=dict)
    """Of each picture that was learnt, by ID, its classes."""

    @classmethod
    def of(cls, about: dict[str, Any], raw: dict[str, bytes], before: "View | None") -> "View":
        told = about["names"] and about["temperature"] is not None
        predictor = Predictor(about, raw, before.predictor if before is not None else None) if told else None
        found: dict[str, list[str]] = {}
        if predictor is not None:
            for digest, label in zip(predictor.ids.tolist(), predictor.labels.tolist(), strict=True):
                found.setdefault(id_of(digest), []).append(predictor.names[label])
        return cls(about, predictor, found)

    @property
    def accuracies(self) -> dict[str, float | None]:
        return {row["name"]: (row["accuracy"] or [None])[-1] for row in self.about["classes"]}


class Served:
    """One model."""

    def __init__(self, path: Path, made: dict[str, Any], keep: bool, workers: Workers) -> None:
        self.path, self.keep, self.workers = path, keep, workers
        self.pictures = Pictures(path)
        self.new = Journal(self.pictures.folder / "new.json")
        self.journal = Journal(self.pictures.folder / "journal.json")
        self.made = made or (self.new.left() or {}).get("made") or {}
        self.turn = asyncio.Lock()
        self.teacher: Worker | None = None
        self.opening = asyncio.Lock()
        self.changing = asyncio.Lock()
        self.view: View | None = None
        self.lesson: Lesson | None = None
        self.notices: list[str] = []

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(SUFFIX)

    @property
    def network(self) -> str | None:
        """Return which network the server has at hand."""
        return self.view.predictor.identity if self.view is not None and self.view.predictor is not None else None

    def predictor(self, view: View) -> Predictor:
        """Return what predicts, or say why nothing does."""
        if view.predictor is None and view.about["names"]:
            raise Refusal(409, "this model keeps no features: measure it on test pictures first, for its probabilities")
        if view.predictor is None:
            raise Refusal(409, "the model knows no class yet: teach it first")
        return view.predictor

    @property
    def busy(self) -> bool:
        return self.changing.locked()

    async def seen(self) -> View:
        """Return what the file says now; another program may have changed it."""
        async with self.opening:
            if self.view is None:
                await self._open()
            elif not self.busy and signature(self.path) != self.view.about["file"]:
                gone = not self.path.exists()
                await self._look()
                self.notices.append(
                    f"{self.path.name} is gone: another program took it away. A lesson makes it anew."
                    if gone
                    else f"{self.path.name} was changed by another program; this is how it is now."
                )
            assert self.view is not None
            return self.view

    async def _open(self) -> None:
        left = self.journal.left()
        await asyncio.to_thread(self.pictures.open)
        await self._look()
        assert self.view is not None
        if left is not None:
            self.notices.append(interrupted(left, left.get("file") != self.view.about["file"]))
            names = left.get("names")
            if left["what"] == "forget" and isinstance(names, list):
                self._drop({name for name in names if name not in self.view.about["names"]})
            self.journal.end()

    async def _look(self) -> None:
        about, raw = await self._asked("open")
        self._shown(View.of(about, raw, self.view))

    def _shown(self, view: View) -> None:
        """Take in how the model is now: pictures follow where the command line moved or renamed what they are of."""
        self.view = view
        elsewhere: dict[str, list[str]] = {}
        for kept in self.pictures.all().values():
            names = view.names.get(kept.id)
            if names and kept.label not in names:
                elsewhere.setdefault(names[0], []).append(kept.id)
        for name, ids in elsewhere.items():
            with contextlib.suppress(OSError):  # a class of the command line whose name can be no folder
                self.pictures.move(ids, name)

    def _drop(self, names: set[str]) -> None:
        self.pictures.remove([kept.id for kept in self.pictures.all().values() if kept.label in names])

    async def _asked(self, what: str, **words: Any) -> tuple[Any, dict[str, bytes]]:
        try:
            async with self.turn:
                worker = self.workers.idle(self.path)
                return await worker.ask(self.path, self.made, what, have=self.network, **words)
        except Died as error:
            line = "the process that holds the model ended (out of memory?); the model file is as it was: try again"
            raise Refusal(500, line) from error

    async def asked(self, what: str, **words: Any) -> Any:
        """Have the worker answer a question, unless a lesson keeps it."""
        self.check_idle()
        view = await self.seen()
        if not view.about["names"]:
            raise Refusal(409, "the model knows no class yet: teach it first")
        return (await self._asked(what, **words))[0]

    def check_idle(self) -> None:
        if self.busy:
            raise Refusal(409, "a lesson or a change is under way on this model: wait until it is done, or cancel it")

    @contextlib.asynccontextmanager
    async def changes(self, what: str, **words: Any) -> AsyncIterator[View]:
        """Keep others from changing the model meanwhile; the journal knows what is under way."""
        self.check_idle()
        view = await self.seen()
        self.check_idle()
        async with self.changing:
            self.journal.begin(what, file=view.about["file"], **words)
            try:
                yield view
            finally:
                self.journal.end()
                self._tidy()

    def _tidy(self) -> None:
        """Take the folder of pictures away again where there is none."""
        with contextlib.suppress(OSError):
            self.pictures.folder.rmdir()

    async def change(self, what: str, **words: Any) -> View:
        """Change the model: forget, rename, merge, move, undo."""
        shown = {"names": words["names"]} if "names" in words else {}
        async with self.changes(what, **shown) as view:
            if not view.about["names"]:
                raise Refusal(409, "the model knows no class yet: teach it first")
            about, raw = await self._asked(what, **words)
            if what == "rename":
                self.pictures.rename(words["name"], words["to"])
            if what == "merge":
                for name in words["names"]:
                    self.pictures.rename(name, words["into"])
            if what == "undo":
                self.lesson = None  # what came of it is no more
            if what == "forget":
                self._drop(set(words["names"]))
            self._shown(View.of(about, raw, self.view))
            assert self.view is not None
            return self.view

    async def forget(self, names: list[str]) -> None:
        """Forget classes; those that only wait are taken away."""
        view = await self.seen()
        labels = {kept.label for kept in self.pictures.all().values()}
        known = [name for name in names if name in view.about["names"]]
        for name in names:
            if name not in labels and name not in known:
                raise Refusal(404, f"there is no class '{name}'")
        if known:
            await self.change("forget", names=known)
        await asyncio.to_thread(self._drop, set(names))

    async def move(self, ids: list[str], to: str) -> None:
        """Say of which class pictures are; those that were learnt are learnt as that."""
        await self._learnt_too("move", ids, to=to)
        await asyncio.to_thread(self.pictures.move, ids, to)

    async def delete(self, ids: list[str]) -> None:
        """Delete pictures; the model forgets those it has learnt."""
        await self._learnt_too("forget_digests", ids)
        await asyncio.to_thread(self.pictures.remove, ids)

    async def _learnt_too(self, what: str, ids: list[str], **words: Any) -> None:
        view = await self.seen()
        for one in ids:
            if one not in view.names:
                self.pictures.get(one)
        learnt = [one for one in ids if one in view.names]
        if learnt:
            await self.change(what, digests=[digest_of_id(one) for one in learnt], **words)

    async def tested(self, files: list[tuple[str, BinaryIO]], view: View) -> Any:
        """Measure the model on pictures that are not kept."""
        with tempfile.TemporaryDirectory(prefix="daydream-test-") as folder:
            pictures = Pictures(Path(folder) / "test")
            taken = await asyncio.to_thread(uploads.taken, pictures, view.about["side"], files, None, False)
            if not sum(taken.kept.values()):
                raise Refusal(422, f"there is no test picture among these files ({'; '.join(taken.why[:2])})")
            return await self.asked("test", folder=str(pictures.classes))

    # Lessons.

    def waiting(self, view: View) -> list[Kept]:
        """Return the pictures for the next lesson."""
        taught = self._taught_here(view)
        return [kept for kept in self.pictures.all().values() if kept.label is not None and kept.id not in taught]

    def _taught_here(self, view: View) -> Iterable[str]:
        return view.names if view.about["kind"] == "exact" else self._noted()

    def _noted(self) -> set[str]:
        """Return the pictures that lessons of an adapting model have learnt: its file does not tell."""
        left = Journal(self.pictures.folder / "taught.json").left() or {}
        ids = left.get("ids") if self.path.exists() else None
        return set(ids) if isinstance(ids, list) else set()

    def estimate(self, view: View, waiting: list[Kept], epochs: int | None) -> dict[str, Any]:
        """Say what a lesson would do."""
        names = sorted({str(kept.label) for kept in waiting})
        known = set(view.about["names"])
        seconds: float | None = None
        if view.about["kind"] == "exact":
            each = view.predictor.seconds if view.predictor is not None else 0.02
            total = len(waiting) + len(view.names)
            seconds = round(2 + len(waiting) * (each + PICTURE_SECONDS) + 3e-7 * total * min(total, 1280), 1)
        else:
            epochs = epochs or next((record["epochs"] for record in reversed(view.about["history"])), None)
            last = view.about["history"][-1] if view.about["history"] else None
            if last is not None and epochs:
                seconds = round(last["seconds"] / last["images"] / last["epochs"] * len(waiting) * epochs, 1)
        return {
            "images": len(waiting),
            "new": [name for name in names if name not in known],
            "again": [name for name in names if name in known],
            "epochs": epochs if view.about["kind"] == "adapting" else None,
            "seconds": seconds,
        }

    async def teach(self, settings: dict[str, Any]) -> Lesson:
        """Begin a lesson with the pictures that wait."""
        self.check_idle()
        view = await self.seen()
        self.check_idle()
        waiting = self.waiting(view)
        if not waiting:
            raise Refusal(409, "there is nothing new to teach: add pictures first")
        seconds = self.estimate(view, waiting, settings.get("epochs"))["seconds"]
        self.lesson = lesson = Lesson(len(waiting), seconds, view.accuracies)
        begun = asyncio.Event()
        lesson.task = asyncio.create_task(self._teach(lesson, [kept.id for kept in waiting], settings, begun))
        await begun.wait()
        return lesson

    async def _teach(self, lesson: Lesson, ids: list[str], settings: dict[str, Any], begun: asyncio.Event) -> None:
        before = signature(self.path)
        try:
            async with self.changes("learn"):
                begun.set()
                with self.pictures.lesson(ids) as folder:
                    self.teacher = self.workers.idle(self.path)
                    words = {"folder": str(folder), "settings": settings, "have": self.network}
                    about, raw = await self.teacher.ask(self.path, self.made, "learn", lesson.heard, **words)
                self._learnt(View.of(about, raw, self.view), ids)
            assert self.view is not None
            lesson.update(state="done", after=self.view.accuracies, seconds_left=0.0)
        except Stopped:
            lesson.update(state="cancelled", error="cancelled: the model is as it was before")
        except Died:
            await self._after_death(lesson, ids, before)
        except (Refusal, OSError) as error:
            lesson.update(state="failed", error=str(error))
        finally:
            begun.set()
            # Whatever happened that none of these foresees, nobody waits for ever.
            lesson.update(state="failed", error="the lesson failed; the model is as it was before")

    async def _after_death(self, lesson: Lesson, ids: list[str], before: object) -> None:
        """Say what came of a lesson whose process was ended."""
        if signature(self.path) != before:
            about, raw = await self._asked("open")
            self._learnt(View.of(about, raw, self.view), ids)
            lesson.update(state="done", after=self.view.accuracies if self.view else {})
        elif lesson.cancelling:
            lesson.update(state="cancelled", error="cancelled: the model is as it was before")
        else:
            lesson.update(state="failed", error="its process ended (out of memory?); the model is as it was before")

    def _learnt(self, view: View, ids: list[str]) -> None:
        if view.about["kind"] == "adapting":
            Journal(self.pictures.folder / "taught.json").begin("taught", ids=sorted(self._noted() | set(ids)))
        if not self.keep:
            self.pictures.remove(ids)
        self._shown(view)

    async def cancel(self) -> None:
        """Stop the lesson under way."""
        if self.lesson is None or not self.lesson.running:
            raise Refusal(409, "no lesson is under way")
        self.lesson.cancelling = True
        if self.teacher is not None:
            await self.teacher.cancel()
        if self.lesson.task is not None:
            await asyncio.wait([self.lesson.task], timeout=10)

    async def close(self) -> None:
        if self.lesson is not None and self.lesson.task is not None:
            self.lesson.task.cancel()
            await asyncio.wait([self.lesson.task], timeout=5)


class Models:
    """All that are served: one file, or those of a folder."""

    def __init__(self, place: Path, keep: bool = True) -> None:
        self.place, self.keep = place, keep
        self.folder = place.is_dir()
        self.found: dict[str, Served] = {}
        self.workers = Workers()

    def all(self) -> list[Served]:
        """Return them by name; files of the folder may come and go."""
        paths = [self.place]
        if self.folder:
            begun = (path.with_suffix("") for path in self.place.glob(f"*{SUFFIX}{BESIDE}") if path.is_dir())
            paths = sorted({*begun, *(path for path in self.place.glob(f"*{SUFFIX}") if path.is_file())})
        for path in paths:
            if path.name not in self.found:
                self.found[path.name] = Served(path, {}, self.keep, self.workers)
        return [self.found[name] for name in sorted(self.found)]

    def get(self, name: str) -> Served:
        for served in self.all():
            if served.name == name:
                return served
        raise Refusal(404, f"there is no model '{name[:64]}' here")

    def add(self, name: str, made: dict[str, Any]) -> Served:
        """Name a new model; its file comes with its first lesson."""
        if not self.folder:
            raise Refusal(409, "one model is served: start the server on a folder to have several")
        if not NAME.fullmatch(name):
            raise Refusal(
                422, "a model's name takes letters, digits, spaces, - and _, and begins with one of the former"
            )
        path = self.place / f"{name}{SUFFIX}"
        if path.name in self.found or path.exists():
            raise Refusal(409, f"there is a model '{name}' already")
        self.found[path.name] = served = Served(path, made, self.keep, self.workers)
        served.new.begin("new", made=made)
        return served

    def drop(self, served: Served) -> None:
        """Take back a new model that cannot be made."""
        served.new.end()
        with contextlib.suppress(OSError):
            served.pictures.folder.rmdir()
        self.found.pop(served.path.name, None)

    async def rest(self) -> None:
        """Let processes go that have had nothing to do, for as long as the server runs."""
        while True:
            await asyncio.sleep(RESTED)
            await self.workers.rest()

    async def close(self) -> None:
        await asyncio.gather(*(served.close() for served in self.found.values()))
        await self.workers.close()
