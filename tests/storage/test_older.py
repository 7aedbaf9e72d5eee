"""What an earlier version wrote is still read: a run, a result and a model of format 1, kept in tests/golden."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from own_images import write_classes

from daydream import Learner
from daydream.errors import UserError
from daydream.experiment.config import config_from_json
from daydream.reproduce.imported_results import find_results
from daydream.storage.older import ALWAYS, FORMAT, MOVED, upgraded

GOLDEN = Path(__file__).parents[1] / "golden"


def stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / "run" / "config.json").read_text())
    return found


def test_a_run_is_shown_listed_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(GOLDEN / "run", tmp_path / "run"))
    code, out, err = call(capsys, "show", str(run))
    assert (code, err) == (0, "")
    numbers = [line for line in (GOLDEN / "show.txt").read_text().splitlines() if "│" in line or "average" in line]
    assert len(numbers) == 5
    assert all(line.replace(" ", "") in out.replace(" ", "") for line in numbers)
    code, out, _ = call(capsys, "list", str(tmp_path))
    assert code == 0
    assert "imagine" in out
    assert "53.24 / 30.56" in out
    code, out, _ = call(capsys, "report", str(run), "--format", "csv")
    assert code == 0
    assert "53.24" in out


def test_its_settings_are_todays() -> None:
    new = upgraded(stored())
    assert new["format"] == FORMAT
    assert new["pile"]["pile_distill"] == 0.5
    assert new["parts"] == {"blend": 0.6, "rotations": "none", "erase": 0.0}
    assert "gone" not in new
    config = config_from_json(stored())
    assert config.carried.imagines == "generators"
    assert (config.carried.pile_distill, config.parts.blend) == (0.5, 0.6)
    assert upgraded(new) == new


@pytest.mark.parametrize(("old", "new"), MOVED.items(), ids=lambda pair: ".".join(pair))
def test_what_moved_is_where_the_table_says(old: tuple[str, str], new: tuple[str, str]) -> None:
    value: object = "uniform" if old[1] == "mining" else 0.125
    before = stored()
    if old[0] == "parts":
        before["run"]["method"] = "replay"
    before[old[0]][old[1]] = value
    after = upgraded(before)
    assert after[new[0]][new[1]] == value
    assert old == new or old[1] not in after[old[0]]


@pytest.mark.parametrize(("section", "name"), [key for key in ALWAYS if key[0] in ("method", "parts", "data")])
def test_what_went_is_told_where_it_was_not_what_is_always_done(section: str, name: str) -> None:
    before = stored()
    before["parts"] |= {"blend": "0.6", "rotations": "base", "rotation_settle": 0.2}
    before[section][name] = "something else"
    after = upgraded(before)
    assert after["gone"] == {f"{section}.{name}": "something else"}
    with pytest.raises(UserError, match=rf"its setting {section}\.{name} was 'something else'"):
        config_from_json(before)


@pytest.mark.parametrize("blend", ["counts", "held-out"])
def test_a_share_that_was_chosen_is_no_number(blend: str) -> None:
    before = stored()
    before["parts"]["blend"] = blend
    assert upgraded(before)["gone"] == {"parts.blend": blend}
    assert upgraded(before)["parts"]["blend"] == 1.0


def test_it_does_not_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(GOLDEN / "run", tmp_path / "run"))
    (run / "result.json").unlink()
    shutil.rmtree(run / "checkpoint")
    before = (run / "config.json").read_bytes()
    code, _, err = call(capsys, "resume", str(run))
    assert code == 2
    assert "begun by an earlier daydream" in err
    assert (run / "config.json").read_bytes() == before


def test_a_result_counts(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "run" / "result.json", tmp_path / "kept.json")
    assert len(find_results(tmp_path)) == 1


def test_a_model_predicts_the_same_and_learns_on(tmp_path: Path) -> None:
    learner = Learner.load(GOLDEN / "model.daydream")
    pictures = sorted(map(str, write_classes(tmp_path / "a", range(2), 6).rglob("*.png")))[:2]
    expected = json.loads((GOLDEN / "probabilities.json").read_text())
    assert learner.probabilities(pictures).tolist() == [pytest.approx(row, abs=1e-4) for row in expected]
    assert learner.taught.carried["parts"] == {"blend": 1.0, "rotations": "none", "erase": 0.0, "augment": "plain"}
    learner.save(tmp_path / "again.daydream")
    again = Learner.load(tmp_path / "again.daydream")
    assert again.taught.carried == learner.taught.carried
    again.learn(write_classes(tmp_path / "b", [4], 6), epochs=1, batch_size=4)
    assert len(again.taught.classes) == 4
