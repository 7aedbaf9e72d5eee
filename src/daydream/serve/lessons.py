"""The lessons of one model: which pictures wait, what a lesson would do, its course, and the way back."""

import asyncio
import contextlib
import shutil
from typing import TYPE_CHECKING, Any

from daydream import atomic
from daydream.atomic import signature
from daydream.learner.locking import taught
from daydream.serve.jobs import Died, Lesson, Stopped, Worker
from daydream.serve.journal import Journal
from daydream.serve.pictures import Kept
from daydream.serve.refusal import Refusal
from daydream.serve.view import View

if TYPE_CHECKING:
    from daydream.serve.served import Served

PICTURE_SECONDS = 0.006
"""What decoding and keeping a picture's feature take beside the network."""
UNCHANGED = "the model is as it was before"


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

    def waiting(self, view: View) -> list[Kept]:
        """Return the pictures for the next lesson."""
        learnt = view.names if view.about["kind"] == "exact" else self._noted()
        kept = self.served.pictures.all().values()
        return [one for one in kept if one.label is not None and one.id not in learnt]

    def _noted(self) -> set[str]:
        ids = (self.noted.left() or {}).get("ids") if self.served.path.exists() else None
        return set(ids) if isinstance(ids, list) else set()

    def estimate(self, view: View, epochs: int | None) -> dict[str, Any]:
        """Say what a lesson would do."""
        waiting, known = self.waiting(view), set(view.about["names"])
        names = sorted({str(kept.label) for kept in waiting})
        trains = view.about["kind"] == "adapting"
        last = view.about["history"][-1] if trains and view.about["history"] else None
        if last is not None:
            epochs = epochs or last["epochs"]
        return {
            "images": len(waiting),
            "new": [name for name in names if name not in known],
            "again": [name for name in names if name in known],
            "epochs": epochs if trains else None,
            "seconds": _seconds(len(waiting), last, epochs) if trains else _quick(len(waiting), view),
        }

    async def teach(self, settings: dict[str, Any]) -> Lesson:
        """Begin a lesson with the pictures that wait."""
        self.served.check_idle()
        view = await self.served.seen()
        self.served.check_idle()
        if view.about["kind"] == "exact" and (settings.get("epochs") or settings.get("unlabelled")):
            raise Refusal(
                422, "epochs and unlabelled pictures are for a method that trains; this model's learner is exact"
            )
        ids = [kept.id for kept in self.waiting(view)]
        if not ids:
            raise Refusal(409, "there is nothing new to teach: add pictures first")
        seconds = self.estimate(view, settings.get("epochs"))["seconds"]
        self.last = lesson = Lesson(len(ids), seconds, view.accuracies)
        begun = asyncio.Event()
        lesson.task = asyncio.create_task(self._taught(lesson, ids, settings, begun))
        await begun.wait()
        return lesson

    async def _taught(self, lesson: Lesson, ids: list[str], settings: dict[str, Any], begun: asyncio.Event) -> None:
        file = signature(self.served.path)
        try:
            async with self.served.changes("learn") as view:
                begun.set()
                self.taking = frozenset(ids)
                await self._take(lesson, ids, settings, view)
        except Stopped:
            lesson.update(state="cancelled", error=f"cancelled: {UNCHANGED}")
        except Died:
            await self._after_death(lesson, ids, file)
        except (Refusal, OSError) as error:
            lesson.update(state="failed", error=str(error))
        finally:
            self.taking = frozenset()
            begun.set()
            lesson.update(state="failed", error=f"the lesson failed; {UNCHANGED}")  # for what none of these foresees

    async def _take(self, lesson: Lesson, ids: list[str], settings: dict[str, Any], view: View) -> None:
        served = self.served
        if view.about["kind"] == "adapting" and served.path.exists():
            with atomic.replacing(self.before, atomic.PRIVATE) as part:
                await asyncio.to_thread(shutil.copyfile, served.path, part)
        with served.pictures.lesson(ids) as folder:
            self.teacher = served.workers.idle(served.path)
            given = {name: value for name, value in settings.items() if name != "unlabelled"}
            pile = str(served.pictures.pile) if settings.get("unlabelled") else None
            words = {"folder": str(folder), "unlabelled": pile, "settings": given, "have": served.network}
            about, raw = await self.teacher.ask(served.path, served.made, "learn", lesson.heard, **words)
        await self._learnt(lesson, about, raw, ids)

    async def _after_death(self, lesson: Lesson, ids: list[str], before: object) -> None:
        """Say what came of a lesson whose process was ended."""
        if signature(self.served.path) != before:
            await self._learnt(lesson, *await self.served.ask("open"), ids)
        elif lesson.cancelling:
            lesson.update(state="cancelled", error=f"cancelled: {UNCHANGED}")
        else:
            lesson.update(state="failed", error=f"its process ended (out of memory?); {UNCHANGED}")

    async def _learnt(self, lesson: Lesson, about: dict[str, Any], raw: dict[str, bytes], ids: list[str]) -> None:
        if about["kind"] == "adapting":
            self.noted.begin("taught", ids=sorted(self._noted() | set(ids)))
            if self.before.exists():
                self.way_back.begin("undo", file=about["file"], ids=ids)
        if not self.served.keep:
            await asyncio.to_thread(self.served.pictures.remove, ids)
        view = await self.served.show(about, raw)
        lesson.update(state="done", after=view.accuracies, seconds_left=0.0)

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
        return left.get("file") == view.about["file"] is not None and self.before.is_file()

    async def undo(self) -> None:
        """Bring an adapting model back to before its last lesson."""
        served = self.served
        async with served.changes("undo"):
            ids = (self.way_back.left() or {}).get("ids") or []
            with taught(served.path):
                self.before.chmod(atomic.rights_of(served.path))
                atomic.land(self.before, served.path)
            self.noted.begin("taught", ids=sorted(self._noted() - set(ids)))
            self.way_back.end()
            await served.show(*await served.ask("open"))

    async def close(self) -> None:
        if self.last is not None and self.last.task is not None:
            self.last.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self.last.task], timeout=5)


def _quick(images: int, view: View) -> float:
    """Return about how many seconds a lesson of the exact learner takes: features, and a system of equations."""
    each = view.predictor.seconds if view.predictor is not None else 0.02
    total = images + len(view.names)
    return round(2 + images * (each + PICTURE_SECONDS) + 3e-7 * total * min(total, 1280), 1)


def _seconds(images: int, last: dict[str, Any] | None, epochs: int | None) -> float | None:
    """Return about how many seconds a lesson that trains takes, by the last one."""
    if last is None or not epochs:
        return None
    return round(float(last["seconds"] / last["images"] / last["epochs"] * images * epochs), 1)
