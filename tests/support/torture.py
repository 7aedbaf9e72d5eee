"""Kill runs and lessons with SIGKILL, at random and inside writes; compare what they come to with those left alone.

`python tests/support/torture.py MINUTES [SEED] [KILLS]` prints a line every minute and a count at the end, which comes
sooner if there were so many kills. It exits with 1 if one ended otherwise, if one got stuck, or if fewer than a third
of the kills fell inside the writing of a file.
"""

import itertools
import json
import random
import shutil
import sys
import tempfile
import time
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forked import Command, writing
from own_images import write_classes, write_pile
from tiny_runs import without_times

from daydream.learner import lesson_checkpoint

RUN = [
    "--classes=6", "--train-per-class=24", "--test-per-class=12", "--image-size=16", "--backbone=resnet10", "--base=2",
    "--steps=2", "--memory=12", "--base-epochs=12", "--epochs=12", "--batch-size=8", "--checkpoint-every=1", "--quiet",
]  # fmt: skip
LESSON = ["--epochs=12", "--generator-epochs=4", "--device=cpu", "--quiet"]
FIRST = ["--method=imagine", "--backbone=resnet10", "--image-size=16", "--generator-width=16"]
STUCK = 300.0
"""Seconds after which a process that nobody kills is stuck."""
INSIDE = 0.6
"""Of the kills, how many are to fall into a write; some find none."""


@dataclass
class Torturer:
    """What is tortured, with what dice; how long each thing takes that nobody kills, and what was counted."""

    place: Path
    dice: random.Random
    seconds: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def alone(self, kind: str, *words: str) -> None:
        """Run a command that nobody kills, and note how long it takes."""
        began = time.monotonic()
        said = Command(*words).wait(STUCK)
        assert not said, said
        self.seconds[kind] = time.monotonic() - began

    def kill(self, kind: str, folder: Path, *words: str) -> bool:
        """Begin a command and kill it at some moment, or while it writes a file; say whether it had not ended."""
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
            return False
        command.kill()
        self.counts["kills"] += 1
        self.counts[f"of {kind}s"] += 1
        self.counts["inside writes"] += writing(folder)
        return True

    def run(self, folder: Path) -> str:
        """Begin a run, kill it some times, let it end; return what is wrong with it."""
        run = folder / "run"

        def words() -> list[str]:
            begun = (run / "config.json").exists()
            return ["resume", str(run), "--quiet"] if begun else ["run", *RUN, "--out", str(run)]

        for _ in range(self.dice.randrange(1, 6)):
            self.kill("run", folder, *words())
        said = Command(*words()).wait(STUCK)
        same = not said and result(run) == result(self.place / "whole")
        # A page's part is swept once it is an hour old: nobody holds a lock while a page is written.
        parts = [path.name for path in folder.rglob("*.part") if not path.name.startswith(".report.html.")]
        return said or ("" if same else "it came to something else") or (f"left over: {parts}" if parts else "")

    def lesson(self, folder: Path) -> str:
        """Teach a copy of a model a second lesson, killed some times; return what is wrong with what it comes to."""
        model, before = folder / "m.daydream", (self.place / "first.daydream").read_bytes()
        model.write_bytes(before)
        words = ["learn", str(model), str(self.place / "photos" / "more"), *LESSON]
        for _ in range(self.dice.randrange(1, 6)):
            self.kill("lesson", folder, *words)
            if model.read_bytes() != before:
                break  # it was over but for what is swept, by the next lesson if by none before
        else:
            if said := Command(*words).wait(STUCK):
                return said
            left = sorted(path.name for path in folder.iterdir())
            if left != [model.name]:
                return f"left over: {left}"
        return "" if tensors(model) == tensors(self.place / "both.daydream") else "it came to something else"


def result(run: Path) -> Any:
    return without_times(json.loads((run / "result.json").read_text()))


def tensors(model: Path) -> bytes:
    """Return what of a model no clock has a part in."""
    with zipfile.ZipFile(model) as archive:
        return archive.read("tensors.safetensors") + archive.read("images.safetensors")


def main(minutes: float, seed: int, kills: float) -> int:
    lesson_checkpoint.SECONDS = 0.0  # a lesson of seconds is kept as one of hours is, at every epoch
    place = Path(tempfile.mkdtemp(prefix="daydream-torture-"))
    torturer, wrong = Torturer(place, random.Random(seed)), list[str]()
    photos = write_classes(place / "photos" / "first", range(2), 8).parent
    more, pile = write_classes(photos / "more", range(1, 4), 8, first=8), write_pile(photos / "pile", 20)
    first, both = place / "first.daydream", place / "both.daydream"
    torturer.alone("first", "learn", str(first), str(photos / "first"), f"--unlabeled={pile}", *FIRST, *LESSON)
    torturer.alone("run", "run", *RUN, "--out", str(place / "whole"))
    shutil.copy(first, both)
    torturer.alone("lesson", "learn", str(both), str(more), *LESSON)
    print(f"seed {seed}; alone in seconds: { ({k: round(v, 1) for k, v in torturer.seconds.items()}) }", flush=True)
    began = told = time.monotonic()
    for number in itertools.count():
        folder = place / f"case-{number}"
        folder.mkdir()
        said = (torturer.lesson if number % 3 == 2 else torturer.run)(folder)
        torturer.counts["cases"] += 1
        torturer.counts["identical"] += not said
        if said:
            wrong.append(f"{folder}: {said}")
        else:
            shutil.rmtree(folder)
        now = time.monotonic()
        over = now - began > 60 * minutes or torturer.counts["kills"] >= kills
        if now - told > 60 or over:
            told = now
            print(f"{(now - began) / 60:.1f} min: {dict(torturer.counts)}", flush=True)
        if over:
            break
    print("\n".join(wrong))
    enough = 3 * torturer.counts["inside writes"] >= torturer.counts["kills"]
    print("" if enough else "fewer than a third of the kills fell inside writes")
    if not wrong:
        shutil.rmtree(place)
    return int(bool(wrong) or not enough)


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(
        main(
            float(given[0]),
            int(given[1]) if len(given) > 1 else int(time.time()),
            float(given[2]) if len(given) > 2 else float("inf"),
        )
    )
