"""One model that is served: its file as it is now, its pictures, and what changes either."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

from daydream.atomic import signature
from daydream.serve import journal, uploads
from daydream.serve.jobs import Died, Workers
from daydream.serve.journal import Journal
from daydream.serve.lessons import Lessons
from daydream.serve.pictures import Pictures, digest_of_id
from daydream.serve.predictor import Predictor
from daydream.serve.refusal import Refusal
from daydream.serve.view import View

SUFFIX = ".daydream"


class Served:
    """One model."""

    def __init__(self, path: Path, made: dict[str, Any], keep: bool, workers: Workers) -> None:
        self.path, self.keep, self.workers = path, keep, workers
        self.pictures = Pictures(path)
        self.new = Journal(self.pictures.folder / "new.json")
        self.journal = Journal(self.pictures.folder / "journal.json")
        self.made = made or (self.new.left() or {}).get("made") or {}
        self.turn = asyncio.Lock()
        self.opening = asyncio.Lock()
        self.changing = asyncio.Lock()
        self.view: View | None = None
        self.lessons = Lessons(self)
        self.right = Journal(self.pictures.folder / "right.json")
        """Pictures that were said to be right as they are, each with its class then."""
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
                await self.look()
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
        uploads_cut = journal.uploads_left(self.pictures.folder)
        await self.look()
        assert self.view is not None
        if uploads_cut:
            self.notices.append(journal.interrupted({"what": "upload"}, False))
        if left is not None:
            changed = left.get("file") != self.view.about["file"]
            self.notices.append(journal.interrupted(left, changed))
            if changed:
                self.lessons.settle(left, self.view)
            names = left.get("names")
            if left["what"] == "forget" and isinstance(names, list):
                self._drop({name for name in names if name not in self.view.about["names"]})
            self.journal.end()
        for cut in uploads_cut:
            cut.end()
        if not self.keep:
            await asyncio.to_thread(self._clear, self.view)

    def _clear(self, view: View) -> None:
        """Delete pictures that have been taught, and unlabelled ones, where none is kept."""
        waiting = {kept.id for kept in self.lessons.waiting(view)}
        gone = [one for one in self.pictures.all() if one not in waiting]
        self.pictures.remove(gone)
        if gone:
            self.notices.append(f"{len(gone):,} pictures of before were deleted here: pictures are not kept.")

    async def look(self) -> None:
        await self.show(*await self.ask("open"))

    async def show(self, about: dict[str, Any], raw: dict[str, bytes]) -> View:
        """Take in how the model is now."""
        self.view = await asyncio.to_thread(View.of, about, raw, self.view)
        await asyncio.to_thread(self._follow, self.view)
        return self.view

    def _follow(self, view: View) -> None:
        """Bring pictures to the class they are of now, where the command line moved or renamed it."""
        elsewhere: dict[str, list[str]] = {}
        for kept in self.pictures.all().values():
            names = view.names.get(kept.id)
            if names and kept.label not in names:
                elsewhere.setdefault(names[0], []).append(kept.id)
        for name, ids in elsewhere.items():
            with contextlib.suppress(OSError, Refusal):  # a class of the command line whose name can be no folder
                self.pictures.move(ids, name)

    def _drop(self, names: set[str]) -> None:
        self.pictures.remove([kept.id for kept in self.pictures.all().values() if kept.label in names])

    async def ask(self, what: str, **words: Any) -> tuple[Any, dict[str, bytes]]:
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
        return (await self.ask(what, **words))[0]

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
            except asyncio.CancelledError:  # the server ends: the next one says what was interrupted
                raise
            except BaseException:
                self._ended()
                raise
            self._ended()

    def _ended(self) -> None:
        """Note that nothing is under way; a folder of pictures with none in it goes again."""
        self.journal.end()
        with contextlib.suppress(OSError):
            self.pictures.folder.rmdir()

    async def change(self, what: str, **words: Any) -> View:
        """Change the model: forget, rename, merge, move, undo."""
        shown = {"names": words["names"]} if "names" in words else {}
        async with self.changes(what, **shown) as view:
            if not view.about["names"]:
                raise Refusal(409, "the model knows no class yet: teach it first")
            about, raw = await self.ask(what, **words)
            if what == "rename":
                self.pictures.rename(words["name"], words["to"])
            if what == "merge":
                for name in words["names"]:
                    self.pictures.rename(name, words["into"])
            if what == "forget":
                self._drop(set(words["names"]))
            return await self.show(about, raw)

    async def forget(self, names: list[str]) -> None:
        """Forget classes; those that only wait are taken away."""
        self.check_idle()
        view = await self.seen()
        labels = {kept.label for kept in self.pictures.all().values()}
        known = [name for name in names if name in view.about["names"]]
        for name in names:
            if name not in labels and name not in known:
                raise Refusal(404, f"there is no class '{name}'")
        if known:
            await self.change("forget", names=known)
        await asyncio.to_thread(self._drop, set(names))

    async def undo(self) -> None:
        """Go back to before the last lesson or change."""
        view = await self.seen()
        if view.about["kind"] == "adapting" and self.lessons.can_undo(view):
            await self.lessons.undo()
        else:
            await self.change("undo")
        self.lessons.last = None  # what came of it is no more

    async def rename(self, name: str, to: str) -> None:
        """Give a class another name; one that only waits, too."""
        self.check_idle()
        view = await self.seen()
        labels = {kept.label for kept in self.pictures.all().values()}
        if to in labels | set(view.about["names"]):
            raise Refusal(409, f"there is a class '{to}' already: to make one class of both, merge them")
        if name in view.about["names"]:
            await self.change("rename", name=name, to=to)
        elif name in labels:
            await asyncio.to_thread(self.pictures.rename, name, to)
        else:
            raise Refusal(404, f"there is no class '{name}'")

    async def move(self, ids: list[str], to: str) -> None:
        """Say of which class pictures are; those that were learnt are learnt as that."""
        await self._learnt_too("move", ids, to=to)
        await asyncio.to_thread(self.pictures.move, ids, to)

    async def delete(self, ids: list[str]) -> None:
        """Delete pictures; the model forgets those it has learnt."""
        await self._learnt_too("forget_digests", ids)
        await asyncio.to_thread(self.pictures.remove, ids)

    async def _learnt_too(self, what: str, ids: list[str], **words: Any) -> None:
        if self.lessons.taking.intersection(ids):
            raise Refusal(409, "some of these pictures are being taught: wait until that is done, or cancel it")
        view = await self.seen()
        for one in ids:
            if one not in view.names:
                self.pictures.get(one)
        learnt = [one for one in ids if one in view.names]
        if learnt:
            await self.change(what, digests=[digest_of_id(one) for one in learnt], **words)

    async def upload(self, files: list[tuple[str, BinaryIO]], label: str | None, pile: bool) -> uploads.Taken:
        """Keep the pictures of an upload; the journal knows that it is under way."""
        view = await self.seen()
        under_way = journal.upload_in(self.pictures.folder)
        await asyncio.to_thread(under_way.begin, "upload")
        try:
            return await asyncio.to_thread(uploads.taken, self.pictures, view.about["side"], files, label, pile)
        finally:
            under_way.end()
            with contextlib.suppress(OSError):
                self.pictures.folder.rmdir()

    async def doubts(self) -> list[dict[str, Any]]:
        """Return the pictures that look wrong, but those that were said to be right."""
        right = (self.right.left() or {}).get("names") or {}
        return [row for row in await self.asked("doubts") if right.get(row["id"]) != row["name"]]

    async def call_right(self, ids: list[str]) -> None:
        """Note that pictures are right as they are, until their class changes."""
        names = (await self.seen()).names
        right = (self.right.left() or {}).get("names") or {}
        for one in ids:
            if one not in names:
                raise Refusal(404, f"the model has learnt no picture '{one}'")
            right[one] = names[one][0]
        self.right.begin("right", names=right)

    async def tested(self, files: list[tuple[str, BinaryIO]], view: View) -> Any:
        """Measure the model on pictures that are not kept."""
        with tempfile.TemporaryDirectory(prefix="daydream-test-") as folder:
            pictures = Pictures(Path(folder) / "test")
            taken = await asyncio.to_thread(uploads.taken, pictures, view.about["side"], files, None, False)
            if not sum(taken.kept.values()):
                raise Refusal(422, f"there is no test picture among these files ({'; '.join(taken.why[:2])})")
            return await self.asked("test", folder=str(pictures.classes))

    async def close(self) -> None:
        await self.lessons.close()
        if not self.keep and self.view is not None:
            with contextlib.suppress(OSError, Refusal):
                await asyncio.to_thread(self.pictures.remove, self.pictures.unlabelled)
