"""What routes share: the model that a path names, and parameters with one meaning everywhere."""

from typing import Annotated, BinaryIO

from fastapi import Depends, File, Query, Request, UploadFile

from daydream.serve.models import Models
from daydream.serve.served import Served


async def chosen(request: Request, model: str) -> Served:
    """Return the model that a path names."""
    models: Models = request.app.state.models
    return models.get(model)


Model = Annotated[Served, Depends(chosen)]
Files = Annotated[list[UploadFile], File(description="pictures, or zip archives of pictures")]
Label = Annotated[str | None, Query(alias="class", max_length=200, description="by default what their folders say")]


def opened(files: list[UploadFile]) -> list[tuple[str, BinaryIO]]:
    """Return the files of a form by name."""
    return [(file.filename or "", file.file) for file in files]
