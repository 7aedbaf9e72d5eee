"""Kill runs and lessons with SIGKILL, at random and inside writes; compare what they come to with those left alone.

`python tests/support/torture.py MINUTES [SEED]` prints a line every minute and a count at the end; it exits with 1 if
one ended otherwise, if one got stuck, or if fewer than a third of the kills fell inside the writing of a file.
"""

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from own_images import write_classes, write_pile
from tiny_runs import without_times

TINY = [
    "--classes=6", "--train-per-class=12", "--test-per-class=6", "--image-size=16", "--backbone=resnet10", "--base=2",
    "--steps=2", "--memory=12", "--base-epochs=6", "--epochs=6", "--batch-size=8", "--checkpoint-every=1", "--quiet",
]  # fmt: skip
LESSON = ["--epochs=6", "--generator-epochs=2", "--backbone=resnet10", "--image-size=16", "--quiet", "--device=cpu"]
ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}
STUCK = 300.0
"""Seconds after which a process that nobody kills is stuck."""


def begin(*words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "daydream", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ALONE)


def end(process: "subprocess.Popen[str]") -> str:
    """Let a process end; return what it said where it failed."""
    try:
        _, err = process.communicate(timeout=STUCK)
    except subprocess.TimeoutExpired:
        process.kill()
        return "it got stuck"
    return err if process.returncode else ""


def writing(folder: Path) -> bool:
    """Say whether some file is being written: a part of it lies there."""
    return any(name.endswith(".part") for _, _, names in os.walk(folder) for name in names)


def kill(process: "subprocess.Popen[str]", folder: Path, dice: random.Random, counts: Counter[str]) -> None:
    """Kill a process at some moment, or while it writes a file; count it unless it had ended."""
    if dice.random() < 0.5:
        wanted = dice.randrange(1, 12)
        while process.poll() is None and wanted:
            wanted -= writing(folder)
            time.sleep(0.0003)
    else:
        last = time.monotonic() + dice.uniform(0.5, 12.0)
        while process.poll() is None and time.monotonic() < last:
            time.sleep(0.02)
    if process.poll() is None:
        process.kill()
        process.wait()
        counts["kills"] += 1
        counts["inside writes"] += writing(folder)
    if process.stderr:
        process.stderr.close()


def killed_run(folder: Path, dice: random.Random, counts: Counter[str]) -> str:
    """Begin a run, kill it some times, let it end; return what is wrong with it."""
    run = folder / "run"
    for _ in range(dice.randrange(1, 6)):
        words = ["resume", str(run), "--quiet"] if (run / "config.json").exists() else ["run", *TINY, "--out", str(run)]
        kill(begin(*words), folder, dice, counts)
    words = ["resume", str(run), "--quiet"] if (run / "config.json").exists() else ["run", *TINY, "--out", str(run)]
    return end(begin(*words))


def result(run: Path) -> Any:
    return without_times(json.loads((run / "result.json").read_text()))


def teach(model: Path, photos: Path) -> list[str]:
    return ["learn", str(model), str(photos / "more"), *LESSON[:2], *LESSON[4:]]


def killed_lesson(folder: Path, before: Path, photos: Path, dice: random.Random, counts: Counter[str]) -> str:
    """Teach a copy of a model a second lesson, killed some times: what is there is the one model or the other."""
    model = folder / "m.daydream"
    shutil.copy(before, model)
    for _ in range(dice.randrange(1, 4)):
        kill(begin(*teach(model, photos)), folder, dice, counts)
        if model.read_bytes() != before.read_bytes():
            break  # the lesson was over before it was killed
    else:
        return end(begin(*teach(model, photos)))
    return ""


def exemplars(model: Path) -> bytes:
    """Return what of a model no clock has a part in: its tensors."""
    import zipfile

    with zipfile.ZipFile(model) as archive:
        return archive.read("tensors.safetensors") + archive.read("images.safetensors")


def main(minutes: float, seed: int) -> int:
    dice, counts, wrong = random.Random(seed), Counter[str](), list[str]()
    place = Path(tempfile.mkdtemp(prefix="daydream-torture-"))
    photos = place / "photos"
    write_classes(photos / "first", range(2), 8)
    write_classes(photos / "more", range(2, 4), 8)
    write_pile(photos / "pile", 20)
    first, both = place / "first.daydream", place / "both.daydream"
    said = end(begin("learn", str(first), str(photos / "first"), "--unlabeled", str(photos / "pile"), *LESSON))
    said += end(begin("run", *TINY, "--out", str(place / "whole")))
    shutil.copy(first, both)
    said += end(begin(*teach(both, photos)))
    assert not said, said
    began = told = time.monotonic()
    for number in itertools.count():
        folder = place / f"case-{number}"
        folder.mkdir()
        if number % 3 < 2:
            said = killed_run(folder, dice, counts)
            same = not said and result(folder / "run") == result(place / "whole")
        else:
            said = killed_lesson(folder, first, photos, dice, counts)
            same = not said and exemplars(folder / "m.daydream") == exemplars(both)
        # A page's part is swept once it is an hour old: nobody holds a lock while a page is written.
        parts = [path.name for path in folder.rglob("*.part") if not path.name.startswith(".report.html.")]
        if parts and same:
            same, said = number % 3 == 2, f"left over: {parts}"
        counts["cases"] += 1
        counts["identical"] += same
        if same:
            shutil.rmtree(folder)
        else:
            wrong.append(f"{folder}: {said or 'it came to something else'}")
        now = time.monotonic()
        if now - told > 60 or now - began > 60 * minutes:
            told = now
            print(f"{(now - began) / 60:.0f} min: {dict(counts)}", flush=True)
        if now - began > 60 * minutes:
            break
    print("\n".join(wrong))
    enough = 3 * counts["inside writes"] >= counts["kills"]
    print("" if enough else "fewer than a third of the kills fell inside writes")
    if not wrong:
        shutil.rmtree(place)
    return int(bool(wrong) or not enough)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())))
