"""Pictures as people have them: sixteen bits, turned by the camera, animated, two in one file."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from daydream.data.decode import decode

SIDE = 8
RAMP = np.linspace(0, 65535, SIDE * SIDE).round().astype(np.uint16).reshape(SIDE, SIDE)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_png16(path: Path, colour_type: int, pixels: NDArray[np.uint16]) -> None:
    """Write a PNG of sixteen bits per channel; Pillow itself writes grey ones only."""
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 16, colour_type, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + parts)


@pytest.mark.parametrize(("kind", "colour_type"), [("grey", 0), ("colour", 2), ("grey, alpha", 4), ("alpha", 6)])
@pytest.mark.parametrize("opaque", [True, False])
def test_sixteen_bits_are_scaled_to_eight(tmp_path: Path, kind: str, colour_type: int, opaque: bool) -> None:
    alpha = np.full_like(RAMP, 65535 if opaque else 0)
    colours = [RAMP, RAMP.T, RAMP[::-1]] if colour_type & 2 else [RAMP]
    planes = [*colours, alpha] if colour_type & 4 else colours
    write_png16(tmp_path / "a.png", colour_type, np.stack(planes, axis=-1))
    shown = np.stack(colours if len(colours) == 3 else 3 * colours) / 257
    expected = np.full_like(shown, 255) if colour_type & 4 and not opaque else shown
    assert np.abs(decode(str(tmp_path / "a.png"), SIDE) - expected).max() <= 1, kind


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_or_mirrored_camera_makes_no_difference(tmp_path: Path, orientation: int, suffix: str) -> None:
    """Store an upright picture the way a camera held in each of the eight ways would, and read it back upright."""
    upright = np.zeros((64, 64, 3), np.uint8)
    upright[:32, :32], upright[:32, 32:], upright[32:, :32] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    how = Image.Transpose
    stored_by = {2: how.FLIP_LEFT_RIGHT, 3: how.ROTATE_180, 4: how.FLIP_TOP_BOTTOM, 5: how.TRANSPOSE}
    stored_by |= {6: how.ROTATE_90, 7: how.TRANSVERSE, 8: how.ROTATE_270}
    stored = Image.fromarray(upright)
    if orientation in stored_by:
        stored = stored.transpose(stored_by[orientation])
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / f"a.{suffix}", exif=exif, quality=95)
    found = decode(str(tmp_path / f"a.{suffix}"), 16).astype(int)
    for row, column in ((2, 2), (2, 13), (13, 2), (13, 13)):
        assert np.abs(found[:, row, column] - upright[4 * row, 4 * column]).max() < 12


@pytest.mark.parametrize(
    ("name", "options"),
    [("a.gif", {}), ("a.png", {}), ("a.png", {"default_image": True}), ("a.webp", {}), ("a.jpg", {"format": "MPO"})],
)
def test_the_first_of_several_frames_counts(tmp_path: Path, name: str, options: dict[str, object]) -> None:
    frames = [Image.new("RGB", (SIDE, SIDE), colour) for colour in ("red", "blue", "lime")]
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], **options)
    with Image.open(tmp_path / name) as file:
        assert getattr(file, "n_frames", 1) == 3
    found = decode(str(tmp_path / name), SIDE).astype(int)
    assert np.abs(found - np.array([255, 0, 0])[:, None, None]).max() < 8


@pytest.mark.parametrize("suffix", ["png", "gif"])
def test_a_palette_with_a_transparent_colour_lies_over_white(tmp_path: Path, suffix: str) -> None:
    image = Image.new("P", (SIDE, SIDE), 1)
    image.putpalette([0, 0, 0, 10, 200, 30])
    image.paste(0, (0, 0, 4, SIDE))
    image.save(tmp_path / f"a.{suffix}", transparency=0)
    found = decode(str(tmp_path / f"a.{suffix}"), SIDE)
    assert (found[:, :, :4] == 255).all()
    assert (found[:, :, 4:] == np.array([10, 200, 30])[:, None, None]).all()
