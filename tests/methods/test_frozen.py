"""SimpleCIL and RanPAC: what they compute against a plain reading, and that tasks in turn equal all at once."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from own_images import TINY_LESSON, narrow, tiny_learner, write_classes
from tiny_runs import real_training, tiny_experiment

from daydream.errors import UserError
from daydream.experiment.experiment import Experiment
from daydream.methods.method import network
from daydream.nets import pretrained
from daydream.protocol.inference import over_images
from daydream.stages.stage import State

FROZEN = ["simplecil", "ranpac"]


def learnt(experiment: Experiment) -> State:
    """Run the stages of all tasks that only begin; the base task's network is a random one."""
    method, state = experiment.method, experiment.fresh_state()
    base = experiment.stream.task(0)
    state.nets = {"net": method.new_network(base).eval()}
    for index in range(experiment.num_tasks):
        (*_, last) = method.stages(experiment.stream.task(index))
        assert last.begin is not None
        assert last.epochs == 0
        with torch.no_grad():
            last.begin(state)
    return state


def embedded(experiment: Experiment, state: State) -> tuple[torch.Tensor, torch.Tensor]:
    train = experiment.stream.train
    z = over_images(lambda x: (network(state).features(x),), train, experiment.method.setup.prepare)[0]
    return z, train.labels


def test_simplecil_scores_are_cosines_to_class_means() -> None:
    experiment = tiny_experiment("simplecil")
    state = learnt(experiment)
    z, labels = embedded(experiment, state)
    expected = torch.zeros(len(z), 6)
    for label in range(6):
        mean = sum(z[i] for i in range(len(z)) if labels[i] == label) / int((labels == label).sum())
        for i in range(len(z)):
            expected[i, label] = F.cosine_similarity(z[i], mean, dim=0)
    found = network(state).head(z)
    assert torch.allclose(found, expected, atol=1e-5)


def test_ranpac_task_by_task_is_all_at_once() -> None:
    in_turn = tiny_experiment("ranpac")
    state = learnt(in_turn)
    once = tiny_experiment("ranpac", {"base": 6, "steps": 0})
    both = learnt(once)
    both.nets["net"].load_state_dict(  # equal frozen networks: heads, of other sizes, are not in use
        {k: v for k, v in state.nets["net"].state_dict().items() if not k.startswith("head")}, strict=False
    )
    once.method.stages(once.stream.task(0))[-1].begin(both)  # type: ignore[misc]
    images = in_turn.stream.test_seen(2)
    scores = [
        over_images(lambda x, e=e, s=s: (e.method.predict(s, x).scores,), images, e.method.setup.prepare)[0]  # type: ignore[misc]
        for e, s in ((in_turn, state), (once, both))
    ]
    assert torch.allclose(scores[0], scores[1], atol=1e-4)
    assert scores[0].shape[1] == 6


@pytest.mark.parametrize("method", FROZEN)
def test_trained_on_the_base_task_it_learns_and_does_not_forget_all(method: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"width": 256} if method == "ranpac" else {}
    tasks = real_training(method, tmp_path / "run", **settings)["tasks"]
    assert tasks[0]["cnn"]["top1"] > 75
    # Features of two classes for four: little, but well above a quarter, and above what fine-tuning leaves, nothing.
    assert tasks[1]["cnn"]["top1"] > (65 if method == "ranpac" else 38)
    assert tasks[1]["cnn"]["old"] > 40
    assert tasks[1]["exemplars"] == 0


@pytest.mark.parametrize("method", FROZEN)
def test_published_weights_are_taken_as_they_are(method: str) -> None:
    experiment = tiny_experiment(method, {"backbone": "efficientnet-lite0+untrained"})
    assert [stage.epochs for stage in experiment.method.stages(experiment.stream.task(0))] == [4, 0]
    object.__setattr__(experiment.method.setup, "backbone", "efficientnet-lite0")
    stages = experiment.method.stages(experiment.stream.task(0))
    assert [stage.name for stage in stages] == ["load", "means" if method == "simplecil" else "regress"]
    assert all(stage.epochs == 0 for stage in stages)


@pytest.mark.skipif(not pretrained.installed("efficientnet-lite0"), reason="needs the extra `pretrained`")
@pytest.mark.parametrize("method", FROZEN)
def test_a_whole_run_on_published_weights(method: str, tmp_path: Path) -> None:
    from tiny_runs import Watch

    settings = {"width": 128} if method == "ranpac" else {}
    run = tiny_experiment(method, {"backbone": "efficientnet-lite0@64"}, **settings)
    result = run.start(tmp_path / "run", Watch())
    assert result["last_cnn"] > 50
    assert result["parameters"] == 3_371_008


@pytest.mark.parametrize("method", FROZEN)
def test_a_lesson_of_known_classes_alone_is_refused(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch)
    learner = tiny_learner(method=method)
    learner.learn(write_classes(tmp_path / "a", range(2), 6), **TINY_LESSON)
    with pytest.raises(UserError, match=f"--method {method} learns nothing from classes it knows"):
        learner.learn(write_classes(tmp_path / "b", range(2), 6, first=6), **TINY_LESSON)
    learner.learn(write_classes(tmp_path / "c", [2], 6), **TINY_LESSON)
    assert len(learner.taught.classes) == 3
