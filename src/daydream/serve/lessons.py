"""The lessons of one model: which pictures wait, what a lesson would do, its course, and the way back."""

import asyncio
import contextlib
import errno
import shutil
from typing import TYPE_CHECKING, Any

from daydream import atomic
from daydream.atomic import signature
from daydream.learner.locking import taught
from daydream.serve import estimate
from daydream.serve.jobs import Died, Lesson, Stopped, Worker
from daydream.serve.journal import Journal
from daydream.serve.pictures import Kept
from daydream.serve.refusal import FULL, UNCHANGED, Refusal
from daydream.serve.view import View

if TYPE_CHECKING:
    from daydream.serve.served import Served


class Lessons:
    """What is taught to one model.

    The file of an adapting model does not tell which pictures it has learnt, nor hold its earlier states: both are
    kept beside it, the state of one lesson ago.
    """

    def __init__(self, served: "Served") -> None:
        self.served = served
        self.last: Lesson | None = None
        self.teacher: Worker | None = None
        self.taking: frozenset[str] = frozenset()
        """Pictures of the lesson under way."""
        folder = served.pictures.folder
        self.before = folder / "before.daydream"
        self.noted, self.way_back = Journal(folder / "taught.json"), Journal(folder / "undo.json")
        self.begun = Journal(folder / "lesson.json")
        """The lesson of an adapting model that is under way, or was when the server was killed."""
        self.pace: float | None = None

    def waiting(self, view: View) -> list[Kept]:
        """Return the pictures for the next lesson."""
        learnt = view.names if view.about["kind"] == "exact" else self._noted()
        kept = self.served.pictures.all().values()
        return [one for one in kept if one.label is not None and one.id not in learnt]

    def _noted(self) -> set[str]:
        ids = (self.noted.left() or {}).get("ids") if self.served.path.exists() else None
        return set(ids) if isinstance(ids, list) else set()

    async def estimate(self, view: View, epochs: int | None) -> estimate.Plan:
        """Say what the next lesson would do."""
        left = self.interrupted(view)
        waiting = self.waiting(view) if left is None else [self.served.pictures.get(one) for one in left["ids"]]
        if view.about["kind"] == "exact" or not waiting:
            return estimate.planned(view, waiting, epochs, None, False)
        if not view.about["history"] and self.pace is None and not self.served.busy:
            self.pace, _ = await self.served.ask("pace", batch=estimate.batch_of(view, len(waiting)))
        epochs = (
            epochs or (left or {"settings": {}})["settings"].get("epochs") or estimate.epochs_of(view, len(waiting))
        )
        return estimate.planned(view, waiting, epochs, self.pace, left is not None)

    def interrupted(self, view: View) -> dict[str, Any] | None:
        """Return the lesson that was interrupted and can go on: its pictures and settings, as it was begun."""
        left, kept = self.begun.left() or {}, self.served.pictures.all()
        if view.about["kind"] == "exact" or not view.about["plan"]["kept"]:
            return None
        pictures, settings = left.get("pictures"), left.get("settings")
        if not isinstance(pictures, dict) or not isinstance(settings, dict) or not pictures:
            return None
        same = all(one in kept and kept[one].label == label for one, label in pictures.items())
        return {"ids": list(pictures), "settings": settings} if same else None

    async def teach(self, settings: dict[str, Any]) -> Lesson:
        """Begin a lesson with the pictures that wait."""
        self.served.check_idle()
        view = await self.served.seen()
        self.served.check_idle()
        if view.about["kind"] == "exact" and (settings.get("epochs") or settings.get("unlabelled")):
            raise Refusal(
                422, "epochs and unlabelled pictures are for a method that trains; this model's learner is exact"
            )
        afresh = bool(settings.pop("afresh", False))
        left = None if afresh else self.interrupted(view)
        if left is not None:
            ids, settings = left["ids"], left["settings"]
        else:
            ids = [kept.id for kept in self.waiting(view)]
        if not ids:
            raise Refusal(409, "there is nothing new to teach: add pictures first")
        plan = await self.estimate(view, settings.get("epochs"))
        self.served.check_idle()
        if plan.epochs:
            settings["epochs"] = plan.epochs
        self.last = lesson = Lesson(len(ids), plan.seconds_most, view.accuracies)
        begun = asyncio.Event()
        lesson.task = asyncio.create_task(self._taught(lesson, ids, settings, begun, afresh))
        await begun.wait()
        return lesson

    async def _taught(
        self, lesson: Lesson, ids: list[str], settings: dict[str, Any], begun: asyncio.Event, afresh: bool
    ) -> None:
        file = signature(self.served.path)
        try:
            number = len((await self.served.seen()).about["history"])
            async with self.served.changes("learn", ids=ids, number=number) as view:
                begun.set()
                self.taking = frozenset(ids)
                try:
                    await self._take(lesson, ids, settings, view, afresh)
                except Stopped:
                    await self._drop()
                    lesson.update(state="cancelled", error=f"cancelled: {UNCHANGED}")
                except Died:
                    await self._after_death(lesson, ids, file)
        except (Refusal, OSError) as error:
            lesson.update(state="failed", error=said(error))
            with contextlib.suppress(Refusal, OSError):
                await self.served.look()  # a lesson may be kept, to go on with
        finally:
            self.taking = frozenset()
            begun.set()
            lesson.update(state="failed", error=f"the lesson failed; {UNCHANGED}")  # for what none of these foresees

    async def _take(self, lesson: Lesson, ids: list[str], settings: dict[str, Any], view: View, afresh: bool) -> None:
        served = self.served
        if view.about["kind"] == "adapting":
            known = served.pictures.all()
            self.begun.begin("lesson", pictures={one: known[one].label for one in ids}, settings=settings)
            if served.path.exists():
                with atomic.replacing(self.before, atomic.PRIVATE) as part:
                    await asyncio.to_thread(shutil.copyfile, served.path, part)
        with served.pictures.lesson(ids) as folder:
            self.teacher = served.workers.idle(served.path)
            given = {name: value for name, value in settings.items() if name != "unlabelled"}
            pile = str(served.pictures.pile) if settings.get("unlabelled") else None
            words: dict[str, Any] = {"folder": str(folder), "unlabelled": pile, "settings": given}
            words |= {"have": served.network, "afresh": afresh}
            about, raw = await self.teacher.ask(served.path, served.made, "learn", lesson.heard, **words)
        if settings.get("unlabelled") and not served.keep:
            await asyncio.to_thread(served.pictures.remove, served.pictures.unlabelled)
        await self._learnt(lesson, about, raw, ids)

    async def _after_death(self, lesson: Lesson, ids: list[str], before: object) -> None:
        """Say what came of a lesson whose process was ended."""
        if signature(self.served.path) != before:
            await self._learnt(lesson, *await self.served.ask("open"), ids)
        elif lesson.cancelling:
            await self._drop()
            lesson.update(state="cancelled", error=f"cancelled: {UNCHANGED}")
        else:
            await self.served.look()
            lesson.update(state="failed", error=f"its process ended (out of memory?); {UNCHANGED}")

    async def _drop(self) -> None:
        """Drop what is kept of a lesson that is not to go on."""
        self.begun.end()
        await self.served.show(*await self.served.ask("drop"))

    async def _learnt(self, lesson: Lesson, about: dict[str, Any], raw: dict[str, bytes], ids: list[str]) -> None:
        if about["kind"] == "adapting":
            self.note(ids, about["file"])
        if not self.served.keep:
            await asyncio.to_thread(self.served.pictures.remove, ids)
        view = await self.served.show(about, raw)
        lesson.update(state="done", after=view.accuracies, seconds_left=0.0)

    def note(self, ids: list[str], file: object) -> None:
        """Note that pictures were learnt, and the way back."""
        self.noted.begin("taught", ids=sorted(self._noted() | set(ids)))
        if self.before.exists():
            self.way_back.begin("undo", file=file, ids=ids)
        self.begun.end()

    def settle(self, left: dict[str, Any], view: View) -> None:
        """Note what a server that was killed had done to an adapting model's file, and not noted any more."""
        ids = left.get("ids")
        if view.about["kind"] == "exact" or not isinstance(ids, list):
            return
        if left["what"] == "learn" and len(view.about["history"]) == left.get("number", 0) + 1:
            self.note(ids, view.about["file"])
        if left["what"] == "undo":
            self._back(ids)

    def _back(self, ids: list[str]) -> None:
        self.noted.begin("taught", ids=sorted(self._noted() - set(ids)))
        self.way_back.end()

    async def cancel(self) -> Lesson:
        """Stop the lesson under way."""
        if self.last is None or not self.last.running:
            raise Refusal(409, "no lesson is under way")
        self.last.cancelling = True
        if self.teacher is not None:
            await self.teacher.cancel()
        if self.last.task is not None:
            await asyncio.wait([self.last.task], timeout=10)
        return self.last

    def can_undo(self, view: View) -> bool:
        """Say whether there is a way back."""
        if view.about["kind"] == "exact":
            return bool(view.about["undo"])
        left = self.way_back.left() or {}
        return left.get("file") == view.about["file"] is not None and (
            self.before.is_file() and not self.before.is_symlink()
        )

    async def undo(self) -> None:
        """Bring an adapting model back to before its last lesson."""
        served = self.served
        ids = (self.way_back.left() or {}).get("ids") or []
        async with served.changes("undo", ids=ids):
            with taught(served.path):
                self.before.chmod(atomic.rights_of(served.path))
                atomic.land(self.before, served.path)
            self._back(ids)
            await served.show(*await served.ask("open"))

    async def close(self) -> None:
        if self.last is not None and self.last.task is not None:
            self.last.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self.last.task], timeout=5)


def said(error: Exception) -> str:
    """Return what a lesson that failed says."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{FULL}; {UNCHANGED}" if full else str(error)
