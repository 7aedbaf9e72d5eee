"""The command that serves models to a browser and over HTTP: serve. Nothing heavy is imported before it runs."""

import importlib.util
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from daydream.cli.common import MaxPixels, allow_pixels
from daydream.errors import UserError

NEEDED = ("fastapi", "uvicorn", "python_multipart", "onnxruntime", "onnx")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
GRACE = 2
"""Seconds that open connections are given when the server stops."""


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("serve")(serve)


def serve(
    model: Annotated[Path, typer.Argument(help="a model file, a new one too, or a folder of them", show_default=False)],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free")] = 8765,
    host: Annotated[str, typer.Option(help="the address to listen on; any but this machine's own needs a token")] = (
        "127.0.0.1"
    ),
    token: Annotated[str, typer.Option(help="what a visitor must know; made and printed where one is needed")] = "",
    keep_pictures: Annotated[
        int,
        typer.Option(
            min=0,
            max=1,
            help="keep pictures in MODEL.pictures/; 0: delete them once they are taught, those of before too",
        ),
    ] = 1,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="do not open the page")] = False,
    max_pixels: MaxPixels = None,
) -> None:
    """Teach, try and mend a model in the browser, and over HTTP: one page, no internet."""
    check_installed(NEEDED)
    check_place(model)
    allow_pixels(max_pixels)
    listener = bound(host, port)
    import uvicorn

    from daydream.serve.app import make_app
    from daydream.serve.guard import LOOPBACK as OWN
    from daydream.serve.guard import Gate
    from daydream.serve.models import Models

    outside = host not in LOOPBACK
    secret = token or (secrets.token_urlsafe(24) if outside else None)
    gate = Gate(hosts=None if outside else OWN, token=secret)
    shown = f"[{host}]" if ":" in host else socket.gethostname() if host in ("0.0.0.0", "") else host
    address = f"http://{shown}:{listener.getsockname()[1]}/" + (f"?token={secret}" if secret else "")
    sys.stdout.write(f"{model}: {address}\nCtrl-C ends it\n")
    sys.stdout.flush()
    app = make_app(Models(model, keep=bool(keep_pictures)), gate)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=GRACE
    )
    if not no_browser:
        threading.Timer(1.0, webbrowser.open, [address]).start()
    uvicorn.Server(config).run(sockets=[listener])


def check_installed(packages: Sequence[str]) -> None:
    """Say how to get what the server needs."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"serve needs {', '.join(missing)}: pip install 'daydream[serve]'")


def check_place(model: Path) -> None:
    """Refuse a place where no model could lie."""
    if not model.is_dir() and not model.parent.is_dir():
        raise UserError(f"{model.parent} is not a folder: name a model file in one, or a folder of models")
    if not model.is_dir() and model.suffix != ".daydream" and not model.is_file():
        raise UserError(f"{model} is not there: name a model file, a new one as NAME.daydream, or a folder of them")


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens there.

    Its protocol is named: asyncio else leaves its connections to gather what they send, 40 ms for each answer.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # who comes before the server is ready waits
    except (OSError, UnicodeError) as error:
        listener.close()
        why = getattr(error, "strerror", None) or "no such address"
        raise UserError(f"--host {host} --port {port} cannot be listened on ({why}): choose another") from error
    return listener
