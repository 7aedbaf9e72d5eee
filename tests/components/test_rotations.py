"""Rotations as classes: turned pixels and labels against loops, the head wide while it trains and narrow after."""

from pathlib import Path

import pytest
import torch
from stages_driven import batch_of, begun, drive, same, snapshot
from tiny_runs import Watch, tiny_experiment, without_times
from torch import Tensor

from daydream.components.rotations import every_turn
from daydream.errors import UserError
from daydream.methods.method import network
from daydream.nets.heads import HEADS
from daydream.stages.stage import Samples
from daydream.storage.run_folder import RunFolder


def turned(image: list[list[float]], quarters: int) -> list[list[float]]:
    """Turn a picture anticlockwise, pixel by pixel."""
    for _ in range(quarters):
        size = len(image)
        image = [[image[j][size - 1 - i] for j in range(size)] for i in range(size)]
    return image


def samples(turns: list[int] | None = None) -> Samples:
    images = torch.randn(3, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    fields = {"weight": torch.tensor([0.1, 0.2, 0.3])} | ({} if turns is None else {"turns": torch.tensor(turns)})
    return Samples(images, torch.tensor([5, 7, 6]), torch.tensor([10, 20, 30]), fields)


def check(image: Tensor, original: Tensor, quarters: int) -> None:
    for channel in range(3):
        assert image[channel].tolist() == turned(original[channel].tolist(), quarters)


def test_every_turn_against_a_loop() -> None:
    given = samples()
    found = every_turn(given, classes=3)
    assert found.labels.tolist() == [5, 7, 6, 8, 10, 9, 11, 13, 12, 14, 16, 15]
    assert found.index.tolist() == [10, 20, 30] * 4
    assert torch.equal(found.fields["weight"], given.fields["weight"].repeat(4))
    for place in range(12):
        check(found.images[place], given.images[place % 3], place // 3)
    assert found.images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("kind", sorted(HEADS))
def test_a_narrowed_head_scores_as_the_upright_quarter(kind: str) -> None:
    head = HEADS[kind](5)
    head.grow(2)
    head.grow(3)
    before, z = snapshot(head), torch.randn(4, 5)
    narrow = head(z)
    head.widen(9)
    assert head.sizes == (2, 12)
    torch.testing.assert_close(head(z)[:, :5], narrow)
    for parameter in head.block(-1):  # as if trained
        parameter.data += 0.1
    wide = head(z)
    head.narrow(3)
    assert head.sizes == (2, 3)
    torch.testing.assert_close(head(z), wide[:, :5])
    assert not torch.equal(head(z)[:, 2:], narrow[:, 2:])
    assert same(before, snapshot(head)) >= {"weights.0"}


def test_the_base_task_trains_turned_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = tiny_experiment(parts={"rotations": "base"})
    stage = experiment.stages(experiment.stream.task(0))[0]
    state = begun(experiment.fresh_state(), stage)
    assert network(state).head.sizes == (8,)
    seen: list[Tensor] = []
    plain = experiment.method.classification

    def watched(state: object, z: Tensor, labels: Tensor) -> Tensor:
        seen.append(labels)
        return plain(state, z, labels)  # type: ignore[arg-type]

    monkeypatch.setattr(experiment.method, "classification", watched)
    batch = batch_of(stage, state, 0)
    stage.losses(state, batch)
    assert len(seen[0]) == 32
    assert torch.equal(seen[0] % 2, batch["new"].labels.repeat(4))
    assert len(set((seen[0] // 2).tolist())) > 1
    start = snapshot(network(state).head)["weights.0"]
    drive(experiment, state, 0, stage)
    assert network(state).head.sizes == (2,)
    assert not torch.equal(network(state).head.weights[0], start[:2])
    second = experiment.stages(experiment.stream.task(1))[0]
    assert network(begun(state, second)).head.sizes == (2, 2)


@pytest.mark.parametrize("method", ["replay", "icarl", "bic", "ucir", "podnet", "finetune"])
def test_every_task_can(method: str) -> None:
    """In an increment only the new classes turn; the head is narrow again when exemplars are selected."""
    experiment = tiny_experiment(method, parts={"rotations": "all"})
    state = experiment.fresh_state()
    for index in range(2):
        stages = experiment.stages(experiment.stream.task(index))
        state = begun(state, stages[0])
        assert network(state).head.sizes == ((8,), (2, 8))[index]
        drive(experiment, state, index, stages[0])
        assert network(state).head.sizes == ((2,), (2, 2))[index]
        for stage in stages[1:]:
            if stage.epochs == 0:
                drive(experiment, state, index, stage)
    assert experiment.method.predict(state, torch.zeros(1, 3, 16, 16)).scores.shape == (1, 4)


def test_a_base_task_is_shared_only_with_the_same_rotations(tmp_path: Path) -> None:
    tiny_experiment(run={"tasks": 1}, parts={"rotations": "base"}).start(tmp_path / "turned", Watch())
    taken = {"tasks": 1, "base_from": str(tmp_path / "turned")}
    with pytest.raises(UserError, match="rotations"):
        tiny_experiment(run=taken).start(tmp_path / "other", Watch())
    # What comes after the base task is no condition.
    tiny_experiment(run=taken, parts={"rotations": "base", "blend": 0.5}).start(tmp_path / "same", Watch())
    first, second = (RunFolder(tmp_path / name).result for name in ("turned", "same"))
    assert first["last_cnn"] == second["last_cnn"]


def test_the_last_epochs_of_the_base_task_can_be_upright() -> None:
    """Two stages along one schedule, as many epochs in all; the turned classes go between them."""
    plain = tiny_experiment(base_epochs=5).stages
    experiment = tiny_experiment(base_epochs=5, parts={"rotations": "base"})
    task = experiment.stream.task(0)
    whole, (turned, upright) = plain(task)[0], experiment.stages(task)[:2]
    assert (turned.name, turned.epochs, upright.name, upright.epochs) == ("train", 4, "settle", 1)
    factors = [stage.schedule(epoch, stage.epochs) for stage in (turned, upright) for epoch in range(stage.epochs)]
    assert factors == [whole.schedule(epoch, 5) for epoch in range(5)]
    state = begun(experiment.fresh_state(), turned)
    assert network(state).head.sizes == (8,)
    drive(experiment, state, 0, turned)
    assert network(state).head.sizes == (2,)
    before = snapshot(network(state))
    drive(experiment, state, 0, upright)
    assert not same(before, snapshot(network(state)))


def test_a_settled_base_task_is_shared_whole(tmp_path: Path) -> None:
    parts = {"rotations": "base"}
    tiny_experiment(run={"tasks": 1}, parts=parts, base_epochs=3).start(tmp_path / "first", Watch())
    taken = {"tasks": 1, "base_from": str(tmp_path / "first")}
    tiny_experiment(run=taken, parts=parts, base_epochs=3).start(tmp_path / "second", Watch())
    first, second = (RunFolder(tmp_path / name).result for name in ("first", "second"))
    assert without_times(first["tasks"]) == without_times(second["tasks"])
