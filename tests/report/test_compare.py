"""Two sides of runs: who is paired with whom, what counts once, what is refused, and what the command prints."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from written_runs import write_run

from daydream.errors import UserError
from daydream.report.compare import compare, read_side, replicates
from daydream.report.formats import as_text
from daydream.report.gather import read_runs, sections
from daydream.report.page import about
from daydream.report.paired import verdicts
from daydream.report.summary import lines_of


def written(folder: Path, last: float = 50.0, fingerprint: str = "one", **run: Any) -> Path:
    """Write a finished run with its settings in its result, as a run leaves it."""
    path = write_run(folder, ((80.0,), (last, 90.0)), run=run, fingerprint=fingerprint)
    config, result = (json.loads((path / name).read_text()) for name in ("config.json", "result.json"))
    (path / "result.json").write_text(json.dumps({**result, "config": config}))
    return path


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """Three orders of two methods, B better by 1, 1.1 and 1.2 on average, and a run that only A has."""
    for place in range(4):
        written(tmp_path / "a" / f"r{place}", 50.0, order=f"seed:{place}")
        if place < 3:
            written(tmp_path / "b" / f"r{place}", 54.0 + 0.4 * place, order=f"seed:{place}", method="ucir")
    return tmp_path / "a", tmp_path / "b"


def test_the_command_pairs_by_order_and_gives_a_verdict(sides: tuple[Path, Path], capsys: Any) -> None:
    code, out, _ = call(capsys, "compare", str(sides[0]), "--", str(sides[1]))
    assert code == 0
    assert "A: replay; B: ucir; 3 paired by class order and seed" in out
    assert "1 of A left out, without a partner" in out
    assert "B is better by 1.10 ± 0.06 NME over 3 pairs" in out
    assert "+0.85 and +1.35" in out  # 4.303 standard errors to either side


def test_options_may_stand_on_either_side_and_single_files_are_runs_too(sides: tuple[Path, Path], capsys: Any) -> None:
    a, b = ([str(side / f"r{place}" / "result.json") for place in range(3)] for side in sides)
    code, out, _ = call(capsys, "compare", *b, "--", *a, "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["pairs"], found["nme"]["replicates"], found["nme"]["decided"]) == (3, 3, True)
    assert found["nme"]["difference"] == pytest.approx(-1.1)
    assert found["nme"]["interval"] == pytest.approx([-1.3484, -0.8516], abs=1e-3)
    assert found["nme"]["verdict"].startswith("A is better by 1.10")


def test_pairs_that_share_a_base_task_count_once(tmp_path: Path) -> None:
    for side, gain in (("a", 0.0), ("b", 4.0)):
        for kept in (5, 10):
            for place in range(3):
                given = {"order": f"seed:{place}", "memory": kept, "budget": "per_class"}
                written(tmp_path / side / f"r{place}-{kept}", 50.0 + gain * (1 + place) * (kept == 5), **given)
    found = compare(read_side([tmp_path / "a"], "A"), read_side([tmp_path / "b"], "B"))
    assert (found.pairs, found.found["nme"].pairs, found.found["nme"].replicates) == (6, 6, 3)
    assert found.found["nme"].mean == pytest.approx((0.5 + 1.0 + 1.5) / 3)


def test_seeds_of_one_class_order_count_once(tmp_path: Path, capsys: Any) -> None:
    for side, gain in (("a", 0.0), ("b", 4.6)):
        for seed in (1, 2, 3):
            written(tmp_path / side / f"s{seed}", 50.0 + gain + 0.02 * seed * (gain > 0), order="seed:1", seed=seed)
    code, out, _ = call(capsys, "compare", str(tmp_path / "a"), "--", str(tmp_path / "b"))
    assert code == 0
    assert "not decided: +1.16 CNN over 3 pairs of 1 class order; at least 2 more class orders" in " ".join(out.split())


def test_a_report_counts_seeds_of_one_class_order_once(tmp_path: Path) -> None:
    for method, gain in (("replay", 0.0), ("ucir", 4.6)):
        for seed in (1, 2, 3):
            given = {"order": "seed:1", "seed": seed, "method": method}
            written(tmp_path / f"{method}-{seed}", 50.0 + gain + 0.02 * seed * (gain > 0), **given)
    said = verdicts(lines_of(read_runs(sorted(tmp_path.iterdir()))))
    assert len(said) == 2
    assert all("not decided" in line and "3 pairs of 1 class order" in line for line in said)


def test_settings_of_the_method_and_of_what_it_carries_are_named_where_they_differ(tmp_path: Path, capsys: Any) -> None:
    for place in range(3):
        for side, method, blend, soft in (("a", "replay", 1.0, 0.0), ("b", "dream", 0.6, 4.0)):
            path = written(tmp_path / side / f"r{place}", order=f"seed:{place}", method=method)
            result = json.loads((path / "result.json").read_text())
            own = {"method": {"lr": 0.1, method: 1}, "parts": {"blend": blend}, "pile": {"pile_soft": soft}}
            config = {**result["config"], **own, "format": 2}
            (path / "result.json").write_text(json.dumps({**result, "config": config}))
    found = compare(read_side([tmp_path / "a"], "A"), read_side([tmp_path / "b"], "B"))
    assert found.differs == {"blend": ("1.0", "0.6"), "pile_soft": ("0.0", "4.0")}
    _, out, _ = call(capsys, "compare", str(tmp_path / "a"), "--", str(tmp_path / "b"))
    assert "they differ in blend: 1.0 in A, 0.6 in B" in out


def test_a_base_task_has_several_names() -> None:
    assert replicates([{"a"}, {"b"}, {"c", "a"}, {"d"}]) == [0, 1, 0, 3]
    assert replicates([{"a"}, {"b"}, {"a", "b"}]) == [0, 0, 0]


def test_settings_in_which_the_sides_differ_are_named(sides: tuple[Path, Path], tmp_path: Path) -> None:
    for place in range(3):
        written(tmp_path / "c" / f"r{place}", 54.0, order=f"seed:{place}", memory=77)
    found = compare(read_side([sides[0]], "A"), read_side([tmp_path / "c"], "B"))
    assert found.differs.keys() == {"memory"}
    assert found.differs["memory"][1] == "77"


def test_what_cannot_be_paired_is_refused(sides: tuple[Path, Path], tmp_path: Path, capsys: Any) -> None:
    a, b = map(str, sides)
    written(tmp_path / "other" / "r", 50.0, order="seed:9")
    written(tmp_path / "images" / "r", fingerprint="other")
    write_run(tmp_path / "cut" / "r", finished=False)
    for words, says in (
        ([a, b], "put -- between the two sides"),
        ([a, "--"], "there is no run for B"),
        (["--", b], "there is no run for A"),
        ([a, "--", "nowhere"], "nowhere does not exist"),
        ([a, "--", str(tmp_path / "other")], "no run of A has a partner in B"),
        ([a, "--", str(tmp_path / "images")], "were not judged on the same images"),
        ([a, "--", str(tmp_path / "cut")], "holds no result of a finished run"),
        ([a, f"{b}/r0", "--", b], "two runs of A have the same order and seed"),
    ):
        code, _, err = call(capsys, "compare", *words)
        assert (code, err.count("\n")) == (2, 1)
        assert says in err


def test_a_damaged_file_that_was_named_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(UserError, match=r"x\.json"):
        read_side([tmp_path / "x.json"], "A")


def test_a_report_compares_the_lines_of_one_protocol_with_the_first(sides: tuple[Path, Path], tmp_path: Path) -> None:
    paths = sorted(path for side in sides for path in side.glob("*"))
    written(tmp_path / "c" / "other", order="seed:0", memory=77)
    runs = read_runs([*paths, tmp_path / "c" / "other"])
    said = verdicts(lines_of(runs))
    assert said == [
        "ucir against replay: ucir is better by 1.10 ± 0.06 NME over 3 pairs",
        "ucir against replay: ucir is better by 1.10 ± 0.06 CNN over 3 pairs",
    ]
    assert all(f"- {line}" in as_text(runs, "md") for line in said)
    page = about(sections(runs)[0])
    assert page["verdicts"] == said


def test_a_report_of_runs_that_are_there_twice_or_alone_gives_no_verdict(tmp_path: Path) -> None:
    for name in ("x", "y"):
        written(tmp_path / name, order="seed:0")
        written(tmp_path / f"{name}-ucir", order="seed:0", method="ucir")
    assert verdicts(lines_of(read_runs([tmp_path / "x", tmp_path / "x-ucir"]))) == []
    assert verdicts(lines_of(read_runs(sorted(tmp_path.iterdir())))) == []
