"""Routes on pictures."""

from dataclasses import asdict
from typing import Annotated

from fastapi import FastAPI, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from daydream.serve import schemas
from daydream.serve.refusal import class_name
from daydream.serve.routes.about_models import told
from daydream.serve.routes.answers import doubted
from daydream.serve.routes.chosen import Files, Label, Model, opened


def add(app: FastAPI) -> None:
    """Add the routes on pictures."""

    @app.post("/api/models/{model}/pictures", tags=["pictures"], status_code=201)
    async def upload(served: Model, files: Files, label: Label = None, unlabelled: bool = False) -> schemas.Upload:
        """Keep pictures for the next lesson; each is on the disk when this answers."""
        label = None if label is None else class_name(label)
        return schemas.Upload(**asdict(await served.upload(opened(files), label, unlabelled)))

    @app.get("/api/models/{model}/pictures", tags=["pictures"])
    async def listed(
        served: Model,
        label: Label = None,
        start: Annotated[int, Query(ge=0, le=10**9)] = 0,
        count: Annotated[int, Query(ge=1, le=500)] = 100,
    ) -> schemas.PictureList:
        """List the pictures of a class, the waiting ones first; without a class, the unlabelled ones."""
        view = await served.seen()
        waiting = {one.id for one in served.lessons.waiting(view)}
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

    @app.post("/api/models/{model}/pictures/right", tags=["pictures"])
    async def right(served: Model, asked: schemas.Chosen) -> list[schemas.Doubt]:
        """Say that learnt pictures are right as they are: they are doubted no more. Return the doubts that stay."""
        await served.call_right(asked.ids)
        return await doubted(served)
