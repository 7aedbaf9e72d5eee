"""Base tasks that runs share, validation, divergence, and what a resumed run must agree on."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny_runs import TINY_DATA, TINY_RECIPE, TINY_RUN, Watch, tiny_experiment, without_times

from daydream.data.images import Resident
from daydream.data.sources.shapes import shapes
from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.experiment import session
from daydream.experiment.config import check_unchanged, completed, config_from_json, make_config
from daydream.experiment.experiment import Experiment, default_order
from daydream.protocol.memory import class_means
from daydream.storage.run_folder import RunFolder


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first") / "run"
    tiny_experiment().start(folder, Watch())
    return folder


def test_base_from_gives_what_training_the_base_task_gives(first: Path, tmp_path: Path) -> None:
    result = tiny_experiment(run={"base_from": str(first)}).start(tmp_path / "run", Watch())
    whole = RunFolder(first).result
    assert whole is not None
    assert without_times(result["tasks"]) == without_times(whole["tasks"])
    epochs = [row for row in RunFolder(tmp_path / "run").metrics() if row["kind"] == "epoch"]
    assert min(row["task"] for row in epochs) == 1


def test_base_from_serves_a_variant(first: Path, tmp_path: Path) -> None:
    result = tiny_experiment(run={"base_from": str(first)}, distillation=0.0).start(tmp_path / "run", Watch())
    whole = RunFolder(first).result
    assert whole is not None
    assert without_times(result["tasks"][0]) == without_times(whole["tasks"][0])
    assert without_times(result["tasks"][1:]) != without_times(whole["tasks"][1:])


def test_a_run_with_a_given_base_resumes(first: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        tiny_experiment(run={"base_from": str(first)}).start(folder, Watch(stop_at=2))
    result = tiny_experiment(run={"base_from": str(first)}).resume(RunFolder(folder), Watch())
    whole = RunFolder(first).result
    assert whole is not None
    assert without_times(result["tasks"]) == without_times(whole["tasks"])


def test_a_run_that_died_in_an_evaluation_resumes(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("daydream.protocol.evaluate.accuracy", fall_over)
        with pytest.raises(RuntimeError, match="out of memory"):
            tiny_experiment().start(folder, Watch())
    result = tiny_experiment().resume(RunFolder(folder), Watch())
    whole = RunFolder(first).result
    assert whole is not None
    assert without_times(result["tasks"]) == without_times(whole["tasks"])


def fall_over(*_: object) -> None:
    raise RuntimeError("out of memory")


@pytest.mark.parametrize(
    ("run", "settings", "word"),
    [
        ({}, {"base_epochs": 3}, "base_epochs: 2 there, 3 here"),
        ({"order": "seed:3"}, {}, "order"),
        ({"base": 4, "steps": 1, "memory": 24}, {}, "base: 2 there, 4 here"),
        ({"backbone": "resnet32"}, {}, "backbone: resnet10 there, resnet32 here"),
        ({"validation": 0.25, "memory": 6}, {}, "validation"),
    ],
)
def test_base_from_a_run_that_does_not_match(first: Path, tmp_path: Path, run: dict, settings: dict, word: str) -> None:
    experiment = tiny_experiment(run={**run, "base_from": str(first)}, **settings)
    with pytest.raises(UserError, match=word):
        experiment.start(tmp_path / "run", Watch())
    assert not (tmp_path / "run").exists()


def test_base_from_a_run_of_another_head(first: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="head: proxy there, linear here"):
        tiny_experiment("finetune", {"base_from": str(first)}).start(tmp_path / "run", Watch())


def test_validation_reports_on_training_images(tmp_path: Path) -> None:
    experiment = tiny_experiment(run={"validation": 0.25, "memory": 6})
    assert len(experiment.stream.test) == 6 * 3
    assert len(experiment.stream.train) == 6 * 9
    result = experiment.start(tmp_path / "run", Watch())
    assert result["evaluated_on"] == "validation"


@pytest.mark.parametrize("stop_at", [None, 3])
def test_a_diverging_run_stops_and_leaves_its_last_good_checkpoint(tmp_path: Path, stop_at: int | None) -> None:
    """A Ctrl-C between a loss that is no number any more and the end of its epoch included."""
    experiment = tiny_experiment(lr=1e30, clamp=1e30)
    with pytest.raises(UserError, match="not finite in epoch 1 of stage 'train'"):
        experiment.start(tmp_path / "run", Watch(stop_at))
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_resuming_with_changed_settings(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        tiny_experiment().start(folder, Watch(stop_at=5))
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["method"]["lr"] = 0.01
    path.write_text(json.dumps(config))
    experiment = Experiment(config_from_json(config))
    with pytest.raises(UserError, match=r"method\.lr"):
        experiment.resume(RunFolder(folder), Watch())


def test_resuming_with_another_method_file(tmp_path: Path) -> None:
    source = (Path(__file__).parents[1] / "support" / "walls_method.py").read_text()
    own = tmp_path / "own.py"
    own.write_text(source)
    config = make_config({**TINY_RUN, "method": f"{own}:Walls"}, TINY_DATA, TINY_RECIPE)
    with pytest.raises(Interrupted):
        Experiment(config).start(tmp_path / "run", Watch(stop_at=5))
    own.write_text(source + "\n# changed\n")
    with pytest.raises(UserError, match="the contents of its method's file changed"):
        Experiment(config).resume(RunFolder(tmp_path / "run"), Watch())


def test_resuming_a_finished_run_returns_its_result(first: Path) -> None:
    result = tiny_experiment().resume(RunFolder(first), Watch())
    assert result == RunFolder(first).result


def test_bf16_on_a_cpu_trains(tmp_path: Path) -> None:
    result = tiny_experiment(run={"precision": "bf16"}).start(tmp_path / "run", Watch())
    assert result["average_cnn"] > 0


def test_tensorboard_events(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra daydream[tensorboard] is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tiny_experiment(run={"tensorboard": True}).start(tmp_path / "run", Watch())
    found = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    epochs = [row for row in RunFolder(tmp_path / "run").metrics() if row["kind"] == "epoch"]
    assert [event.value for event in found.Scalars("train/ce")] == pytest.approx(
        [row["losses"]["ce"] for row in epochs]
    )
    assert len(found.Scalars("accuracy/nme")) == 3


def test_a_run_may_stop_after_its_first_tasks(first: Path, tmp_path: Path) -> None:
    result = tiny_experiment(run={"tasks": 2}).start(tmp_path / "run", Watch())
    whole = RunFolder(first).result
    assert whole is not None
    assert without_times(result["tasks"]) == without_times(whole["tasks"][:2])


def test_the_last_task_says_what_was_taken_for_what(first: Path) -> None:
    rows = RunFolder(first).metrics()
    [confusion] = [row for row in rows if row["kind"] == "confusion"]
    last = [row for row in rows if row["kind"] == "task"][-1]
    assert confusion["task"] == last["task"]
    assert len(confusion["names"]) == last["classes"]
    for kind in ("cnn", "nme"):
        counts = confusion[kind]
        assert [sum(row) for row in counts] == [TINY_DATA["test_per_class"]] * last["classes"]
        right = sum(counts[i][i] for i in range(len(counts)))
        assert 100 * right / sum(map(sum, counts)) == pytest.approx(last[kind]["top1"], abs=1e-3)


@pytest.mark.parametrize("image_size", [24, 100])
def test_images_decoded_ahead_give_what_resident_ones_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image_size: int
) -> None:
    shown = shapes.load(None, shapes.Settings(classes=4, train_per_class=12, test_per_class=1, image_size=image_size))
    for place, label in enumerate(shown.train.labels):
        folder = tmp_path / "photos" / shown.class_names[label]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = shown.train.pixels.fetch(torch.tensor([place]))[0].permute(1, 2, 0)
        Image.fromarray(pixels.numpy()).save(folder / f"{place}.png")
    run = {**TINY_RUN, "data": "folder", "root": str(tmp_path / "photos"), "base": 2, "steps": 1, "memory": 4}
    recipe = {**TINY_RECIPE, "base_epochs": 1, "epochs": 1}
    found = []
    for name, limit in (("resident", "1"), ("decoded", "0")):
        monkeypatch.setenv("DAYDREAM_RESIDENT_GB", limit)
        experiment = Experiment(make_config(run, {"image_size": image_size}, recipe))
        assert isinstance(experiment.stream.train.pixels, Resident) == (name == "resident")
        experiment.start(tmp_path / name, Watch())
        found.append(without_times(RunFolder(tmp_path / name).metrics()))
    assert found[0] == found[1]


def test_a_run_from_before_a_setting_of_its_data_goes_on(tmp_path: Path) -> None:
    """CIFAR had nothing to set before a part of its classes could be labelled."""
    stored = make_config({"data": "cifar100", "root": str(tmp_path), "method": "replay"}, {}, {}).to_json()
    before = {**stored, "data": {}}
    assert completed(before)["data"] == {"labelled": ""}
    check_unchanged(completed(before), stored, "a run")
    with pytest.raises(UserError, match=r"data\.labelled"):
        check_unchanged(completed(before), {**stored, "data": {"labelled": "0:30"}}, "a run")


def test_a_part_of_the_classes_comes_as_it_is_ordered() -> None:
    assert default_order("cifar100", 100) == "icarl"
    assert default_order("cifar100", 30) == default_order("shapes", 100) == "natural"


def test_paths_of_data_are_valid_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tests").mkdir()
    monkeypatch.chdir(tmp_path)
    run = {"data": "folder", "root": "photos"}
    assert make_config(run, {"test_folder": "tests"}, {}).data.test_folder == str(tmp_path / "tests")
    assert make_config(run, {"test_folder": "in-root"}, {}).data.test_folder == "in-root"
    for name in ("first", "own.txt"):
        Path(name).touch()
    subset = {name: make_config({"data": "imagenet-subset"}, {"subset": name}, {}) for name in ("first", "own.txt")}
    assert subset["first"].data.subset == "first"
    assert subset["own.txt"].data.subset == str(tmp_path / "own.txt")


def test_what_changed_outside_its_settings_is_said_unless_settings_did() -> None:
    before = {"run": {"seed": 1}, "fingerprint": "a", "pile_fingerprint": "p"}
    with pytest.raises(UserError, match="the images or their classes changed since"):
        check_unchanged(before, {**before, "fingerprint": "b"}, "a run")
    with pytest.raises(UserError, match=r"the settings changed since its checkpoint \(fingerprint, run\.seed\)"):
        check_unchanged(before, {**before, "fingerprint": "b", "run": {"seed": 2}}, "a run")


def test_nearest_means_are_those_of_exemplars_and_their_mirror_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def note(plain: torch.Tensor, mirrored: torch.Tensor, labels: torch.Tensor, classes: int) -> torch.Tensor:
        seen.append((plain, mirrored))
        return class_means(plain, mirrored, labels, classes)

    monkeypatch.setattr(session, "class_means", note)
    experiment = tiny_experiment(run={"tasks": 1})
    experiment.start(tmp_path / "run", Watch())
    found = experiment.restore(RunFolder(tmp_path / "run"))
    assert found is not None
    state = found[2]
    images = experiment.method.setup.prepare(state.memory.images)
    for given, x in zip(seen[-1], (images, images.flip(3)), strict=True):
        torch.testing.assert_close(given, experiment.method.predict(state, x).features, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(*seen[-1])
