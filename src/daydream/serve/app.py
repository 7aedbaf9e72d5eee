"""The application: the routes and the page behind their guard, and mistakes as one line."""

import asyncio
import contextlib
import errno
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

import daydream
from daydream.errors import UserError
from daydream.escapes import visible
from daydream.serve import schemas
from daydream.serve.guard import Gate, Guard
from daydream.serve.models import Models
from daydream.serve.refusal import FULL, Refusal
from daydream.serve.routes import about_models, answers, of_lessons, of_pictures

log = logging.getLogger("daydream")

PAGE = Path(__file__).parent / "page"


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
        status: {"model": schemas.Failure} for status in (400, 401, 403, 404, 405, 409, 413, 422, 500, 507)
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
    for router in (about_models, of_pictures, of_lessons, answers):
        router.add(app)
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return Guard(app, gate)


# Mistakes, each as one line.


async def refused(_: Request, error: Exception) -> Response:
    return Failure(error.status if isinstance(error, Refusal) else 422, str(error))


async def system(_: Request, error: Exception) -> Response:
    assert isinstance(error, OSError)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failure(507, f"{FULL}; what was acknowledged is there")
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
