"""The command on the cache of decoded pictures: cache."""

import json
import sys
import time
from typing import Annotated

import typer
from rich.table import Table

from daydream.cli.common import Json, console


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("cache")(cache)


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="delete them all; they are decoded again when needed")] = False,
    as_json: Json = False,
) -> None:
    """Show the decoded pictures and features that are kept, so that the next time is quick; or clear them away."""
    from daydream.data import cache as kept

    folder, limit, slots = kept.cache_folder(), kept.limit_bytes(), kept.slots()
    if clear:
        freed = kept.clear()
        sys.stdout.write(
            json.dumps({"folder": str(folder), "freed": freed}) + "\n"
            if as_json
            else f"{folder}: {freed / 1e9:.2f} GB of decoded pictures and features deleted\n"
        )
        return
    if as_json:
        rows = [
            {"file": slot.path.name, "set": slot.label, "source": slot.source, "bytes": slot.bytes, "used": slot.used}
            for slot in slots
        ]
        sys.stdout.write(json.dumps({"folder": str(folder), "limit": limit, "files": rows}) + "\n")
        return
    table = Table("set", "decoded from", "GB", "last used")
    for slot in reversed(slots):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(slot.used))
        table.add_row(slot.label, slot.source or "–", f"{slot.bytes / 1e9:.2f}", when)
    total = sum(slot.bytes for slot in slots)
    closing = f"{folder}: {total / 1e9:.2f} GB of at most {limit / 1e9:.2f} GB ($DAYDREAM_CACHE_GB)"
    console().print(*([table] if slots else []), closing, sep="\n", highlight=False, soft_wrap=True)
