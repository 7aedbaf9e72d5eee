"""Others' words are words: to a terminal, a spreadsheet, LaTeX and Markdown."""

import csv
import io
import shutil
from pathlib import Path

import pytest
from command_line import call
from own_images import write_classes
from written_runs import write_run

LEARN = ("--epochs=1", "--image-size=16", "--backbone=resnet10", "--device=cpu")
EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202ecat"
FORMULAS = ("=HYPERLINK(0)", "+1+2", "-1", "@SUM(A1)")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures in folders of strange names."""
    folder = tmp_path_factory.mktemp("words") / "photos"
    write_classes(folder, range(3), 6)
    for path, name in zip(sorted(folder.iterdir()), (EVIL, "=HYPERLINK(0)", "@SUM(A1)"), strict=True):
        path.rename(folder / name)
    return folder


@pytest.fixture(scope="module")
def model(photos: Path) -> Path:
    from daydream.cli.main import main

    with pytest.raises(SystemExit) as stop:
        main(["learn", str(photos.parent / "m.daydream"), str(photos), *LEARN, "--quiet"])
    assert stop.value.code == 0
    return photos.parent / "m.daydream"


def harmless(*texts: str) -> bool:
    return not any((ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 or c == "\u202e" for t in texts for c in t)


@pytest.mark.parametrize("command", ["classes", "test", "predict", "predict --csv", "learn"])
def test_a_class_name_says_nothing_to_the_terminal(
    capsys: pytest.CaptureFixture[str], model: Path, photos: Path, tmp_path: Path, command: str
) -> None:
    words = command.split()
    if words[0] == "learn":  # a class of too few pictures is named
        shutil.copytree(photos / EVIL, tmp_path / EVIL)
        for path in sorted((tmp_path / EVIL).iterdir())[1:]:
            path.unlink()
        words += [str(tmp_path / "m.daydream"), str(tmp_path), *LEARN]
        shutil.copytree(photos / "@SUM(A1)", tmp_path / "other")
    else:
        words[1:1] = [str(model), *([] if words[0] == "classes" else [str(photos)])]
    code, out, err = call(capsys, *words)
    assert harmless(out, err)
    assert code == (2 if words[0] == "learn" else 0)
    assert "␛[2J" in out + err


def test_a_runs_words_say_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", run={"order": EVIL, "root": EVIL}, fingerprint=EVIL)
    write_run(tmp_path / EVIL, run={"data": EVIL})
    for words in (["list", str(tmp_path)], ["show", str(run)], ["show", str(tmp_path / EVIL)]):
        code, out, err = call(capsys, *words)
        assert harmless(out, err), words
        assert code == 0 or "unknown data set" in err
    for form in ("md", "latex", "csv"):
        code, out, err = call(capsys, "report", str(run), str(tmp_path / EVIL), "--format", form)
        assert harmless(out, err)
        assert code == 0, err


def test_a_spreadsheet_gets_no_formula(
    capsys: pytest.CaptureFixture[str], model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = next((photos / EVIL).iterdir())
    monkeypatch.chdir(tmp_path)
    shutil.copy(picture, "=1+1.png")
    code, out, _ = call(capsys, "predict", str(model), "=1+1.png", "--csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {row["label"][:1] for row in rows} == {"'", "␛"}
    assert {row["path"] for row in rows} == {"'=1+1.png"}


@pytest.mark.parametrize("evil", FORMULAS)
def test_neither_does_a_table_of_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path, evil: str) -> None:
    run = write_run(tmp_path / evil, run={"data": evil, "method": evil, "base": evil})
    code, out, _ = call(capsys, "report", str(run), "--format", "csv")
    assert code in (0, 2)  # a base that is no number may be refused
    assert not [cell for row in csv.reader(io.StringIO(out)) for cell in row if cell[:1] in ("=", "+", "-", "@")]
    run = write_run(tmp_path / "b" / evil, run={"data": evil, "method": evil})
    code, out, _ = call(capsys, "report", str(run), "--format", "csv")
    assert code == 0
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["data"], row["method"], row["runs"]) == (f"'{evil}", f"'{evil}", f"'{evil}")


def test_no_name_breaks_out_of_a_latex_comment(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    evil = "x\n\\input{secret}\r\\write18{id}"
    good = write_run(tmp_path / "good", run={"data": evil})
    cut = write_run(tmp_path / evil, run={"data": evil}, finished=False)
    code, out, _ = call(capsys, "report", str(good), str(cut), "--format", "latex")
    assert code == 0
    assert "\\input" not in out
    assert "\\write" not in out
    (line,) = (line for line in out.splitlines() if "left out" in line)
    assert line.startswith("% left out: x \\textbackslash{}input\\{secret\\}")


def test_markdown_holds_no_html_and_no_link(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)> [a](javascript:b) `c` | d\n## e"
    good = write_run(tmp_path / "good", run={"data": evil, "method": evil, "order": evil})
    cut = write_run(tmp_path / "<b>cut", run={"data": evil}, finished=False)
    code, out, _ = call(capsys, "report", str(good), str(cut), "--format", "md")
    assert code == 0
    assert "<" not in out
    assert "[a]" not in out
    assert len([line for line in out.splitlines() if line.startswith("##")]) == 1
    assert len({line.replace(r"\|", "").count("|") for line in out.splitlines() if line.startswith("|")}) == 1
