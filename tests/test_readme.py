"""The documents cannot rot: their commands are run or parsed, their links and their tables are checked."""

import functools
import re
import shlex
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import PAGES, ROOT, blocks, commands, text
from own_images import write_classes
from tiny_runs import TINY_DATA, TINY_IMAGINATION, TINY_RECIPE, Watch, tiny_experiment

import daydream
from daydream.cli import serve
from daydream.cli.main import main
from daydream.data import SOURCES
from daydream.data.sources.shapes import shapes
from daydream.experiment.config import make_config, sections_of
from daydream.methods import METHODS
from daydream.nets.pretrained import installed
from daydream.reproduce import cost
from daydream.settings import sorted_into

pytestmark = pytest.mark.slow

SMALL = 2
"""A run on `shapes` of at most this many epochs is executed; a longer one is planned."""
ON_RUNS = ("show", "list", "report", "resume", "look", "compare", "export")
WALKED = commands("README.md") + commands("docs/own-images.md")
"""Commands on model files: run as written by the quick start below and by tests/cli/test_models.py."""


def call(words: list[str]) -> int:
    with pytest.raises(SystemExit) as end:
        main(words)
    return int(end.value.code or 0)


@pytest.fixture(scope="module", autouse=True)
def drawn_once() -> Iterator[None]:
    """Draw the same pictures once: most commands of these pages are for one and the same set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "render", functools.cache(shapes.render))
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has ended: what stands for any run a page names."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    tiny_experiment("imagine").start(folder, Watch())
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_commands(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], request: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    [own] = blocks("docs/add-a-method.md", "python")
    Path("my_method.py").write_text(own, encoding="utf-8")
    Path("results").symlink_to(ROOT / "results")
    Path("models").mkdir()
    monkeypatch.setattr(cost, "try_out", lambda *_: cost.Trial(start=1.0))  # all but the time it would take
    serve_nobody(monkeypatch)
    for words in commands(page):
        if words[0] == "torchrun":
            words = words[words.index("daydream") :]
        if words[0] != "daydream":
            continue
        if words[1] in ON_RUNS:
            absent = [Path(word) for word in words if word.startswith("runs/") and not Path(word).exists()]
            for folder in absent:
                shutil.copytree(request.getfixturevalue("finished"), folder)
        capsys.readouterr()
        code, expected = attempt(words[1:])
        said = capsys.readouterr()
        assert code == (2 if expected else 0), f"{shlex.join(words)}\n{said.out}{said.err}"
        assert expected in said.err, f"{shlex.join(words)}\n{said.err}"
        assert "--no-run" not in words or re.search(r"\d \|.*\| done \|", said.out), f"{shlex.join(words)}\n{said.out}"


def serve_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `serve` go as far as a server that has no visitors, whatever else listens on this machine."""
    uvicorn = pytest.importorskip("uvicorn")
    monkeypatch.setattr(serve, "bound", lambda host, port, own=serve.bound: own(host, 0))
    monkeypatch.setattr(serve.threading, "Timer", lambda *_: threading.Thread())
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: [each.close() for each in sockets])


def attempt(words: list[str]) -> tuple[int, str]:
    """Go as far with a command as this machine can; return its exit code and the complaint to expect of it.

    A run or a grid whose data is not here must get past its flags and settings, and stop at its root.
    """
    if words[0] == "run" and "--root" in words:
        return call([*words, "--dry-run"]), f"{words[words.index('--root') + 1]} does not exist"
    if words[0] == "run":
        epochs = [int(words[i + 1]) for i, word in enumerate(words) if word in ("--base-epochs", "--epochs")]
        small = len(epochs) == 2 and max(epochs) <= SMALL
        return call([*words, "--device", "cpu"] if small else [*words, "--dry-run"]), ""
    if words[0] == "reproduce" and "--no-run" not in words:
        planned = [word for word in words if word not in ("--yes", "--dry-run")]
        return call([*planned, "--dry-run"]), "does not exist" if "--root" in words else ""
    if any(word.endswith(".daydream") for word in words) and words[0] != "serve":
        assert ["daydream", *words] in WALKED, f"no test runs {shlex.join(words)}"
        return 0, ""
    return call(words), ""


def test_python_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [block] = blocks("README.md", "python")
    images, labels = np.zeros((20, 16, 16, 3), dtype=np.uint8), np.repeat(np.arange(10), 2)
    real, short = daydream.run, {"backbone": "resnet10", "memory": 10, **TINY_RECIPE, "base_epochs": 1, "epochs": 1}

    def stand_in(**settings: Any) -> Any:
        if isinstance(settings["data"], str):  # its settings hold, its data is not here
            sections = sections_of(settings["data"], settings["method"])
            make_config(**sorted_into(sections, settings))
            settings = {
                "method": settings["method"],
                "data": "shapes",
                "base": 2,
                "steps": 2,
                **TINY_DATA,
                **TINY_IMAGINATION,
            }
        return real(**{**settings, **short})

    monkeypatch.setattr(daydream, "run", stand_in)
    left: dict[str, Any] = {
        f"{part}_{what}": value
        for part in ("train", "test")
        for what, value in (("images", images), ("labels", labels))
    }
    exec(block, left)
    assert len(left["run"].tasks) == 6
    assert Path("page.html").stat().st_size > 10_000


def test_python_of_the_papers_numbers() -> None:
    [block] = blocks("docs/reproduce.md", "python")
    names: dict[str, Any] = {}
    exec(block, names)
    [(said, value)] = re.findall(r"^(paper\.value.*?)  # ([\d.]+)$", block, flags=re.MULTILINE)
    assert eval(said, names) == float(value)


def test_all_python_is_run_by_some_test() -> None:
    here = {"README.md", "docs/reproduce.md", "docs/add-a-method.md"}
    elsewhere = {"docs/own-images.md", "docs/serve.md"}  # tests/cli/test_models.py, tests/serve/test_docs.py
    notebooks = {page for page in PAGES if page.startswith("docs/notebooks/")}
    assert {page for page in PAGES if blocks(page, "python")} == here | elsewhere | notebooks


@pytest.mark.skipif(not installed("efficientnet-lite0"), reason="the extra `pretrained` is not installed")
def test_the_quick_start_with_pictures_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAYDREAM_CACHE", str(tmp_path / "cache"))
    write_classes(Path("photos"), range(2), 10)
    shutil.copy(next(Path("photos").rglob("*.png")), "photo.jpg")
    said = {}
    for words in commands("README.md"):
        if words[:1] == ["daydream"] and "model.daydream" in words:
            assert call(words[1:]) == 0, shlex.join(words)
            said[words[1]] = capsys.readouterr().out
    assert list(said) == ["learn", "predict", "classes"]
    assert "lesson 1: 2 classes, 20 new pictures" in said["learn"]
    assert said["predict"].startswith("photo.jpg  ")
    assert "new pictures like these will be recognised" in said["classes"]


@pytest.mark.parametrize("page", PAGES)
def test_only_known_programs(page: str) -> None:
    targets = set(re.findall(r"^(\w+):", text("Makefile"), flags=re.MULTILINE))
    for words in commands(page):
        assert words[0] in ("daydream", "make", "pip", "git", "cd", "python", "python3", "torchrun"), words
        assert words[0] != "make" or set(words[1:]) <= targets, words


def test_every_method_and_data_set_has_its_row() -> None:
    rows = re.findall(r"^\| `([\w-]+)`", text("docs/reproducibility.md") + text("docs/data.md"), flags=re.MULTILINE)
    unpublished = {"finetune", "simplecil", "ranpac"}
    assert set(METHODS) - unpublished | set(SOURCES) <= set(rows)
    assert all(f"`{name}`" in text("docs/reproducibility.md") for name in unpublished)


def test_changelog_names_this_version() -> None:
    from daydream import __version__

    assert f"## {__version__} " in text("CHANGELOG.md")
