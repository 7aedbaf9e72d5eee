"""The plan of the house, checked: who may import whom, and who may touch an optimiser."""

import ast
from pathlib import Path

import pytest

import daydream

ROOT = Path(daydream.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
LEAVES = {
    "losses.py": ("daydream.rows",),
    "rows.py": ("daydream.row_kernels", "daydream.kernels_there"),
    "row_kernels.py": (),
    "kernels_there.py": (),
}
"""Files that import nothing of ours but these."""


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.startswith("daydream.")}


def forbidden(path: Path) -> tuple[str, ...]:
    room = path.relative_to(ROOT).parts[0]
    if room in ("methods", "components"):
        return ("daydream.engine", "daydream.experiment", "daydream.cli")
    if room == "engine":
        return ("daydream.methods", "daydream.experiment", "daydream.nets")
    if room == "data":
        return tuple(
            f"daydream.{name}" for name in ("methods", "engine", "stage", "memory", "stream", "nets", "experiment")
        )
    if room == "nets":
        return tuple(
            f"daydream.{name}" for name in ("methods", "engine", "stage", "memory", "stream", "data", "experiment")
        )
    if room in LEAVES:
        return ("daydream.",)
    return ()


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_arrows_point_one_way(path: Path) -> None:
    found = [name for name in imports(path) if not name.startswith(LEAVES.get(str(path.relative_to(ROOT)), ()))]
    wrong = [name for name in found if forbidden(path) and name.startswith(forbidden(path))]
    assert wrong == []


def test_no_method_imports_another() -> None:
    # The base class, a component, and what components share.
    shared = {f"daydream.methods.{name}" for name in ("method", "imagination", "pile")}
    for path in (ROOT / "methods").glob("*.py"):
        if path.name != "__init__.py":
            others = {name for name in imports(path) if name.startswith("daydream.methods")} - shared
            assert all(name.rpartition(".")[0] in shared for name in others), path


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
        if path.name != "unpickle.py":
            text = path.read_text()
            assert "import pickle" not in text, path
            assert "torch.load" not in text, path
