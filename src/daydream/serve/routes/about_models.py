"""Routes on models and classes."""

from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request

import daydream
from daydream.errors import UserError
from daydream.serve import schemas
from daydream.serve.models import Models
from daydream.serve.pictures import PICTURE
from daydream.serve.refusal import class_name
from daydream.serve.routes.chosen import Model
from daydream.serve.served import Served

FIRST = 12
"""Pictures of a class that the wall shows at once."""
FILES = 1000
"""Files of a request; the page sends fewer at a time."""


def line_of(served: Served) -> dict[str, Any]:
    return {"name": served.name, "file": served.path.name, "exists": served.path.is_file()}


async def told(served: Served) -> schemas.ModelAnswer:
    """Return all that the page shows of a model."""
    view = await served.seen()
    kept = served.pictures.all().values()
    waiting = {one.id for one in served.lessons.waiting(view)}
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
    lesson = schemas.ProgressAnswer(**asdict(served.lessons.last.progress)) if served.lessons.last is not None else None
    return schemas.ModelAnswer(
        **line_of(served),
        kind=view.about["kind"],
        about=view.about["about"],
        side=view.about["side"],
        keeps_pictures=served.keep,
        classes=classes,
        sentence=view.about["sentence"],
        can_undo=served.lessons.can_undo(view) and not served.busy,
        unlabelled=sum(one.label is None for one in kept),
        notices=served.notices,
        lesson=lesson,
        uses_unlabelled=view.about["plan"]["unlabelled"] if view.about["kind"] == "adapting" else "no",
    )


def add(app: FastAPI) -> None:
    """Add the routes on models and classes."""

    @app.get("/api", tags=["models"])
    async def server(request: Request) -> schemas.About:
        """Return the models that are served, and what may be sent."""
        from daydream.methods import METHODS

        models: Models = request.app.state.models
        limits = {"request_bytes": request.app.state.gate.most, "picture_bytes": PICTURE, "files": FILES}
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
        await served.rename(asked.name, class_name(asked.to))
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
        """Go back to before the last lesson; its pictures wait again, where pictures are kept."""
        await served.undo()
        return await told(served)
