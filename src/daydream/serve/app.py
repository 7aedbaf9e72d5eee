"""The routes: what can be asked over HTTP, and the page that asks it."""

import asyncio
import contextlib
import errno
import json
import logging
import tempfile
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, File, Query, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

import daydream
from daydream.errors import UserError
from daydream.escapes import visible
from daydream.serve import schemas, uploads
from daydream.serve.guard import Gate, Guard
from daydream.serve.models import Models, Served
from daydream.serve.refusal import Refusal, class_name

log = logging.getLogger("daydream")

PAGE = Path(__file__).parent / "page"
FIRST = 12
"""Pictures of a class that the wall shows at once."""
FILES = 1000
"""Files of a request; the page sends fewer at a time."""
AT_ONCE = 64
"""Pictures of one request that are judged."""


async def chosen(request: Request, model: str) -> Served:
    """Return the model that a path names."""
    models: Models = request.app.state.models
    return models.get(model)


Model = Annotated[Served, Depends(chosen)]
Files = Annotated[list[UploadFile], File(description="pictures, or zip archives of pictures")]
Label = Annotated[str | None, Query(alias="class", max_length=200, description="by default what their folders say")]


class Failure(Response):
    """An answer that says in one line what is wrong."""

    def __init__(self, status: int, line: str) -> None:
        flat = visible(" ".join(line.split()))
        super().__init__(json.dumps({"error": flat}), status, media_type="application/json")


def make_app(models: Models, gate: Gate) -> ASGIApp:
    """Return the application, behind its guard."""

    @contextlib.asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        resting = asyncio.create_task(models.rest())
        try:
            yield
        finally:
            resting.cancel()
            await models.close()

    failures: dict[int | str, dict[str, Any]] = {
        status: {"model": schemas.Failure} for status in (400, 403, 404, 409, 413, 422)
    }
    app = FastAPI(
        title="daydream",
        version=daydream.__version__,
        description="Teach, try and mend a classifier of your own images.",
        docs_url=None,
        redoc_url=None,
        lifespan=living,
        responses=failures,
    )
    app.state.models, app.state.gate = models, gate
    app.exception_handler(Exception)(unforeseen)
    app.exception_handler(UserError)(refused)
    app.exception_handler(OSError)(system)
    app.exception_handler(HTTPException)(plain)
    app.exception_handler(RequestValidationError)(invalid)
    for router in (about, pictures, lessons, answers):
        router(app)
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return Guard(app, gate)


# Mistakes, each as one line.


async def refused(_: Request, error: Exception) -> Response:
    return Failure(error.status if isinstance(error, Refusal) else 422, str(error))


async def system(_: Request, error: Exception) -> Response:
    assert isinstance(error, OSError)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failure(507, "the disk is full: free some space and try again; what was acknowledged is there")
    log.warning("%s", error)
    return Failure(500, f"the system refused: {error.strerror or 'reading or writing failed'}")


async def plain(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Failure(error.status_code, str(error.detail))


async def invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if "files" in first["loc"]:
        return Failure(422, "files: send pictures as files of a form (multipart/form-data); no address is ever fetched")
    where = ".".join(str(part) for part in first["loc"][1:])
    return Failure(422, f"{where or 'the request'}: {first['msg']}"[:300])


async def unforeseen(_: Request, error: Exception) -> Response:
    log.error("unforeseen: %s", type(error).__name__, exc_info=error)
    return Failure(500, "something unforeseen went wrong; the server's own output says what")


# Models and classes.


def line_of(served: Served) -> dict[str, Any]:
    return {"name": served.name, "file": served.path.name, "exists": served.path.is_file()}


async def told(served: Served) -> schemas.ModelAnswer:
    """Return all that the page shows of a model."""
    view = await served.seen()
    kept = served.pictures.all().values()
    waiting = {one.id for one in served.waiting(view)}
    reports = {row["name"]: row for row in view.about["classes"]}
    names = [*view.about["names"], *sorted({k.label for k in kept if k.label is not None} - set(view.about["names"]))]
    by_class: dict[str, list[str]] = {name: [] for name in names}
    for one in kept:
        if one.label is not None:
            by_class[one.label].append(one.id)
    classes = [
        schemas.ClassAnswer(
            name=name,
            known=reports[name]["images"] if name in reports else 0,
            kept=len(ids),
            waiting=sum(one in waiting for one in ids),
            accuracy=reports[name]["accuracy"] if name in reports else [],
            pictures=sorted(ids, key=lambda one: one not in waiting)[:FIRST],
        )
        for name, ids in by_class.items()
    ]
    lesson = schemas.ProgressAnswer(**asdict(served.lesson.progress)) if served.lesson is not None else None
    return schemas.ModelAnswer(
        **line_of(served),
        kind=view.about["kind"],
        about=view.about["about"],
        side=view.about["side"],
        keeps_pictures=served.keep,
        classes=classes,
        sentence=view.about["sentence"],
        can_undo=view.about["undo"] and not served.busy,
        unlabelled=sum(one.label is None for one in kept),
        notices=served.notices,
        lesson=lesson,
    )


def about(app: FastAPI) -> None:
    """Add the routes on models and classes."""

    @app.get("/api", tags=["models"])
    async def server(request: Request) -> schemas.About:
        """Return the models that are served, and what may be sent."""
        from daydream.methods import METHODS

        models: Models = request.app.state.models
        limits = {"request_bytes": request.app.state.gate.most, "picture_bytes": uploads.PICTURE, "files": FILES}
        return schemas.About(
            version=daydream.__version__,
            models=[schemas.ModelLine(**line_of(served)) for served in models.all()],
            can_add=models.folder,
            limits=schemas.Limits(**limits),
            methods={name: line for name, (_, line) in METHODS.items()},
        )

    @app.post("/api/models", tags=["models"], status_code=201)
    async def new_model(request: Request, asked: schemas.NewModel) -> schemas.ModelAnswer:
        """Name a new model; its file comes with its first lesson."""
        made = {key: value for key, value in asked.model_dump().items() if key != "name" and value is not None}
        models: Models = request.app.state.models
        served = models.add(asked.name, made)
        try:
            return await told(served)
        except UserError:
            models.drop(served)
            raise

    @app.get("/api/models/{model}", tags=["models"])
    async def one_model(served: Model) -> schemas.ModelAnswer:
        """Return a model: its classes, what is under way, what was interrupted."""
        return await told(served)

    @app.delete("/api/models/{model}/notices", tags=["models"])
    async def seen(served: Model) -> schemas.ModelAnswer:
        """Take the notices as read."""
        served.notices.clear()
        return await told(served)

    @app.post("/api/models/{model}/rename", tags=["classes"])
    async def rename(served: Model, asked: schemas.Rename) -> schemas.ModelAnswer:
        """Give a class another name; one that is not taught yet, too."""
        to, view = class_name(asked.to), await served.seen()
        labels = {kept.label for kept in served.pictures.all().values()}
        if to in labels | set(view.about["names"]):
            raise Refusal(409, f"there is a class '{to}' already: to make one class of both, merge them")
        if asked.name in view.about["names"]:
            await served.change("rename", name=asked.name, to=to)
        elif asked.name in labels:
            await run_in_threadpool(served.pictures.rename, asked.name, to)
        else:
            raise Refusal(404, f"there is no class '{asked.name}'")
        return await told(served)

    @app.post("/api/models/{model}/merge", tags=["classes"])
    async def merge(served: Model, asked: schemas.Merge) -> schemas.ModelAnswer:
        """Make one class of several."""
        await served.change("merge", names=asked.names, into=class_name(asked.into))
        return await told(served)

    @app.post("/api/models/{model}/forget", tags=["classes"])
    async def forget(served: Model, asked: schemas.Forget) -> schemas.ModelAnswer:
        """Forget classes, and delete their pictures here."""
        await served.forget(asked.names)
        return await told(served)

    @app.post("/api/models/{model}/undo", tags=["lessons"])
    async def undo(served: Model) -> schemas.ModelAnswer:
        """Go back to before the last lesson; its pictures wait again."""
        await served.change("undo")
        return await told(served)


# Pictures.


def pictures(app: FastAPI) -> None:
    """Add the routes on pictures."""

    @app.post("/api/models/{model}/pictures", tags=["pictures"], status_code=201)
    async def upload(served: Model, files: Files, label: Label = None, unlabelled: bool = False) -> schemas.Upload:
        """Keep pictures for the next lesson; each is on the disk when this answers."""
        view = await served.seen()
        given = [(file.filename or "", file.file) for file in files]
        label = None if label is None else class_name(label)
        taken = await run_in_threadpool(uploads.taken, served.pictures, view.about["side"], given, label, unlabelled)
        return schemas.Upload(**asdict(taken))

    @app.get("/api/models/{model}/pictures", tags=["pictures"])
    async def listed(
        served: Model,
        label: Label = None,
        start: Annotated[int, Query(ge=0, le=10**9)] = 0,
        count: Annotated[int, Query(ge=1, le=500)] = 100,
    ) -> schemas.PictureList:
        """List the pictures of a class, the waiting ones first; without a class, the unlabelled ones."""
        view = await served.seen()
        waiting = {one.id for one in served.waiting(view)}
        of = [one for one in served.pictures.all().values() if one.label == label]
        of.sort(key=lambda one: one.id not in waiting)
        rows = [
            schemas.PictureLine(id=one.id, label=one.label, waiting=one.id in waiting)
            for one in of[start : start + count]
        ]
        return schemas.PictureList(total=len(of), pictures=rows)

    @app.get("/api/models/{model}/pictures/{picture}", tags=["pictures"], response_class=Response)
    async def picture(served: Model, picture: str, side: Annotated[int, Query(ge=16, le=512)] = 96) -> Response:
        """Return a picture as a small JPEG."""
        content = await run_in_threadpool(served.pictures.thumbnail, picture, side)
        return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=600"})

    @app.post("/api/models/{model}/pictures/move", tags=["pictures"])
    async def move(served: Model, asked: schemas.Move) -> schemas.ModelAnswer:
        """Say of which class pictures are; those that were learnt are learnt anew as that."""
        await served.move(asked.ids, class_name(asked.to))
        return await told(served)

    @app.post("/api/models/{model}/pictures/delete", tags=["pictures"])
    async def delete(served: Model, asked: schemas.Chosen) -> schemas.ModelAnswer:
        """Delete pictures; the model forgets those it has learnt."""
        await served.delete(asked.ids)
        return await told(served)


# Lessons.


def lessons(app: FastAPI) -> None:
    """Add the routes on lessons."""

    @app.get("/api/models/{model}/lessons", tags=["lessons"])
    async def history(served: Model) -> schemas.History:
        """Return what the model has been taught, in order."""
        return schemas.History(records=(await served.seen()).about["history"])

    @app.get("/api/models/{model}/lessons/estimate", tags=["lessons"])
    async def estimate(served: Model, epochs: Annotated[int | None, Query(ge=1, le=10_000)] = None) -> schemas.Estimate:
        """Say what the next lesson will do, before it begins."""
        view = await served.seen()
        found = served.estimate(view, served.waiting(view), epochs)
        return schemas.Estimate(**found, sentence=estimated(found))

    @app.post("/api/models/{model}/lessons", tags=["lessons"], status_code=202)
    async def teach(served: Model, asked: schemas.LessonAsked) -> schemas.ProgressAnswer:
        """Begin a lesson with the pictures that wait."""
        settings = {key: value for key, value in asked.model_dump().items() if value is not None}
        return schemas.ProgressAnswer(**asdict((await served.teach(settings)).progress))

    @app.get("/api/models/{model}/lessons/events", tags=["lessons"], response_class=StreamingResponse)
    async def events(served: Model) -> StreamingResponse:
        """Follow the lesson under way, or the last one, as server-sent events; each is a ProgressAnswer."""
        if served.lesson is None:
            raise Refusal(404, "no lesson has begun since the server was started")
        followed = served.lesson.followed()

        async def lines() -> AsyncIterator[str]:
            async for progress in followed:
                yield f"data: {json.dumps(asdict(progress))}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    @app.delete("/api/models/{model}/lessons/current", tags=["lessons"])
    async def cancel(served: Model) -> schemas.ProgressAnswer:
        """Stop the lesson under way; the model stays as it was."""
        await served.cancel()
        assert served.lesson is not None
        return schemas.ProgressAnswer(**asdict(served.lesson.progress))


def estimated(found: dict[str, Any]) -> str:
    """Say it in one sentence."""
    if not found["images"]:
        return "Nothing new to teach: add pictures first."
    new, again = len(found["new"]), len(found["again"])
    parts = [f"{n} {word}" for n, word in ((new, "new"), (again, "known")) if n]
    classes = f"{' and '.join(parts)} {'class' if new + again == 1 else 'classes'}"
    epochs = f", {found['epochs']} epochs" if found["epochs"] else ""
    seconds = f", about {found['seconds']:.0f} s" if found["seconds"] is not None else ""
    return f"{found['images']:,} pictures of {classes}{epochs}{seconds}."


# Answers of the model.


def answers(app: FastAPI) -> None:
    """Add the routes that ask the model."""

    @app.post("/api/models/{model}/predict", tags=["answers"], response_model=list[schemas.Prediction])
    async def predict(
        served: Model,
        files: Files,
        top: Annotated[int, Query(ge=1, le=1000)] = 5,
        nearest: Annotated[int, Query(ge=0, le=50)] = 0,
    ) -> list[dict[str, Any]]:
        """Judge pictures: calibrated probabilities, and the nearest pictures that were learnt. A URL is refused."""
        view = await served.seen()
        predictor = served.predictor(view)
        if len(files) > AT_ONCE:
            raise Refusal(413, f"at most {AT_ONCE} pictures are judged at once; this request has {len(files)}")
        kept = served.pictures.all() if nearest else {}
        given = [(file.filename or "", file.file) for file in files]
        return await run_in_threadpool(judged, predictor, given, top, nearest, kept)

    @app.post("/api/models/{model}/test", tags=["answers"])
    async def test(served: Model, files: Files) -> dict[str, Any]:
        """Measure the model on test pictures, whose folders say what they are; none of them is kept."""
        served.check_idle()
        view = await served.seen()
        given = [(file.filename or "", file.file) for file in files]
        report: dict[str, Any] = await served.tested(given, view)
        return report

    @app.get("/api/models/{model}/doubts", tags=["answers"])
    async def doubts(served: Model) -> list[schemas.Doubt]:
        """Return pictures that look mislabelled, doubled or odd, the surest first."""
        rows, kept = await served.asked("doubts"), served.pictures.all()
        return [schemas.Doubt(**row, kept=row["id"] in kept) for row in rows]

    @app.get("/api/models/{model}/next", tags=["answers"])
    async def ask_next(served: Model, count: Annotated[int, Query(ge=1, le=200)] = 20) -> list[str]:
        """Return the unlabelled pictures whose labels would help most, by ID."""
        if not any(kept.label is None for kept in served.pictures.all().values()):
            raise Refusal(409, "there are no unlabelled pictures: drop some first")
        found: list[str] = await served.asked("next", folder=str(served.pictures.pile), count=count)
        return found

    @app.get("/api/models/{model}/export", tags=["answers"], response_class=FileResponse)
    async def export(
        served: Model, kind: Annotated[Literal["onnx", "safetensors", "model"], Query(alias="as")] = "onnx"
    ) -> Response:
        """Return the model for other programs (ONNX, safetensors), or its own file, which can be taught further."""
        if kind == "model":
            if not served.path.is_file():
                raise Refusal(409, "the model knows no class yet: teach it first")
            return FileResponse(served.path, filename=served.path.name)
        with tempfile.TemporaryDirectory(prefix="daydream-export-") as folder:
            target = Path(folder) / f"{served.name}.{kind}"
            await served.asked(kind, target=str(target))
            content = await run_in_threadpool(target.read_bytes)
        disposition = {"content-disposition": f'attachment; filename="{target.name}"'}
        return Response(content, media_type="application/octet-stream", headers=disposition)


def judged(predictor: Any, files: list[tuple[str, Any]], top: int, nearest: int, kept: Any) -> list[dict[str, Any]]:
    """Judge uploaded pictures, in the order they came."""
    read = []
    for name, file in files:
        content = file.read(uploads.PICTURE + 1)
        if len(content) > uploads.PICTURE:
            raise Refusal(413, f"{visible(name)[-80:]} is larger than {uploads.PICTURE // 2**20} MiB")
        try:
            read.append(predictor.read(content))
        except MemoryError:
            raise
        except Exception as error:  # a damaged file can raise nearly anything
            why = visible(" ".join(str(error).split()))[:160]
            raise Refusal(422, f"{visible(name)[-80:] or 'a file'} is no picture that can be read: {why}") from error
    probabilities, features = predictor.judged(read)
    rows = []
    for place, (name, _) in enumerate(files):
        best = probabilities[place].argsort()[::-1][:top].tolist()
        found = predictor.neighbours(features[place], nearest) if features is not None else []
        limit = predictor.threshold
        rows.append(
            {
                "file": visible(name),
                "classes": [{"name": predictor.names[i], "probability": float(probabilities[place, i])} for i in best],
                "none_of_these": None if limit is None else bool(probabilities[place].max() < limit),
                "nearest": [{**asdict(near), "kept": near.id in kept} for near in found],
            }
        )
    return rows
