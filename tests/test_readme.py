"""The documents cannot rot: their commands are run or parsed, their links and their tables are checked."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from documents import PAGES, blocks, commands, text
from own_images import write_classes

from daydream.cli.main import main
from daydream.data import SOURCES
from daydream.methods import METHODS
from daydream.nets.pretrained import installed

pytestmark = pytest.mark.slow

SMALL = 2
"""A run on `shapes` of at most this many epochs is executed; a longer one is planned."""


def call(words: list[str]) -> int:
    with pytest.raises(SystemExit) as end:
        main(words)
    return int(end.value.code or 0)


@pytest.mark.parametrize("page", PAGES)
def test_commands(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    [own] = blocks("docs/add-a-method.md", "python")
    Path("my_method.py").write_text(own, encoding="utf-8")
    for words in commands(page):
        if words[0] != "daydream":
            continue
        code, expected = attempt(words[1:])
        said = capsys.readouterr()
        assert code == (2 if expected else 0), f"{shlex.join(words)}\n{said.out}{said.err}"
        assert expected in said.err, f"{shlex.join(words)}\n{said.err}"


def attempt(words: list[str]) -> tuple[int, str]:
    """Go as far with a command as this machine can; return its exit code and the complaint to expect of it.

    A run whose data is not here must get past its flags and settings, and stop at its root.
    """
    if words[0] == "run" and "--root" in words:
        return call([*words, "--dry-run"]), f"{words[words.index('--root') + 1]} does not exist"
    if words[0] == "run":
        epochs = [int(words[i + 1]) for i, word in enumerate(words) if word in ("--base-epochs", "--epochs")]
        small = len(epochs) == 2 and max(epochs) <= SMALL
        return call([*words, "--device", "cpu"] if small else [*words, "--dry-run"]), ""
    path = next((Path(word) for word in words[1:] if not word.startswith("-")), None)
    there = path is None or path.exists()
    return call(words if there and words[0] != "demo" else [words[0], "--help", *words[1:]]), ""


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
