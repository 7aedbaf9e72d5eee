"""Kill runs, lessons and the server with SIGKILL, at random and inside writes; compare what they come to.

`python tests/support/torture.py` ends after 500 kills (`--kills`), and prints a line every minute and the counts at the
end. It exits with 1 if a case came to something else than one that nobody killed, if one got stuck, if fewer than a
third of the kills fell inside the writing of a file, or if `--minutes` were over first. A kill after the end (when the
result or the taught model had been written, or the server had acknowledged what was asked) is no kill.
"""

import argparse
import itertools
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forked import Command, import_all, writing
from own_images import write_classes, write_pile
from tiny_runs import without_times
from torture_serve import Serving

from daydream.learner import lesson_checkpoint

RUN = [
    "--classes=6", "--train-per-class=12", "--test-per-class=6", "--image-size=16", "--backbone=resnet10", "--base=2",
    "--steps=2", "--memory=12", "--base-epochs=8", "--epochs=8", "--batch-size=8", "--checkpoint-every=1", "--quiet",
]  # fmt: skip
LESSON = ["--epochs=8", "--generator-epochs=2", "--device=cpu", "--quiet"]
FIRST = ["--method=imagine", "--backbone=resnet10", "--image-size=16", "--generator-width=16"]
STUCK = 300.0
"""Seconds after which a process that nobody kills is stuck."""
INSIDE = 0.6
"""Of the kills, how many are to fall into a write; some find none."""
SERVER = 8
"""Every so many cases one is of the server, which takes seconds to start."""


@dataclass
class Torturer:
    """What is tortured, with what dice; how long each thing takes that nobody kills, and what was counted."""

    place: Path
    dice: random.Random
    seconds: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def alone(self, kind: str, *words: str) -> None:
        """Run a command that nobody kills, and note how long it takes."""
        began, modules = time.monotonic(), self.place / "modules"
        said = Command(*words, modules=modules).wait(STUCK)
        assert not said, said
        self.seconds[kind] = time.monotonic() - began
        import_all(modules)

    def counted(self, kind: str, folder: Path, over: bool) -> None:
        """Count a kill that has just been; one that came after the end is none."""
        self.counts["after the end" if over else "kills"] += 1
        if not over:
            self.counts[f"of {kind}s"] += 1
            self.counts["inside writes"] += writing(folder)

    def kill(self, kind: str, folder: Path, over: Callable[[], bool], *words: str) -> None:
        """Begin a command and kill it at some moment, or while it writes a file."""
        command = Command(*words)
        if self.dice.random() < INSIDE:
            left = self.dice.randrange(1, 25)
            while not command.ended():
                if writing(folder):
                    left -= 1
                    if left <= 0 and command.still(lambda: writing(folder)):
                        break
                time.sleep(0.0002)
        else:
            last = time.monotonic() + self.dice.uniform(0, self.seconds[kind])
            while not command.ended() and time.monotonic() < last:
                time.sleep(0.002)
        if command.ended():
            self.counts["ended before"] += 1
            return
        command.kill()
        self.counted(kind, folder, over())

    def run(self, folder: Path) -> str:
        """Begin a run, kill it some times, let it end; return what is wrong with it."""
        run = folder / "run"

        def words() -> list[str]:
            begun = (run / "config.json").exists()
            return ["resume", str(run), "--quiet"] if begun else ["run", *RUN, "--out", str(run)]

        for _ in range(self.dice.randrange(1, 9)):
            self.kill("run", folder, (run / "result.json").exists, *words())
        said = Command(*words()).wait(STUCK)
        same = not said and result(run) == result(self.place / "whole")
        # A page's part is swept once it is an hour old: nobody holds a lock while a page is written.
        left = [path.name for path in folder.rglob("*.part") if not path.name.startswith(".report.html.")]
        left += sorted(unnamed(run / "checkpoint") | unnamed(run / "base")) if same else []
        return said or ("" if same else "it came to something else") or (f"left over: {left}" if left else "")

    def lesson(self, folder: Path) -> str:
        """Teach a copy of a model a second lesson, killed some times; return what is wrong with what it comes to."""
        model, before = folder / "m.daydream", (self.place / "first.daydream").read_bytes()
        model.write_bytes(before)
        words = ["learn", str(model), str(self.place / "photos" / "more"), *LESSON]
        for _ in range(self.dice.randrange(1, 9)):
            self.kill("lesson", folder, lambda: model.read_bytes() != before, *words)
            if model.read_bytes() != before:
                break  # it was over but for what is swept, by the next lesson if by none before
        else:
            if said := Command(*words).wait(STUCK):
                return said
            left = sorted(path.name for path in folder.iterdir())
            if left != [model.name]:
                return f"left over: {left}"
        return "" if tensors(model) == tensors(self.place / "both.daydream") else "it came to something else"


def unnamed(checkpoint: Path) -> set[str]:
    """Return what lies in a checkpoint that it does not speak of."""
    named = json.loads((checkpoint / "latest.json").read_text())["files"].values()
    return {path.name for path in checkpoint.iterdir()} - {"latest.json", *named}


def result(run: Path) -> Any:
    return without_times(json.loads((run / "result.json").read_text()))


def tensors(model: Path) -> bytes:
    """Return what of a model no clock has a part in."""
    with zipfile.ZipFile(model) as archive:
        return archive.read("tensors.safetensors") + archive.read("images.safetensors")


def made_ready(torturer: Torturer) -> Serving:
    """Let each thing be done once with nobody killing it."""
    place = torturer.place
    photos = write_classes(place / "photos" / "first", range(2), 8).parent
    more, pile = write_classes(photos / "more", range(1, 4), 8, first=8), write_pile(photos / "pile", 20)
    first, both = place / "first.daydream", place / "both.daydream"
    torturer.alone("first", "learn", str(first), str(photos / "first"), f"--unlabeled={pile}", *FIRST, *LESSON)
    torturer.alone("run", "run", *RUN, "--out", str(place / "whole"))
    shutil.copy(first, both)
    torturer.alone("lesson", "learn", str(both), str(more), *LESSON)
    return Serving.made_ready(place / "serving", torturer.dice, torturer.counted, INSIDE)


def main(minutes: float, seed: int, kills: int) -> int:
    lesson_checkpoint.SECONDS = 0.0  # a lesson of seconds is kept as one of hours is, at every epoch
    place = Path(tempfile.mkdtemp(prefix="daydream-torture-"))
    torturer, wrong = Torturer(place, random.Random(seed)), list[str]()
    counts, serving = torturer.counts, made_ready(torturer)
    alone = {kind: round(value, 2) for kind, value in (torturer.seconds | serving.seconds).items()}
    print(f"{commit()}, seed {seed}; alone in seconds: {alone}", flush=True)
    began = told = time.monotonic()
    for number in itertools.count(1):
        folder = place / f"case-{number}"
        folder.mkdir()
        case = serving.case if number % SERVER == 0 else torturer.lesson if number % 3 == 2 else torturer.run
        said = case(folder)
        counts["cases"] += 1
        counts["identical"] += not said
        if said:
            wrong.append(f"{folder}: {said}")
        else:
            shutil.rmtree(folder)
        now = time.monotonic()
        over = now - began > 60 * minutes or counts["kills"] >= kills
        if now - told > 60 or over:
            told = now
            print(f"{(now - began) / 60:.1f} min: {dict(counts)}", flush=True)
        if over:
            break
    if counts["kills"] < kills:
        wrong.append(f"there was time for {counts['kills']} kills of {kills}")
    if 3 * counts["inside writes"] < counts["kills"]:
        wrong.append("fewer than a third of the kills fell inside writes")
    print("\n".join(wrong) or "all came to what they come to alone")
    if not wrong:
        shutil.rmtree(place)
    return int(bool(wrong))


def commit() -> str:
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() or "no commit"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kills", type=int, default=500)
    given = parser.parse_args()
    sys.exit(main(given.minutes, given.seed, given.kills))
