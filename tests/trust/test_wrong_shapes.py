"""JSON that is well formed and of the wrong shape is named in a line, and hides no other run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from hostile import edited, stopped
from written_runs import write_run

Change = Callable[[dict[str, Any]], Any]
SHOWN: list[tuple[str, Change]] = [
    ("config.json", lambda c: c["run"].update(method=7)),
    ("config.json", lambda c: c["run"].pop("order")),
    ("config.json", lambda c: c.update(data=None)),
    ("config.json", lambda c: c.update(method=[1])),
    ("result.json", lambda r: r.update(average_nme="a lot")),
    ("result.json", lambda r: r.update(average_cnn=[])),
    ("result.json", lambda r: r.update(seconds=None)),
    ("result.json", lambda r: r.update(seconds=float("nan"))),
    ("result.json", lambda r: r.update(last_cnn=10**30)),
    ("result.json", lambda r: r.update(mean_parameters={})),
    ("result.json", lambda r: r.update(mean_parameters=1, tasks=[{"parameters": "many"}])),
    ("result.json", lambda r: r.update(config={"format": 1, "run": {}, "parts": 3})),
]
RESUMED: list[tuple[str, Change]] = [
    ("config.json", lambda c: c["run"].update(method=None)),
    ("config.json", lambda c: c.update(run=dict(c["run"], data=3))),
    ("config.json", lambda c: c.update(imagination=[1])),
    ("config.json", lambda c: c.update(parts=3)),
    ("checkpoint/latest.json", lambda i: i.update(files=3)),
    ("checkpoint/latest.json", lambda i: i.update(identity=[])),
    ("checkpoint/latest.json", lambda i: i.update(cursor={"task": "1"})),
    ("checkpoint/latest.json", lambda i: i["cursor"].update(rows=[1])),
    ("checkpoint/latest.json", lambda i: i["state"].update(nets={"net": 1})),
    ("checkpoint/latest.json", lambda i: i["state"]["nets"]["net"].update(kind="Evil")),
    ("checkpoint/latest.json", lambda i: i["state"]["nets"]["net"]["config"].update(sizes=[-1])),
    ("checkpoint/latest.json", lambda i: i["state"]["budget"].update(rule=1)),
    ("checkpoint/latest.json", lambda i: i.update(metrics_size="1")),
    ("checkpoint/latest.json", lambda i: i["files"].pop("memory")),
    ("checkpoint/latest.json", lambda i: i.update(partial={"epoch": 1})),
]


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopped(tmp_path_factory.mktemp("half") / "run")


@pytest.mark.parametrize(("file", "change"), SHOWN)
def test_a_bad_run_is_named_and_hides_no_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, file: str, change: Change
) -> None:
    write_run(tmp_path / "good")
    edited(write_run(tmp_path / "bad") / file, change)
    code, out, err = call(capsys, "list", str(tmp_path))
    assert code == 0, err
    assert str(tmp_path / "good") in out
    assert f"{tmp_path / 'bad'} is left out" in err
    for words in (["show"], ["report", "--format", "csv"], ["report"]):
        code, _, err = call(capsys, words[0], str(tmp_path / "bad"), *words[1:])
        assert (code, err.count("\n")) == (2, 1), err
        assert f"{file} is damaged" in err


def test_half_a_character_is_no_text_and_hides_no_other(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """JSON can spell it, and no output can write it."""
    write_run(tmp_path / "good")
    edited(write_run(tmp_path / "bad") / "config.json", lambda c: c["run"].update(order="\ud800"))
    code, out, err = call(capsys, "list", str(tmp_path))
    assert code == 0, err
    assert str(tmp_path / "good") in out
    code, _, err = call(capsys, "show", str(tmp_path / "bad"))
    assert (code, err.count("\n")) == (2, 1), err


def test_a_number_larger_than_any_is_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    path = run / "result.json"
    path.write_text(path.read_text().replace('"seconds"', '"more": 1e999, "seconds"'))
    code, out, err = call(capsys, "show", str(run), "--json")
    assert code == 0, err
    assert json.loads(out, parse_constant=lambda name: name)["more"] is None


@pytest.mark.parametrize(
    "row",
    [
        '{"kind": "task"}',
        '{"kind": "task", "task": 9, "classes": 2, "exemplars": 0, "cnn": null, "nme": null, "seconds": 1}',
        '{"kind": "epoch", "task": 0, "stage": 7}',
        '{"kind": ["epoch"]}',
        '{"kind": "confusion", "task": 2, "names": ["a"], "cnn": [[1, 2]]}',
        '{"kind": "epoch", "task": 0, "stage": "", "epoch": 1, "losses": {}, "lr": 1e999, "images": 1, "seconds": 1}',
        "[" * 100_000,
        '{"kind": "epoch", "task": 0, "stage": "", "epoch": 1, "losses": {"a": NaN}, "lr": 1, "images": 1, "seconds": 1}',  # noqa: E501
    ],
)
def test_a_bad_row_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path, row: str) -> None:
    run = write_run(tmp_path / "bad")
    with (run / "metrics.jsonl").open("a") as file:
        file.write(row + "\n")
    for words in (["show"], ["report", "--format", "md"], ["report"]):
        code, _, err = call(capsys, words[0], str(run), *words[1:])
        assert (code, err.count("\n")) == (2, 1), err
        assert "metrics.jsonl is damaged: " in err


@pytest.mark.parametrize(("file", "change"), RESUMED)
def test_a_bad_run_is_not_gone_on_with(
    capsys: pytest.CaptureFixture[str], half: Path, tmp_path: Path, file: str, change: Change
) -> None:
    shutil.copytree(half, tmp_path / "run")
    edited(tmp_path / "run" / file, change)
    for command in ("resume", "export"):
        code, _, err = call(capsys, command, str(tmp_path / "run"))
        lines = [line for line in err.splitlines() if line.startswith("daydream: ")]
        assert (code, len(lines)) == (2, 1), err


@pytest.mark.parametrize("name", ["net", "old"])
def test_a_checkpoint_without_a_network_says_which(
    half: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    run = Path(shutil.copytree(half, tmp_path / "run"))
    edited(run / "checkpoint" / "latest.json", lambda info: info["state"]["nets"].pop(name))
    code, _, err = call(capsys, "resume", str(run), "--quiet")
    assert (code, f"no network '{name}'" in err, err.count("\n")) == (2, True, 1), err


def test_a_whole_number_where_a_loss_was_is_a_number(
    half: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(half, tmp_path / "run"))
    edited(run / "checkpoint" / "latest.json", lambda info: info["partial"]["sums"].update(ce=2))
    code, _, err = call(capsys, "resume", str(run), "--quiet")
    assert code == 0, err
