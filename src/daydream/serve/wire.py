"""What the server and a worker process say to each other: frames of JSON or of bytes, each after its length."""

import json
import struct
from typing import Any, BinaryIO

HEAD = struct.Struct("<cQ")
WORDS, RAW = b"J", b"B"


def framed(kind: bytes, content: bytes | memoryview) -> tuple[bytes, bytes | memoryview]:
    return HEAD.pack(kind, len(content)), content


def say(out: BinaryIO, value: Any, raw: dict[str, bytes | memoryview] | None = None) -> None:
    """Send a value, and raw content by name after it."""
    blobs = raw or {}
    content = json.dumps({"value": value, "raw": list(blobs)}).encode()
    for head, part in (framed(WORDS, content), *(framed(RAW, blob) for blob in blobs.values())):
        out.write(head)
        out.write(part)
    out.flush()
