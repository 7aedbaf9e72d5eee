"""Routes on lessons."""

import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated

from fastapi import FastAPI, Query
from starlette.responses import StreamingResponse

from daydream.serve import schemas
from daydream.serve.refusal import Refusal
from daydream.serve.routes.chosen import Model


def add(app: FastAPI) -> None:
    """Add the routes on lessons."""

    @app.get("/api/models/{model}/lessons", tags=["lessons"])
    async def history(served: Model) -> schemas.History:
        """Return what the model has been taught, in order."""
        return schemas.History(records=(await served.seen()).about["history"])

    @app.get("/api/models/{model}/lessons/estimate", tags=["lessons"])
    async def estimate(served: Model, epochs: Annotated[int | None, Query(ge=1, le=10_000)] = None) -> schemas.Estimate:
        """Say what the next lesson will do, before it begins."""
        view = await served.seen()
        plan = await served.lessons.estimate(view, epochs)
        return schemas.Estimate(**asdict(plan), sentence=plan.sentence)

    @app.post("/api/models/{model}/lessons", tags=["lessons"], status_code=202)
    async def teach(served: Model, asked: schemas.LessonAsked) -> schemas.ProgressAnswer:
        """Begin a lesson with the pictures that wait."""
        settings = {key: value for key, value in asked.model_dump().items() if value is not None}
        return schemas.ProgressAnswer(**asdict((await served.lessons.teach(settings)).progress))

    @app.get("/api/models/{model}/lessons/events", tags=["lessons"], response_class=StreamingResponse)
    async def events(served: Model) -> StreamingResponse:
        """Follow the lesson under way, or the last one, as server-sent events; each is a ProgressAnswer."""
        if served.lessons.last is None:
            raise Refusal(404, "no lesson has begun since the server was started")
        followed = served.lessons.last.followed()

        async def lines() -> AsyncIterator[str]:
            async for progress in followed:
                yield f"data: {json.dumps(asdict(progress))}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    @app.delete("/api/models/{model}/lessons/current", tags=["lessons"])
    async def cancel(served: Model) -> schemas.ProgressAnswer:
        """Stop the lesson under way; the model stays as it was."""
        return schemas.ProgressAnswer(**asdict((await served.lessons.cancel()).progress))
