"""Decoding: every kind of file to the same square, here, in workers, and batch by batch."""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from daydream.data import decode_pool, decoded
from daydream.data.decode import canvas_size, decode, decode_group, fits_in_memory, folders_in, images_in
from daydream.data.decode_pool import decode_all, stream
from daydream.data.decoded import Decoded, open_images, open_readable
from daydream.data.images import Resident

pytestmark = pytest.mark.slow

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def colour(path: Path, canvas: int = 8) -> tuple[int, ...]:
    """Decode a picture of one colour and return it."""
    pixels = decode(str(path), canvas)
    assert pixels.shape == (3, canvas, canvas)
    assert pixels.dtype == np.uint8
    assert (pixels == pixels[:, :1, :1]).all()
    return tuple(pixels[:, 0, 0].tolist())


def test_resizes_the_short_side_and_keeps_the_centre(tmp_path: Path) -> None:
    wide = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 90, 3), dtype=np.uint8))
    wide.save(tmp_path / "wide.png")
    wide.transpose(Image.Transpose.TRANSPOSE).save(tmp_path / "tall.png")
    for canvas in (10, 30, 47):
        scaled = wide.resize((3 * canvas, canvas), Image.Resampling.BILINEAR)
        expected = np.asarray(scaled.crop((canvas, 0, 2 * canvas, canvas))).astype(int)
        assert np.abs(decode(str(tmp_path / "wide.png"), canvas).transpose(1, 2, 0) - expected).max() <= 1
        assert np.abs(decode(str(tmp_path / "tall.png"), canvas).transpose(2, 1, 0) - expected).max() <= 1


def test_keeps_the_pixels_of_an_image_of_the_right_size(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert np.array_equal(decode(str(tmp_path / "a.png"), 16), pixels.transpose(2, 0, 1))
    Image.fromarray(pixels).resize((17, 16)).crop((0, 0, 17, 16)).save(tmp_path / "odd.png")
    assert decode(str(tmp_path / "odd.png"), 16).shape == (3, 16, 16)


def test_turns_upright(tmp_path: Path) -> None:
    upright = Image.new("RGB", (16, 16), RED)
    upright.paste(BLUE, (0, 8, 16, 16))  # blue below
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: to be shown after a quarter turn clockwise
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "a.png", exif=exif)
    pixels = decode(str(tmp_path / "a.png"), 16)
    assert tuple(pixels[:, 0, 8]) == RED
    assert tuple(pixels[:, 15, 8]) == BLUE


def test_converts_every_mode_to_rgb(tmp_path: Path) -> None:
    size = (8, 8)
    files = {
        "grey.png": (Image.new("L", size, 77), (77, 77, 77)),
        "bit.png": (Image.new("1", size, 1), WHITE),
        "deep.png": (Image.fromarray(np.full(size, 128 * 257, np.uint16)), (128, 128, 128)),
        "rgba.png": (Image.new("RGBA", size, (*RED, 255)), RED),
        "clear.png": (Image.new("RGBA", size, (*RED, 0)), WHITE),
        "half.png": (Image.new("RGBA", size, (0, 0, 0, 128)), (127, 127, 127)),
        "grey_clear.png": (Image.new("LA", size, (10, 0)), WHITE),
        "palette.png": (Image.new("RGB", size, BLUE).convert("P", palette=Image.Palette.ADAPTIVE), BLUE),
        "x.bmp": (Image.new("RGB", size, GREEN), GREEN),
        "x.webp": (Image.new("RGB", size, WHITE), WHITE),
    }
    for name, (image, expected) in files.items():
        image.save(tmp_path / name, **({"lossless": True} if name.endswith("webp") else {}))
        assert colour(tmp_path / name) == expected, name
    Image.new("P", size, 0).save(tmp_path / "p.png", transparency=0)
    assert colour(tmp_path / "p.png") == WHITE
    Image.new("CMYK", size, (0, 255, 255, 0)).save(tmp_path / "cmyk.jpg", quality=100)
    assert np.abs(np.array(colour(tmp_path / "cmyk.jpg")) - RED).max() < 8
    frames = [Image.new("RGB", size, RED), Image.new("RGB", size, BLUE)]
    frames[0].save(tmp_path / "moves.webp", save_all=True, append_images=frames[1:], lossless=True)
    assert colour(tmp_path / "moves.webp") == RED
    frames[0].save(tmp_path / "gif_called.jpg", format="GIF", save_all=True, append_images=frames[1:])
    assert colour(tmp_path / "gif_called.jpg") == RED


def test_a_large_jpeg_keeps_its_picture(tmp_path: Path) -> None:
    # Pillow may decode it at a fraction of its size, but never smaller than the canvas.
    fine = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    Image.fromarray(fine.repeat(4, 0).repeat(4, 1)).save(tmp_path / "a.jpg", quality=95)
    assert np.abs(decode(str(tmp_path / "a.jpg"), 64).astype(int) - fine).max() <= 4


def broken_files(folder: Path) -> list[str]:
    (folder / "text.png").write_text("not an image")
    (folder / "empty.jpg").write_bytes(b"")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(folder / "cut.jpg")
    raw = (folder / "cut.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(raw[: len(raw) // 2])
    return [str(folder / name) for name in ("text.png", "empty.jpg", "cut.jpg", "absent.png")]


@pytest.mark.parametrize("workers", [0, 2])
def test_decode_all_reports_what_failed_and_keeps_the_order(tmp_path: Path, make_images: Any, workers: int) -> None:
    good = [str(path) for path in make_images(tmp_path / "good", 100, first=1, size=(20, 12))]
    bad = broken_files(tmp_path)
    paths = [*good[:40], bad[0], bad[1], *good[40:90], bad[2], *good[90:], bad[3]]
    original, decode_pool.GROUP_BYTES = decode_pool.GROUP_BYTES, 3 * 8 * 8 * 7  # groups of 7
    try:
        result = decode_all(paths, 8, workers)
    finally:
        decode_pool.GROUP_BYTES = original
    assert sorted(result.failures) == [40, 41, 92, 103]
    assert all("\n" not in reason for reason in result.failures.values())
    kept = [i for i in range(len(paths)) if i not in result.failures]
    assert result.pixels[kept].reshape(100, -1).tolist() == [[value] * 192 for value in range(1, 101)]


def test_decode_group_of_nothing() -> None:
    assert decode_group([], 8).pixels.shape == (0, 3, 8, 8)
    assert decode_all([], 8).pixels.shape == (0, 3, 8, 8)


@pytest.fixture
def many(tmp_path: Path, make_images: Any, monkeypatch: pytest.MonkeyPatch) -> Decoded:
    """Files of grey values 0, 1, 2, ..., which workers decode however few are asked for."""
    monkeypatch.setattr(decoded, "WORTH_WORKERS", 1)
    monkeypatch.setattr(decoded, "num_workers", lambda: 2)
    return Decoded(tuple(str(path) for path in make_images(tmp_path / "many", 60, size=(10, 10))), 8)


def values(batch: torch.Tensor) -> list[int]:
    assert batch.dtype == torch.uint8
    assert batch.shape[1:] == (3, 8, 8)
    return batch[:, 0, 0, 0].tolist()


def children() -> set[str]:
    task = Path(f"/proc/{os.getpid()}/task")
    return {child for thread in task.iterdir() for child in (thread / "children").read_text().split()}


def test_batches_come_in_order(many: Decoded) -> None:
    rows = torch.randperm(60, generator=torch.Generator().manual_seed(0)).view(12, 5)
    before = children()
    assert [values(batch) for batch in many.batches(rows)] == rows.tolist()
    assert children() == before


def test_fetch_and_select_agree_with_batches(many: Decoded, monkeypatch: pytest.MonkeyPatch) -> None:
    index = torch.tensor([7, 3, 3, 59])
    assert values(many.fetch(index)) == index.tolist()
    assert values(many.select(index).fetch(torch.tensor([3, 0]))) == [59, 7]
    monkeypatch.setattr(decoded, "WORTH_WORKERS", 1000)
    assert values(many.fetch(index)) == index.tolist()
    assert [values(batch) for batch in many.batches(index.view(2, 2))] == index.view(2, 2).tolist()
    assert many.fetch(torch.empty(0, dtype=torch.int64)).shape == (0, 3, 8, 8)
    assert many.shape == (60, 3, 8, 8)


@pytest.mark.parametrize("how", ["close", "forget"])
def test_workers_end_with_the_iterator(many: Decoded, how: str) -> None:
    before = children()
    batches: Any = many.batches(torch.arange(60).view(60, 1))
    next(batches)
    assert len(children() - before) == 2
    if how == "close":
        batches.close()
    del batches
    gc.collect()
    assert children() == before


def test_only_a_bounded_number_of_batches_is_ahead(many: Decoded) -> None:
    asked = 0

    def groups() -> Iterator[list[str]]:
        nonlocal asked
        for path in many.paths:
            asked += 1
            yield [path]

    parts = stream(groups(), 8, 2)
    next(parts)
    assert asked == 5  # two per worker, and the one returned
    parts.close()


def test_a_damaged_file_is_named(many: Decoded, user_error: Any) -> None:
    Path(many.paths[33]).write_text("not an image")
    before, seen = children(), 0
    with user_error(many.paths[33], "cannot be decoded"):
        for _ in many.batches(torch.arange(60).view(12, 5)):
            seen += 1
    assert seen == 6
    assert children() == before


def test_a_worker_that_dies_is_reported(many: Decoded, monkeypatch: pytest.MonkeyPatch, user_error: Any) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with user_error("died"):
        list(many.batches(torch.arange(60).view(12, 5)))


SCRIPT = """
import torch
from daydream.data import decoded
decoded.WORTH_WORKERS, decoded.num_workers = 1, lambda: 2
images = decoded.Decoded(tuple({paths!r}), 8)
batches = images.batches(torch.arange(60).view(60, 1))
print(next(batches).shape, flush=True)
{end}
"""


def run_script(path: Path, paths: tuple[str, ...], end: str) -> "subprocess.Popen[str]":
    path.write_text(SCRIPT.format(paths=list(paths), end=end))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def test_a_script_without_a_main_guard_may_leave_its_iterator_open(many: Decoded, tmp_path: Path) -> None:
    process = run_script(tmp_path / "script.py", many.paths, "")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "torch.Size([1, 3, 8, 8])\n", "")


def test_workers_do_not_outlive_a_killed_parent(many: Decoded, tmp_path: Path) -> None:
    process = run_script(tmp_path / "script.py", many.paths, "import time; time.sleep(60)")
    assert process.stdout is not None
    process.stdout.readline()
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.communicate(timeout=20)
    assert len(workers) == 2
    deadline = time.monotonic() + 10
    while any(_runs(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_set_is_resident_when_it_fits(many: Decoded, monkeypatch: pytest.MonkeyPatch, user_error: Any) -> None:
    paths, root = many.paths, Path(many.paths[0]).parent
    index = torch.tensor([5, 50])
    small = open_images("some", root, paths, 8)
    monkeypatch.setenv("DAYDREAM_RESIDENT_GB", str((60 * 3 * 64 - 1) / 2**30))
    large = open_images("some", root, paths, 8)
    assert isinstance(small, Resident)
    assert isinstance(large, Decoded)
    assert values(small.fetch(index)) == values(large.fetch(index)) == [5, 50]
    assert fits_in_memory(59, 8)
    monkeypatch.setenv("DAYDREAM_RESIDENT_GB", "lots")
    with user_error("DAYDREAM_RESIDENT_GB", "lots"):
        fits_in_memory(1, 8)


@pytest.mark.parametrize("limit", ["24", "0"])
def test_unreadable_files_are_skipped_or_fatal(
    many: Decoded, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, user_error: Any, limit: str
) -> None:
    monkeypatch.setenv("DAYDREAM_RESIDENT_GB", limit)
    Path(many.paths[3]).write_text("not an image")
    root = Path(many.paths[0]).parent
    with caplog.at_level("WARNING", logger="daydream"):
        pixels, kept = open_readable("some", root, many.paths, 8)
    assert kept == [i for i in range(60) if i != 3]
    assert values(pixels.fetch(torch.arange(59))) == kept
    assert "skipped 1 of 60" in caplog.text
    assert many.paths[3] in caplog.text
    with user_error(many.paths[3]):
        open_images("others", root, many.paths, 8).fetch(torch.tensor([3]))


def test_lists_images_by_name(tmp_path: Path) -> None:
    for name in ("b.PNG", "a.jpeg", "c.WebP", "notes.txt", ".hidden.png", "._c.png", "d.bmp", "e.gif"):
        (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()
    assert [Path(path).name for path in images_in(tmp_path)] == ["a.jpeg", "b.PNG", "c.WebP", "d.bmp", "e.gif"]


def test_a_folder_that_cannot_be_listed_is_one_line(tmp_path: Path, user_error: Any) -> None:
    for listed in (images_in, folders_in):
        with user_error(tmp_path / "nowhere", "cannot be read (No such file or directory)"):
            listed(tmp_path / "nowhere")


def test_canvas_leaves_room_for_random_crops() -> None:
    assert canvas_size(224, "imagenet") == 256
    assert canvas_size(112, "imagenet") == 128
    assert canvas_size(64, "cifar") == 64
