"""The package as a stranger gets it: a wheel in a clean environment. About a minute, most of it pip unpacking torch."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "sklearn", "scipy", "numpy", "PIL", "safetensors")


def run(words: Sequence[str | Path], cwd: Path) -> str:
    """Run a command and return its output; a failure shows both streams."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_wheel_in_a_clean_environment(tmp_path: Path) -> None:
    skip_without_registry(tmp_path / "probe")
    run([sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", ROOT], tmp_path)
    [wheel] = (tmp_path / "dist").glob("*.whl")
    check_contents(wheel)

    run([sys.executable, "-m", "venv", tmp_path / "venv"], tmp_path)
    programs = tmp_path / "venv" / "bin"
    install = [programs / "python", "-m", "pip", "install", "--quiet", "--no-compile"]
    run([*install, "-c", ROOT / "constraints.txt", wheel], tmp_path)

    daydream = programs / "daydream"
    assert run([daydream, "--version"], tmp_path).startswith("daydream 0.")
    assert "cifar100" in run([daydream, "datasets"], tmp_path)
    stream = "--classes 4 --train-per-class 12 --test-per-class 4 --image-size 16 --base 2 --steps 1 --memory 8"
    recipe = "--backbone resnet10 --base-epochs 1 --epochs 1 --batch-size 8 --device cpu --out here --quiet"
    run([daydream, "run", *stream.split(), *recipe.split()], tmp_path)
    result = json.loads((tmp_path / "here" / "result.json").read_text(encoding="utf-8"))
    assert len(result["tasks"]) == 2
    assert 0 <= result["average_nme"] <= 100
    assert result["config"]["environment"]["torch"].split("+")[0] == pinned("torch")


def skip_without_registry(folder: Path) -> None:
    """Skip where pip can fetch nothing; past this point every failure is ours."""
    words = [
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--retries",
        "1",
        "--timeout",
        "20",
        "--dest",
        str(folder),
    ]
    probe = subprocess.run([sys.executable, *words, "iniconfig"], stdin=subprocess.DEVNULL, capture_output=True)
    if probe.returncode:
        pytest.skip("pip cannot reach a package registry: a clean environment cannot be filled")


def check_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {"daydream/protocol/orders.json", "daydream/py.typed", "daydream/cli/main.py"} <= set(names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"daydream"}, tops
    kinds = {Path(name).suffix for name in names if name.startswith("daydream/")}
    assert kinds <= {".py", ".json", ".typed", ".html", ".css", ".js"}, kinds
    assert {f"daydream/report/templates/page.{kind}" for kind in ("html", "css", "js")} <= set(names)
    assert {f"daydream/serve/page/{name}" for name in ("index.html", "main.js", "style.css")} <= set(names)
    assert not [name for name in names if "test" in name.lower()]


def pinned(name: str) -> str:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    [version] = [line.partition("==")[2] for line in lines if line.startswith(f"{name}==")]
    return version


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["datasets"], ["list", "--help"]])
def test_light_commands_import_nothing_heavy(words: list[str]) -> None:
    program = (
        "import sys\n"
        "from daydream.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
