"""Parts in whole runs: off they are nothing, on they resume, what does not fit is refused, and a recipe's defaults."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import StopIn, Watch, tiny_experiment, without_times

from daydream.cli.main import main
from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.experiment.config import config_from_json, make_config
from daydream.experiment.naming import command_of
from daydream.methods import METHODS, load_method
from daydream.storage.run_folder import RunFolder

ALL_ON = {"blend": 0.5, "rotations": "all", "erase": 0.4, "augment": "strong"}
TAUGHT = {"pile_distill": 0.5}


@pytest.mark.parametrize("method", sorted(METHODS))
def test_off_they_leave_every_stage_as_it_is(method: str) -> None:
    kind = load_method(method)
    off = {"blend": 1.0, "rotations": "none", "erase": 0.0} if kind.defaults else {}
    experiment = tiny_experiment(method, parts=off)
    if experiment.carried.parts is None:
        assert not kind.carries
        return
    for index in range(experiment.num_tasks):
        task = experiment.stream.task(index)
        stages = experiment.method.stages(task)
        assert all(a is b for a, b in zip(experiment.carried.parts.stages(task, stages), stages, strict=True))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("parts") / "run"
    tiny_experiment(parts=ALL_ON, pile=TAUGHT).start(folder, Watch())
    return RunFolder(folder)


@pytest.mark.parametrize("task", [0, 1, 2])
def test_a_run_resumes_inside_each_stage_to_the_same_numbers(finished: RunFolder, tmp_path: Path, task: int) -> None:
    folder = tmp_path / "stopped"
    with pytest.raises(Interrupted):
        tiny_experiment(parts=ALL_ON, pile=TAUGHT).start(folder, StopIn(task, "train"))
    result = tiny_experiment(parts=ALL_ON, pile=TAUGHT).resume(RunFolder.open(folder), Watch())
    assert without_times(result) == without_times(finished.result)
    assert without_times(RunFolder(folder).metrics()) == without_times(finished.metrics())


def test_a_run_resumes_from_the_checkpoint_of_a_later_epoch(finished: RunFolder, tmp_path: Path) -> None:
    folder = tmp_path / "crashed"
    steps = [
        stage.steps for row in tiny_experiment(parts=ALL_ON, pile=TAUGHT).plan() for stage in row.stages if stage.epochs
    ]
    with pytest.raises(RuntimeError, match="fell over"):
        tiny_experiment(parts=ALL_ON, pile=TAUGHT).start(folder, Watch(crash_at=2 * steps[0] + steps[1] + 2))
    result = tiny_experiment(parts=ALL_ON, pile=TAUGHT).resume(RunFolder.open(folder), Watch())
    assert without_times(result) == without_times(finished.result)


def test_the_share_is_recorded(finished: RunFolder) -> None:
    rows = [row for row in finished.metrics() if row["kind"] == "report"]
    assert [(row["task"], row["stage"]) for row in rows] == [(1, "train"), (2, "train")]
    assert all(row["blend"] == 0.5 and 0 < row["moved"] < 1 for row in rows)


def test_a_head_with_turned_classes_is_not_exported(tmp_path: Path) -> None:
    experiment = tiny_experiment(parts={"rotations": "base"})
    with pytest.raises(Interrupted):
        experiment.start(tmp_path / "run", StopIn(0, "train"))
    with pytest.raises(UserError, match="rotated classes"):
        experiment.classifier(RunFolder.open(tmp_path / "run"))


@pytest.mark.parametrize(
    ("method", "run", "parts", "complaint"),
    [
        ("replay", {}, {"blend": 0.0}, "--blend 0 must be"),
        ("replay", {}, {"blend": 1.5}, "--blend 1.5 must be"),
        ("replay", {}, {"blend": "half"}, "takes a number"),
        ("replay", {}, {"blend": float("nan")}, "--blend nan must be"),
        ("replay", {}, {"erase": 1.0}, "--erase 1 must be"),
        ("replay", {}, {"erase": -0.1}, "--erase -0.1 must be"),
        ("replay", {}, {"rotations": "some"}, "one of none, base, all"),
        ("replay", {}, {"augment": "very"}, "one of plain, strong"),
        ("joint", {}, {"blend": 0.5}, "--blend 0.5 does not fit method 'joint'"),
    ],
)
def test_what_does_not_fit_is_refused(method: str, run: dict[str, Any], parts: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        tiny_experiment(method, run, parts=parts)


def test_a_recipe_brings_its_defaults_and_config_json_records_them(tmp_path: Path) -> None:
    experiment = tiny_experiment("dream", {"tasks": 1})
    experiment.start(tmp_path / "run", Watch())
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert {key: config["parts"][key] for key in ("blend", "rotations", "erase")} == {
        "blend": 0.8,
        "rotations": "base",
        "erase": 0.0,
    }
    assert config["imagination"]["counterparts"] == 0
    assert config_from_json(config).to_json() == experiment.config.to_json()
    words = command_of(config)
    assert "--method dream" in words
    assert not any(flag in words for flag in ("--blend", "--rotation", "--erase", "--counterparts", "--pile-teach"))


@pytest.mark.parametrize(
    ("base_epochs", "blend", "erase", "counterparts", "epochs", "teach"),
    [
        (160, 0.6, 0.375, 2, 60, False),
        (100, 0.6, 0.375, 2, 60, False),
        (99, 0.8, 0.0, 0, 60, True),
        (40, 0.8, 0.0, 0, 40, True),
    ],
)
def test_a_recipe_suits_the_length_of_training(
    base_epochs: int, blend: float, erase: float, counterparts: int, epochs: int, teach: bool
) -> None:
    run = {"data": "cifar100", "method": "dream"}
    config = make_config(run, {}, {"base_epochs": base_epochs})
    assert (config.parts.blend, config.parts.erase, config.parts.rotations) == (blend, erase, "base")
    assert (config.imagination.counterparts, config.method.epochs, config.pile.pile_teach) == (
        counterparts,
        epochs,
        teach,
    )
    assert config_from_json(config.to_json()).to_json() == config.to_json()
    assert command_of(config.to_json()).replace("cifar100 ", "") == "daydream run --data --method dream" + (
        f" --base-epochs {base_epochs}" if base_epochs != 160 else ""
    )


def test_a_short_recipe_is_replay_with_its_parts(tmp_path: Path) -> None:
    """To the bit: what is measured of one is measured of the other."""
    run, pile = {"tasks": 2}, {"pile_teach": True}
    parts = {"rotations": "base", "blend": 0.8}
    recipe = tiny_experiment("dream", run, pile=pile).start(tmp_path / "dream", Watch())
    apart = tiny_experiment("replay", run, parts=parts, pile=pile).start(tmp_path / "replay", Watch())
    own = ("method", "config")
    assert without_times({k: v for k, v in recipe.items() if k not in own}) == without_times(
        {k: v for k, v in apart.items() if k not in own}
    )


def test_what_is_given_beats_a_recipe() -> None:
    config = tiny_experiment("dream", pile={"pile_distill": 0.5}, parts={"blend": 0.7}).config
    assert (config.parts.blend, config.parts.rotations) == (0.7, "base")
    assert config.pile.pile_distill == 0.5
    words = command_of(config.to_json())
    assert "--blend 0.7" in words
    assert "--pile-distill 0.5" in words


def test_help_shows_a_recipes_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    for method, default in (("replay", "[default: 1.0]"), ("dream", "[default: 0.6]")):
        with pytest.raises(SystemExit):
            main(["run", "--data", "cifar100", "--method", method, "--help"])
        text = " ".join(capsys.readouterr().out.replace("│", " ").split())
        about = text[text.index("--blend ") : text.index("--rotations ")]
        assert default in about


def test_a_run_without_parts_in_its_config_is_read() -> None:
    stored = tiny_experiment().config.to_json()
    del stored["parts"]
    assert config_from_json(stored).parts.wanted == {}
    assert "--blend" not in command_of(stored)


@pytest.mark.parametrize(
    ("method", "components", "idle"),
    [
        ("replay", {}, []),
        ("dream", {}, []),
        ("dream", {"parts": {"rotations": "none"}}, []),  # turning off what is on by default is an effect
        ("replay", {"imagination": {"cycle": 1.0}}, ["--cycle", "1.0"]),
        ("replay", {"imagination": {"cycle": 1.0, "imagine": True}}, []),
        ("imagine", {"imagination": {"cycle": 1.0}}, []),
        ("imagine", {"imagination": {"cycle": 1.0, "counterparts": 0}}, ["--cycle", "1.0"]),
        ("replay", {"pile": {"pile_classes": 3}}, ["--pile-classes", "3"]),
        ("replay", {"pile": {"mining": "uniform"}}, ["--mining", "uniform"]),
        ("replay", {"pile": {"mining": "uniform", "pile_distill": 0.5, "pile_classes": 3}}, []),
        ("finetune", {"parts": {"blend": 0.5}}, []),
    ],
)
def test_settings_that_change_nothing_are_named(method: str, components: dict[str, Any], idle: list[str]) -> None:
    assert make_config({"method": method}, {}, {}, **components).carried.without_effect() == idle


def test_a_run_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["run", "--cycle", "1", "--dry-run"])
    assert stop.value.code == 0
    assert "note: --cycle 1.0: no effect, as nothing in this run uses it" in capsys.readouterr().err
