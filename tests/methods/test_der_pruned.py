"""DER with pruning on tiny trainings: gates that shut, channels that go, and what the next extractor starts from."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from own_images import TINY_LESSON, tiny_learner, write_classes
from stages_driven import batch_of, begun, drive, snapshot
from tiny_runs import StopIn, Watch, real_training, tiny_experiment, without_times

from daydream import Learner
from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.experiment.experiment import Experiment
from daydream.methods.method import network
from daydream.nets import pruning
from daydream.nets.extractor import newest, past
from daydream.protocol.inference import over_images
from daydream.stages.gating import FARTHEST, sharpness_at
from daydream.stages.stage import Clock, State
from daydream.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

METHOD, BODY = "der-pruned", 148_624
SETTINGS = {"sparsity": 8.0, "gate_lr": 30.0, "keep": 0.0}
"""Settings under which gates shut within two epochs."""


def test_sharpness_rises_within_an_epoch() -> None:
    found = [sharpness_at(Clock(3, 10, step, 5), 400.0) for step in range(5)]
    expected = [1 / 400 + (400 - 1 / 400) * b / 4 for b in range(5)]
    assert found == pytest.approx(expected)
    assert (found[0], found[-1]) == (1 / 400, 400)
    assert sharpness_at(Clock(0, 1, 0, 1), 400.0) == 400


def test_without_sparsity_it_is_der_bit_for_bit(tmp_path: Path) -> None:
    runs = [tiny_experiment("der"), tiny_experiment("der-pruned", head_epochs=3, sparsity=0.0)]
    for run, name in zip(runs, "ab", strict=True):
        run.start(tmp_path / name, Watch())
    rows = [without_times(RunFolder(tmp_path / name).metrics()) for name in "ab"]
    assert rows[0] == rows[1]
    weights = [sorted(file.name for file in (tmp_path / name / "checkpoint").glob("net.*")) for name in "ab"]
    assert weights[0] == weights[1], "their names are digests of what they hold"


def test_gates_train_without_weight_decay_and_stay_within_bounds(experiment: Experiment) -> None:
    train = experiment.stages(experiment.stream.task(0))[0]
    state = begun(experiment.fresh_state(), train)
    shut = pruning.gates(network(state))
    *rest, own = train.trains(state)
    assert [id(t) for t in own.tensors] == [id(t) for t in shut]
    assert (own.weight_decay, own.factor) == (0.0, 30.0)
    trained = {id(t) for group in rest for t in group.tensors}
    assert trained == {id(p) for p in network(state).parameters()} - {id(t) for t in shut}
    shut[0].data[0], shut[0].data[1] = 50.0, -50.0
    drive(experiment, state, 0, train)
    assert all(bool((gate.abs() <= FARTHEST).all()) for gate in shut)


def test_the_sparsity_loss_falls_and_a_larger_weight_keeps_less() -> None:
    shares = {}
    for weight in (0.5, 3.0, 12.0):
        experiment = tiny_experiment("der-pruned", **{**SETTINGS, "sparsity": weight}, base_epochs=6)
        train, prune, *_ = experiment.stages(experiment.stream.task(0))
        state = begun(experiment.fresh_state(), train)
        before = snapshot(network(state))
        losses = drive(experiment, state, 0, train)
        assert list(losses[0]) == ["ce", "sparsity"]
        assert losses[-1]["sparsity"] < losses[0]["sparsity"]
        assert not any(torch.equal(before[name], value) for name, value in snapshot(network(state)).items())
        assert prune.report is not None
        shares[weight] = prune.report(begun(state, prune))["kept"]
    assert 1 >= shares[0.5] > shares[3.0] > shares[12.0]


def test_the_loss_steers_to_the_share_to_keep() -> None:
    settings = {"sparsity": 8.0, "gate_lr": 30.0, "keep": 0.4, "base_epochs": 24}
    experiment = tiny_experiment("der-pruned", **settings)
    train, prune, *_ = experiment.stages(experiment.stream.task(0))
    state = begun(experiment.fresh_state(), train)
    drive(experiment, state, 0, train)
    assert prune.report is not None
    assert prune.report(begun(state, prune))["kept"] == pytest.approx(0.4, abs=0.12)


def test_pruning_changes_no_answer_and_the_whole_extractor_stays(experiment: Experiment) -> None:
    train, prune, *_ = experiment.stages(experiment.stream.task(0))
    state = begun(experiment.fresh_state(), train)
    drive(experiment, state, 0, train)
    after = begun(state, prune)
    test, prepare = experiment.stream.test, experiment.method.setup.prepare
    before_z, after_z = (
        over_images(lambda x, s=s: (experiment.method.predict(s, x).features,), test, prepare)[0]  # type: ignore[misc]
        for s in (state, after)
    )
    torch.testing.assert_close(after_z, before_z, rtol=1e-5, atol=1e-5)
    assert newest(after.nets).inner
    assert not pruning.slim_blocks(network(after, "unpruned"))
    weights = snapshot(network(after, "unpruned"))
    assert all(torch.equal(value, weights[name]) for name, value in snapshot(network(state)).items() if name in weights)


def test_the_next_starts_from_the_whole_one_with_open_gates(experiment: Experiment, known: State) -> None:
    expand = experiment.stages(experiment.stream.task(2))[0]
    state = begun(known, expand)
    ours, whole = snapshot(network(state)), snapshot(network(known, "unpruned"))
    assert all(torch.equal(ours[name], value) for name, value in whole.items() if not name.startswith("head."))
    assert all(bool((gate > 0).all()) for gate in pruning.gates(network(state)))
    left = [net.config()["inner"] for net in (*past(known.nets), network(known))]
    assert [net.config()["inner"] for net in past(state.nets)] == left
    assert all(left), "pruned ones stay pruned"
    terms = expand.losses(state, batch_of(expand, state, 2))
    assert list(terms) == ["ce", "auxiliary", "sparsity"]


def test_the_sparsity_loss_is_the_share_that_the_masks_leave(experiment: Experiment) -> None:
    train = experiment.stages(experiment.stream.task(0))[0]
    state = begun(experiment.fresh_state(), train)
    batch = batch_of(train, state, 0)
    with torch.no_grad():
        found = float(train.losses(state, batch)["sparsity"]) / SETTINGS["sparsity"]
    s = float(batch.scalars["sharpness"])
    assert s == pytest.approx(1 / 400)
    kept = whole = 0.0
    for block in pruning.slim_blocks(network(state)):
        assert block.gate is not None
        masks = torch.sigmoid(s * block.gate.double()).sum().item()
        for layer in (block.conv1, block.conv2):
            whole += layer.weight.numel()
            kept += masks * layer.weight.numel() / block.inner
    inside = {id(layer) for block in pruning.slim_blocks(network(state)) for layer in (block.conv1, block.conv2)}
    for module in network(state).modules():
        if isinstance(module, torch.nn.Conv2d) and id(module) not in inside:
            kept, whole = kept + module.weight.numel(), whole + module.weight.numel()
    assert found == pytest.approx(kept / whole, rel=1e-4)


def test_parameters_are_those_left(unbroken: RunFolder) -> None:
    result = unbroken.result
    assert result is not None
    counts = [row["parameters"] for row in result["tasks"]]
    kept = [row["kept"] for row in unbroken.metrics() if row["kind"] == "report"]
    assert len(kept) == 3
    assert all(0.01 < share < 0.99 for share in kept)
    assert counts == [round(sum(kept[: i + 1]) * BODY) for i in range(3)]
    assert result["mean_parameters"] == round(sum(counts) / 3)
    assert tiny_experiment("der-pruned").parameters()[0] == 3 * BODY, "at most"


@pytest.mark.parametrize("place", [(0, "train"), (1, "expand"), (1, "balance"), (2, "expand")])
def test_it_resumes_in_each_stage(place: tuple[int, str], tmp_path: Path, unbroken: RunFolder) -> None:
    with pytest.raises(Interrupted):
        tiny_experiment("der-pruned", **SETTINGS).start(tmp_path / "run", StopIn(*place))
    result = tiny_experiment("der-pruned", **SETTINGS).resume(RunFolder.open(tmp_path / "run"), Watch())
    assert without_times(result) == without_times(unbroken.result)


def test_a_pruned_network_is_exported(unbroken: RunFolder, tmp_path: Path) -> None:
    experiment = tiny_experiment("der-pruned", **SETTINGS)
    classifier = experiment.classifier(unbroken)
    classifier.write_onnx(tmp_path / "net.onnx")
    x = classifier.prepare(experiment.stream.test.pixels.fetch(torch.arange(8)))
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    [found] = session.run(["logits"], {"images": x.numpy()})
    with torch.no_grad():
        assert np.abs(found - classifier.network(x).numpy()).max() < 1e-4


def test_a_model_of_lessons_keeps_what_is_left_and_its_twin(tmp_path: Path) -> None:
    learner = tiny_learner(method="der-pruned")
    for lesson in range(2):
        labels = range(2 * lesson, 2 * lesson + 2)
        learner.learn(write_classes(tmp_path / str(lesson), labels, 6), **TINY_LESSON)
    learner.save(tmp_path / "model.daydream")
    again = Learner.load(tmp_path / "model.daydream", device="cpu")
    assert set(again.taught.state.nets) == {"net", "past.0", "unpruned"}
    again.save(tmp_path / "again.daydream")
    assert (tmp_path / "again.daydream").read_bytes() == (tmp_path / "model.daydream").read_bytes()


def test_it_keeps_what_finetuning_loses_with_a_third_of_the_weights(tmp_path: Path) -> None:
    settings = {"sparsity": 3.0, "gate_lr": 30.0, "keep": 0.3, "head_epochs": 12}
    result = real_training("der-pruned", tmp_path / "run", **settings)
    assert result["last_cnn"] > 55  # fine-tuning cannot pass 50
    assert result["tasks"][1]["cnn"]["old"] > 35
    assert result["parameters"] < 2 * 0.45 * BODY


def test_a_backbone_with_other_blocks_is_refused(experiment: Experiment) -> None:
    setup = replace(experiment.method.setup, backbone="timm:resnet18")
    with pytest.raises(UserError, match="does not know those of timm:resnet18: use --method der"):
        experiment.method.__class__(experiment.method.settings, setup).check(experiment.stream)


@pytest.mark.parametrize(("name", "value"), [("sparsity", -1.0), ("keep", 1.0), ("sharpness", 0.5), ("gate_lr", 0.0)])
def test_settings_out_of_range(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} {value} must "):
        tiny_experiment("der-pruned", **{name: value})
