"""Routes that ask the model."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from fastapi import FastAPI, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response

from daydream.escapes import visible
from daydream.serve import schemas
from daydream.serve.pictures import PICTURE, Kept
from daydream.serve.predictor import Predictor
from daydream.serve.refusal import Refusal
from daydream.serve.routes.chosen import Files, Model, opened
from daydream.serve.served import Served

AT_ONCE = 64
"""Pictures of one request that are judged."""


def add(app: FastAPI) -> None:
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
        given = opened(files)
        return await run_in_threadpool(judged, predictor, given, top, nearest, kept)

    @app.post("/api/models/{model}/test", tags=["answers"])
    async def test(served: Model, files: Files) -> dict[str, Any]:
        """Measure the model on test pictures, whose folders say what they are; none of them is kept."""
        served.check_idle()
        view = await served.seen()
        given = opened(files)
        report: dict[str, Any] = await served.tested(given, view)
        return report

    @app.get("/api/models/{model}/doubts", tags=["answers"])
    async def doubts(served: Model) -> list[schemas.Doubt]:
        """Return pictures that look mislabelled, doubled or odd, the surest first."""
        return await doubted(served)

    @app.get("/api/models/{model}/next", tags=["answers"])
    async def ask_next(served: Model, count: Annotated[int, Query(ge=1, le=200)] = 20) -> list[str]:
        """Return the unlabelled pictures whose labels would help most, by ID."""
        if not served.pictures.unlabelled:
            return []
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
        disposition = {"content-disposition": f'attachment; filename="{plain(target.name)}"'}
        return Response(content, media_type="application/octet-stream", headers=disposition)


async def doubted(served: Served) -> list[schemas.Doubt]:
    rows, kept = await served.doubts(), served.pictures.all()
    return [schemas.Doubt(**row, kept=row["id"] in kept) for row in rows]


def plain(name: str) -> str:
    """Return a file's name as a header can say it."""
    return re.sub(r"[^A-Za-z0-9 ._-]", "_", name)


def judged(
    predictor: Predictor, files: Sequence[tuple[str, BinaryIO]], top: int, nearest: int, kept: Mapping[str, Kept]
) -> list[dict[str, Any]]:
    """Judge uploaded pictures, in the order they came."""
    read = []
    for name, file in files:
        content = file.read(PICTURE + 1)
        if len(content) > PICTURE:
            raise Refusal(413, f"{visible(name)[-80:]} is larger than {PICTURE // 2**20} MiB")
        try:
            read.append(predictor.read(content))
        except MemoryError:
            raise
        except Exception as error:  # a damaged file can raise nearly anything
            why = visible(" ".join(str(error).split()))[:160]
            raise Refusal(422, f"{visible(name)[-80:] or 'a file'} is no picture that can be read: {why}") from error
    judged = predictor.judged(read)
    probabilities, features = judged.probabilities, judged.features
    rows = []
    for place, (name, _) in enumerate(files):
        best = probabilities[place].argsort()[::-1][:top].tolist()
        found = predictor.neighbours(features[place], nearest) if features is not None else []
        limit = predictor.threshold
        rows.append(
            {
                "file": visible(name),
                "classes": [{"name": predictor.names[i], "probability": float(probabilities[place, i])} for i in best],
                "none_of_these": None if limit is None else bool(judged.looks[place] < limit),
                "nearest": [{**asdict(near), "kept": near.id in kept} for near in found],
            }
        )
    return rows
