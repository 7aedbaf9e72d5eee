"""The plan of the house, checked: who may import whom, and who may touch an optimiser."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import daydream

ROOT = Path(daydream.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
TABLE = Path(__file__).parents[1] / "docs" / "architecture.md"
STRANGERS = {("methods", "engine"), ("engine", "methods"), ("experiment", "learner"), ("learner", "experiment")}
"""Rooms that do not know each other, whichever comes first."""
SHARED = {f"daydream.methods.{name}" for name in ("method", "unified", "expanding", "external")}
"""What methods are made of: no methods themselves."""
OUTSIDE = {"__init__", "__main__"}
"""The package's own door: it may lead to any room, lazily."""


def rooms() -> dict[str, int]:
    """Return the place of each room in the order of the arrows, as the docs have it."""
    table = re.search(r"^## Rooms$.*?^## ", TABLE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert table is not None
    rows = re.findall(r"^\| ((?:`[a-z]+/?` ?)+)\|", table[0], flags=re.MULTILINE)
    return {name: place for place, row in enumerate(rows) for name in re.findall(r"`([a-z]+)/?`", row)}


ROOMS = rooms()


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(source: str) -> Iterator[str]:
    """Yield every module of ours that a source imports or names, lazily too, and in the words of `importlib`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from inside if node.module == "daydream" else [node.module]
        elif isinstance(node, ast.ImportFrom):
            yield f"daydream.relative.{node.module}"
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"daydream(\.[a-z_0-9]+)+(:\w+)?", str(node.value)):
            yield str(node.value)


def upward(path: str, source: str) -> list[str]:
    """Return the imports of a file that its room may not have."""
    room, found = path.split("/")[0].removesuffix(".py"), []
    for name in imports(source):
        other = name.removeprefix("daydream.").split(".")[0]
        if not name.startswith("daydream.") or other.startswith("__"):
            continue
        known = other in ROOMS and room in ROOMS
        if not known or ROOMS[other] > ROOMS[room] or (room, other) in STRANGERS:
            found.append(f"{room} -> {name}")
    return found


def test_every_room_is_in_the_docs() -> None:
    there = {room_of(path) for path in FILES} - OUTSIDE
    assert there == set(ROOMS)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_arrows_point_one_way(path: Path) -> None:
    if room_of(path) not in OUTSIDE:
        assert upward(str(path.relative_to(ROOT)), path.read_text()) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("nets/heads.py", "from daydream.stages import losses"),
        ("data/images.py", "def f():\n    import daydream.engine.loop"),
        ("engine/loop.py", "from daydream.methods.method import Method"),
        ("learner/lesson.py", "from daydream.experiment import config"),
        ("data/__init__.py", "X = 'daydream.experiment.config'"),
        ("rng.py", "from daydream import experiment"),
        ("nets/heads.py", "from .. import engine"),
        ("attic/old.py", "from daydream import errors"),
    ],
)
def test_an_arrow_that_points_upward_is_seen(path: str, source: str) -> None:
    assert upward(path, source)


def test_each_room_says_what_it_is_for() -> None:
    for path in FILES:
        if path.name == "__init__.py":
            said = ast.get_docstring(ast.parse(path.read_text())) or ""
            assert said.split("\n")[0].endswith("."), path


def test_no_method_imports_another() -> None:
    for path in (ROOT / "methods").glob("*.py"):
        if path.name not in ("__init__.py", "method.py"):
            others = {name for name in imports(path.read_text()) if name.startswith("daydream.methods.")}
            assert others <= SHARED, path


def test_kernels_are_imported_only_where_they_are_asked_for() -> None:
    """At the top of a module outside their room they would be needed: all such imports stand inside functions."""
    lazy = {"nets/kernel_stages.py"}  # itself imported only where the kernels are in use
    for path in FILES:
        if room_of(path) != "kernels" and str(path.relative_to(ROOT)) not in lazy:
            top = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom | ast.Import)]
            found = [name for node in top for name in imports(ast.unparse(node))]
            assert not [name for name in found if name.startswith(("daydream.kernels", "daydream.nets.kernel_stages"))]


def test_without_the_room_of_kernels_the_package_trains(tmp_path: Path) -> None:
    shutil.copytree(ROOT, tmp_path / "daydream", ignore=shutil.ignore_patterns("kernels", "__pycache__"))
    flags = "--classes 6 --train-per-class 20 --test-per-class 5 --base 2 --steps 2 --memory 12 --backbone resnet10"
    train = "--base-epochs 1 --epochs 1 --batch-size 20 --generator-epochs 1 --generator-updates 2 --generator-lr 1e-4"
    words = [*flags.split(), *train.split(), "--method", "imagine", "--out", "run"]
    done = subprocess.run(
        [sys.executable, "-m", "daydream", "run", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "result.json").exists()


def test_only_the_engine_trains() -> None:
    for path in FILES:
        calls = {
            node.func.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        if path.parent.name != "engine":
            assert not calls & {"backward", "zero_grad"}, path
            assert "step" not in calls, path


def test_nothing_is_unpickled_from_a_run() -> None:
    for path in FILES:
        if path.name != "unpickling.py":
            text = path.read_text()
            assert "import pickle" not in text, path
            assert "torch.load" not in text, path
