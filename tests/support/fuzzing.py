"""Changes to run folders and model files, at random but by a seed, and a watch on what a command does meanwhile."""

import contextlib
import io
import json
import math
import os
import random
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from hostile import TookTooLong, members, within, zipped
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load, save
from torch import Tensor

from daydream.cli.main import main
from daydream.errors import UserError
from daydream.escapes import visible
from daydream.learner.exact_learner import ExactLearner
from daydream.storage.checkpoint_files import sealed

Dice = random.Random
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "pickle.find_class", "socket.connect", "exec.evil")


def other_value(value: Any, dice: Dice) -> Any:
    """Return something else in the place of a value of JSON."""
    return dice.choice(
        (None, -1, 0, 1, 2**62, 10**30, 1e308, 0.5, "", "x" * 50, "../../x", "\x1b[2J", [], {}, [value], {"a": value},
         True, False, not value, [None] * 3, float("nan"), float("inf"), str(value), "ev/own.py:Mine", "a\x00b")
    )  # fmt: skip


def changed_json(root: Any, dice: Dice) -> Any:
    """Change, drop or add one value somewhere in JSON."""
    place, key = {"": root}, ""
    while isinstance(place[key], dict | list) and place[key] and dice.random() < 0.75:  # type: ignore[index]
        place = place[key]  # type: ignore[index,assignment]
        key = dice.choice(list(place)) if isinstance(place, dict) else dice.randrange(len(place))
    if place is not root and dice.random() < 0.15 and isinstance(place, dict) and key != "":
        del place[key]
    else:
        place[key] = other_value(place[key], dice)
        root = place[key] if key == "" else root
    return root


def in_json(path: Path, dice: Dice) -> None:
    value = changed_json(json.loads(path.read_text()), dice)
    if isinstance(value, dict) and "digest" in value and dice.random() < 0.9:
        value = sealed(value)  # whoever changes what it says can make its digest right
    path.write_text(json.dumps(value))


def in_line(path: Path, dice: Dice) -> None:
    lines = path.read_text().splitlines()
    place = dice.randrange(len(lines))
    lines[place] = json.dumps(changed_json(json.loads(lines[place]), dice))
    path.write_text("\n".join(lines) + "\n")


def in_bytes(path: Path, dice: Dice) -> None:
    raw = bytearray(path.read_bytes())
    for _ in range(dice.choice((1, 1, 8, 64))):
        raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
    path.write_bytes(bytes(raw))


def cut(path: Path, dice: Dice) -> None:
    path.write_bytes(path.read_bytes()[: dice.randrange(path.stat().st_size)])


def moved(path: Path, dice: Dice) -> None:
    raw = path.read_bytes()
    start, length = dice.randrange(len(raw)), dice.randrange(1, 1000)
    path.write_bytes(raw[:start] + dice.randbytes(length) + raw[start + dice.choice((0, length)) :])


def gone(path: Path, dice: Dice) -> None:
    path.unlink()


def of_another_kind(path: Path, dice: Dice) -> None:
    path.unlink()
    what = dice.choice(("pipe", "folder", "link", "loop", "device", "outside"))
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        outside = next(p for p in path.parents if p.name == "case").parent / "outside" / "letter"
        path.symlink_to({"link": "nowhere", "loop": path.name, "device": "/dev/zero", "outside": str(outside)}[what])


def changed_run(run: Path, dice: Dice) -> None:
    """Change one file of a run's folder, or two."""
    for _ in range(dice.choice((1, 1, 2))):
        files = [path for path in sorted(run.rglob("*")) if path.is_file() and not path.is_symlink()]
        texts = [path for path in files if path.suffix == ".json"]
        kind = dice.choice((in_json,) * 8 + (in_line,) * 4 + (in_bytes, cut, moved, gone, of_another_kind))
        if kind is in_line:
            files = [path for path in files if path.name == "metrics.jsonl"]
        elif kind is in_json:
            files = texts
        if files:
            with contextlib.suppress(ValueError, IndexError):  # a second change finds no JSON, or nothing, to change
                kind(dice.choice(files), dice)


def changed_kept(folder: Path, dice: Dice) -> None:
    """Change one file of a lesson that is kept, its latest.json above all."""
    latest = folder / "latest.json"
    kind = dice.choice((in_json,) * 8 + (in_bytes, cut, moved, gone, of_another_kind))
    kind(latest if kind is in_json else dice.choice(sorted(folder.iterdir())), dice)


def in_model_json(path: Path, dice: Dice) -> None:
    content = members(path)
    about = changed_json(json.loads(content["model.json"]), dice)
    path.write_bytes(zipped({**content, "model.json": json.dumps(about).encode()}))


def other_tensor(tensors: dict[str, Tensor], dice: Dice) -> dict[str, Tensor]:
    """Change shape, type, values or name of a tensor."""
    name = dice.choice(sorted(tensors))
    tensor = tensors.pop(name)
    kinds = (
        tensor[:-1] if tensor.ndim else tensor,
        tensor.float(),
        tensor.flatten(),
        tensor.double() + 10**9,
        tensor[None],
        torch.zeros(10**7, 0),
        torch.full_like(tensor, float("nan")) if tensor.is_floating_point() else tensor - 1,
    )
    tensors[dice.choice((name, name, name, name + "x", "../" + name))] = dice.choice(kinds)
    return {key: value.contiguous() for key, value in tensors.items()}


def in_tensors(path: Path, dice: Dice) -> None:
    """Change a tensor, all checksums right."""
    content = members(path)
    member = dice.choice(("tensors.safetensors", "images.safetensors"))
    path.write_bytes(zipped({**content, member: save(other_tensor(load(content[member]), dice))}))


def other_members(path: Path, dice: Dice) -> None:
    """Name a member so that it would lie elsewhere, leave one out, or let one unpack to far more."""
    content = members(path)
    name = dice.choice(sorted(content))
    other = dice.choice(("../escape", "/tmp/escape", "..\\escape", "model.json/../../x", "evil.pkl", ""))
    raw = content.pop(name)
    if dice.random() < 0.5:
        path.write_bytes(zipped({**content, other: raw} if other else content))
    else:
        path.write_bytes(zipped({**content, name: bytes(10**6)}, zipfile.ZIP_DEFLATED))


def changed_model(path: Path, dice: Dice) -> None:
    kinds = (in_model_json,) * 6 + (in_tensors,) * 4 + (other_members, in_bytes, cut, moved, of_another_kind)
    dice.choice(kinds)(path, dice)


def in_exact(path: Path, dice: Dice) -> None:
    """Change a word or a tensor of an exact model."""
    with safe_open(path, framework="pt") as file:
        words = dict(file.metadata())
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if dice.random() < 0.6:
        words["about"] = json.dumps(changed_json(json.loads(words["about"]), dice))
    else:
        tensors = other_tensor(tensors, dice)
    path.write_bytes(save(tensors, words))


def changed_exact(path: Path, dice: Dice) -> None:
    dice.choice((in_exact,) * 10 + (in_bytes, cut, moved, of_another_kind))(path, dice)


def asked(words: list[str]) -> None:
    """Do as a command does that asks the exact learner of a file for the class of a picture."""
    model, image = words[1:]
    try:
        p = ExactLearner.load(model).probabilities(image)
        sys.stdout.write(f"{p.tolist()} {math.fsum(p[0].tolist()):.3f}\n")
    except UserError as error:
        sys.stderr.write(f"daydream: {visible(str(error))}\n")
        sys.exit(2)


def picture(path: Path, dice: Dice) -> None:
    """Write a picture of some kind and size, and then change it."""
    side = (dice.randrange(1, 40), dice.randrange(1, 40))
    kind, mode = dice.choice((("PNG", "I;16"), ("PNG", "RGBA"), ("PNG", "P"), ("JPEG", "RGB"), ("JPEG", "CMYK"),
                              ("GIF", "P"), ("WEBP", "RGB"), ("BMP", "RGB")))  # fmt: skip
    Image.new(mode, side).save(path, kind)
    dice.choice((in_bytes, in_bytes, cut, moved, of_another_kind))(path, dice)


class Watched:
    """What a command must not do: write outside of its folder, follow a link out, run what it reads."""

    def __init__(self, inside: Path) -> None:
        self.inside, self.events, self.on = inside, list[str](), False
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in FORBIDDEN:
            self.events.append(f"{event} {arguments}")
        if event == "open" and isinstance(arguments[0], str | os.PathLike):
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            if flags & (os.O_WRONLY | os.O_RDWR) and not self.is_inside(str(arguments[0])):
                self.events.append(f"open {arguments}")
        if event in ("os.remove", "os.rename", "os.rmdir") and not self.is_inside(str(arguments[0])):
            self.events.append(f"{event} {arguments}")

    def is_inside(self, path: str) -> bool:
        whole = Path(os.path.realpath(os.path.dirname(path)))
        cache = os.path.realpath(
            os.environ["DAYDREAM_CACHE"]
        )  # of decoded pictures: it lies outside, and may be written
        return any(whole.is_relative_to(place) for place in (self.inside, cache)) or path == os.devnull

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.events.clear()
        self.on = True
        try:
            yield
        finally:
            self.on = False


def outcome(words: list[str], seconds: float) -> tuple[Any, str, str]:
    """Run a command in this process; return its code, or what it raised, and what it printed."""
    command: Callable[[list[str]], None] = asked if words[0] == "asked" else main
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    code: Any
    try:
        with within(seconds), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            command(words)
            code = 0
    except SystemExit as stop:
        code = stop.code
    except TookTooLong:
        code = "a hang"
    except BaseException as error:
        code = error
    out.flush()
    return code, out.buffer.getvalue().decode(errors="replace"), err.getvalue()  # type: ignore[attr-defined]


def copied(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
