"""The two notebooks run as they stand, and do what they tell."""

from pathlib import Path

import pytest
from documents import PAGES
from notebook import run_notebook

from daydream.nets.pretrained import installed

pytestmark = pytest.mark.slow

pytest.importorskip("plotly")


def test_there_are_two() -> None:
    assert len([page for page in PAGES if page.startswith("docs/notebooks/")]) == 2


@pytest.mark.skipif(not installed("efficientnet-lite0"), reason="the extra `pretrained` is not installed")
def test_teach_from_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAYDREAM_CACHE", str(tmp_path / "cache"))
    left = run_notebook("docs/notebooks/teach-from-folders.md")
    assert left["result"].accuracy > 80  # of four classes
    assert len(left["learner"].classes) == 4
    assert Path("shapes.daydream").is_file()


def test_compare_two_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    left = run_notebook("docs/notebooks/compare-two-methods.md")
    assert left["replay"].last_cnn > left["finetune"].last_cnn
    assert "replay" in Path("report.html").read_text(encoding="utf-8")
