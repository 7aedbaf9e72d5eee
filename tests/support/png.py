"""Black pictures of any size, in files of a few hundred bytes a million pixels."""

import struct
import zlib
from pathlib import Path


def png(path: Path, width: int, height: int, bits: int) -> Path:
    """Write a black PNG, grey at 16 bits and in colours at 8: a few hundred bytes a million pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    packer = zlib.compressobj(1)
    row = bytes(1 + width * (2 if bits == 16 else 3))
    pixels = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, bits, 0 if bits == 16 else 2, 0, 0, 0)
    with path.open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, content in ((b"IHDR", head), (b"IDAT", pixels), (b"IEND", b"")):
            file.write(struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content)))
    return path
