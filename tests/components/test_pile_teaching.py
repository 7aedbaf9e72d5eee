"""Distillation on the pile without generators: its term, what passes where, what it leaves alone, what is refused."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from own_images import TINY_LESSON, TINY_MODEL, write_classes, write_pile
from stages_driven import after_task, batch_of, begun, stirred
from tiny_runs import TINY_DATA, Watch, tiny_experiment
from torch import Tensor

from daydream.components.pile import SUITED, WORTH, suited_weight
from daydream.components.pile_base import PileInBase
from daydream.components.pile_teaching import PileTeaching
from daydream.errors import UserError
from daydream.experiment.experiment import Experiment
from daydream.learner.course import train
from daydream.learner.learner import Learner
from daydream.learner.settings import LessonSettings
from daydream.methods.method import network
from daydream.stages.stage import Stage, State
from daydream.storage.run_folder import RunFolder

WEIGHT = 0.7
Begun = tuple[Experiment, State, Stage, Stage]


@pytest.fixture(scope="module")
def base() -> State:
    experiment = tiny_experiment(pile={"pile_distill": WEIGHT})
    return after_task(experiment, experiment.fresh_state(), 0)


@pytest.fixture
def increment(base: State) -> Begun:
    """An experiment, a state that has begun its first increment, and that stage without and with the part."""
    experiment = tiny_experiment(pile={"pile_distill": WEIGHT})
    task = experiment.stream.task(1)
    plain, carried = experiment.method.stages(task)[0], experiment.stages(task)[0]
    return experiment, stirred(begun(base, plain)), plain, carried


def test_the_term_is_the_mean_distance_times_the_weight(increment: Begun) -> None:
    _, state, plain, carried = increment
    batch = batch_of(carried, state, 1)
    net, old = network(state).double(), network(state, "old").double()
    apart = []
    with torch.no_grad():
        for image in batch["pile"].images.double():
            z, z_old = net.features(image[None])[0], old.features(image[None])[0]
            apart.append(1 - (z @ z_old) / (z.norm() * z_old.norm()))
        expected = WEIGHT * math.sqrt(4 / 2) * sum(apart) / len(apart)
        net.float(), old.float()
        terms, without = carried.losses(state, batch), plain.losses(state, batch)
    assert expected > 0.001
    torch.testing.assert_close(terms["pile_distill"].double(), torch.as_tensor(expected), rtol=1e-4, atol=1e-6)
    assert set(terms) == {*without, "pile_distill"}
    for name, value in without.items():
        torch.testing.assert_close(terms[name], value)


def test_each_network_passes_once(increment: Begun) -> None:
    _, state, _, carried = increment
    batch, seen = batch_of(carried, state, 1), dict[str, list[int]](net=[], old=[])
    for name in seen:
        network(state, name).lower.register_forward_pre_hook(
            lambda _, given, name=name: seen[name].append(len(given[0]))
        )
    carried.losses(state, batch)
    new, old, pile = (len(batch[name].images) for name in ("new", "old", "pile"))
    assert pile == 2 * old
    assert seen == {"net": [new + old + pile], "old": [old + pile]}


def test_the_pile_stays_out_of_the_statistics(increment: Begun) -> None:
    _, state, plain, carried = increment
    batch = batch_of(carried, state, 1)

    def statistics(stage: Stage) -> list[Tensor]:
        own = begun(state, Stage(name="copy", begin=lambda _: None))
        net = network(own).train()
        stage.losses(own, batch)
        return [values for name, values in net.state_dict().items() if "running" in name]

    for with_pile, without in zip(statistics(carried), statistics(plain), strict=True):
        torch.testing.assert_close(with_pile, without)


def test_the_pile_is_mined_after_each_task_but_the_last_and_no_generator_trains() -> None:
    experiment = tiny_experiment(pile={"pile_distill": WEIGHT})
    assert [[stage.name for stage in row.stages] for row in experiment.plan()] == [
        ["train", "select", "mine"],
        ["train", "select", "mine"],
        ["train", "select"],
    ]
    state = after_task(experiment, experiment.fresh_state(), 0)
    assert "generators" not in state.nets
    assert 2 <= len(state.tensors["pile.index"]) <= TINY_DATA["pile_size"]
    stage = experiment.stages(experiment.stream.task(1))[0]
    streams = stage.streams(begun(state, stage))
    assert streams["pile"].size == 2 * streams["old"].size


@pytest.mark.parametrize("method", ["ucir", "podnet", "bic"])
def test_other_methods_carry_it(method: str, tmp_path: Any) -> None:
    tiny_experiment(method, pile={"pile_distill": WEIGHT}).start(tmp_path / "run", Watch())
    rows = [row for row in RunFolder(tmp_path / "run").metrics() if row["kind"] == "epoch" and row["stage"] == "train"]
    assert [("pile_distill" in row["losses"]) for row in rows] == [row["task"] > 0 for row in rows]


def test_without_it_no_pile_is_read() -> None:
    assert tiny_experiment().pile is None


@pytest.mark.parametrize(
    ("method", "imagination", "weight", "complaint"),
    [
        ("finetune", {}, 0.5, "replays no exemplars"),
        ("joint", {}, 0.5, "replays no exemplars"),
        ("der", {}, 0.5, "'der': past extractors are frozen, so there is nothing to distil"),
        ("foster", {}, 0.5, "'foster': the old network stands beside the new one, so there is nothing to distil"),
        ("gd", {}, 0.5, "--pile-distill does not fit method 'gd': three teachers judge unlabelled images already"),
        ("icarl", {}, 0.5, "'icarl': it distils answers, on every image, and no features"),
        ("replay", {}, -1.0, "--pile-distill -1.0 must not be negative"),
    ],
)
def test_where_it_has_no_place_it_is_refused(
    method: str, imagination: dict[str, Any], weight: float, complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        tiny_experiment(method, imagination=imagination, pile={"pile_distill": weight})


@pytest.mark.parametrize(
    ("method", "imagination", "given", "weight"),
    [
        ("imagine", {}, {}, 0.5),
        ("replay", {"imagine": True}, {}, 0.5),
        ("imagine", {"counterparts": 0}, {}, 0.0),
        ("imagine", {}, {"pile_distill": 0.0}, 0.0),
        ("replay", {}, {}, 0.0),
        ("dream", {}, {}, 0.0),
        ("dream", {}, {"pile_distill": 0.3}, 0.3),
    ],
)
def test_the_weight_where_none_is_given(
    method: str, imagination: dict[str, Any], given: dict[str, Any], weight: float
) -> None:
    assert tiny_experiment(method, imagination=imagination, pile=given).config.carried.pile_distill == weight


@pytest.mark.parametrize(("weight", "distill"), [(1.0, 0.0), (0.5, WEIGHT)])
def test_soft_labels_against_a_loop(base: State, weight: float, distill: float) -> None:
    experiment = tiny_experiment(pile={"pile_soft": weight, "pile_distill": distill})
    task = experiment.stream.task(1)
    plain, carried = experiment.method.stages(task)[0], experiment.stages(task)[0]
    state = stirred(begun(base, plain))
    batch = batch_of(carried, state, 1)
    net, old = network(state).double(), network(state, "old").double()
    found = 0.0
    with torch.no_grad():
        for image in batch["pile"].images.double():
            answers = old(image[None])[0].exp()
            scores = net(image[None])[0].exp()
            for label in range(task.num_old):
                found -= float(answers[label] / answers.sum() * (scores[label] / scores.sum()).log())
        net.float(), old.float()
        terms, without = carried.losses(state, batch), plain.losses(state, batch)
    real, pile = len(batch["new"].labels) + len(batch["old"].labels), weight * len(batch["pile"].labels)
    expected = found / len(batch["pile"].labels) * pile / (real + pile)
    assert set(terms) == {*without, "pile_soft", *(["pile_distill"] if distill else [])}
    torch.testing.assert_close(
        terms["pile_soft"].double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-4, atol=1e-6
    )
    torch.testing.assert_close(terms["ce"], without["ce"] * real / (real + pile))


def test_bic_is_taught_by_the_same_terms_and_its_correction_stays_as_it_is() -> None:
    experiment = tiny_experiment("bic", pile={"pile_teach": True})
    state = after_task(experiment, experiment.fresh_state(), 0)
    task = experiment.stream.task(1)
    [plain, correct, *_], [carried, corrected, *_] = experiment.method.stages(task), experiment.stages(task)
    assert carried.name == "train"
    assert (corrected.name, corrected.streams) == ("correct", correct.streams)
    state = stirred(begun(state, plain))
    batch = batch_of(carried, state, 1)
    net, old = network(state), network(state, "old")
    with torch.no_grad():
        terms, without = carried.losses(state, batch), plain.losses(state, batch)
        answers = old(batch["pile"].images).softmax(1)
        soft = -(answers * net(batch["pile"].images).log_softmax(1)[:, : task.num_old]).sum(1).mean()
    real = len(batch["new"].labels) + len(batch["old"].labels)
    weight = suited_weight(task.num_old, task.num_seen, experiment.method.held(task)) * real / 2
    assert set(terms) == {*without, "pile_soft", "pile_distill"}
    torch.testing.assert_close(terms["ce"], without["ce"] * real / (real + weight))
    torch.testing.assert_close(terms["distill"], without["distill"])
    torch.testing.assert_close(terms["pile_soft"], soft * weight / (real + weight), rtol=1e-4, atol=1e-5)


def test_soft_labels_teach_the_network_and_not_the_old_one(base: State) -> None:
    experiment = tiny_experiment("imagine", pile={"pile_soft": 1.0}, imagination={"counterparts": 0})
    assert experiment.config.carried.pile_distill == 0
    state = after_task(experiment, experiment.fresh_state(), 0)
    stage = experiment.stages(experiment.stream.task(1))[0]
    state = stirred(begun(state, stage))
    for name in ("net", "old"):
        state.nets[name].requires_grad_(True)
    stage.losses(state, batch_of(stage, state, 1))["pile_soft"].backward()
    assert all(parameter.grad is None for parameter in state.nets["old"].parameters())
    assert any(parameter.grad is not None and parameter.grad.any() for parameter in state.nets["net"].parameters())


def test_labels_alone_join_the_mean_over_all_samples(base: State) -> None:
    experiment = tiny_experiment(pile={"pile_labels": 0.5})
    task = experiment.stream.task(1)
    plain, carried = experiment.method.stages(task)[0], experiment.stages(task)[0]
    state = stirred(begun(base, plain))
    batch, net = batch_of(carried, state, 1), network(state)
    with torch.no_grad():
        terms, without = carried.losses(state, batch), plain.losses(state, batch)
        scores = net.head(net.features(batch["pile"].images))
        expected = torch.nn.functional.cross_entropy(scores, batch["pile"].labels)
    real, pile = len(batch["new"].labels) + len(batch["old"].labels), 0.5 * len(batch["pile"].labels)
    assert set(terms) == {*without, "pile_labels"}
    torch.testing.assert_close(terms["ce"], without["ce"] * real / (real + pile))
    torch.testing.assert_close(terms["pile_labels"], expected * pile / (real + pile))


def test_the_weight_that_suits_falls_with_memory_and_with_the_share_of_new_classes() -> None:
    assert suited_weight(10, 12, 200) == pytest.approx(SUITED * 10 / 12 * WORTH / (WORTH + 20))
    by_memory = [suited_weight(10, 12, 10 * kept) for kept in (1, 2, 5, 10, 20, 40)]
    assert by_memory == sorted(by_memory, reverse=True)
    assert suited_weight(50, 100, 50) < suited_weight(50, 55, 50)


@pytest.mark.parametrize("counterparts", [0, 2])
def test_teaching_gives_soft_labels_the_weight_that_suits_and_distillation_its_own(counterparts: int) -> None:
    imagination = {"counterparts": counterparts, "counterparts_from": "nothing"}
    experiment = tiny_experiment("imagine", imagination=imagination, pile={"pile_teach": True})
    assert experiment.config.carried.pile_distill == 0.5
    state = after_task(experiment, experiment.fresh_state(), 0)
    task = experiment.stream.task(1)
    plain, carried = experiment.method.stages(task)[0], experiment.stages(task)[0]
    state = stirred(begun(state, plain))
    batch = batch_of(carried, state, 1)
    with torch.no_grad():
        terms, without = carried.losses(state, batch), plain.losses(state, batch)
    real, old = len(batch["new"].labels) + len(batch["old"].labels), len(batch["old"].labels)
    assert len(batch["pile"].labels) == (2 * old if counterparts else real // 2)
    soft = suited_weight(2, 4, 12) * real / 2
    assert {"pile_soft", "pile_distill"} <= set(terms)
    torch.testing.assert_close(terms["ce"], without["ce"] * real / (real + soft + counterparts * old))


def test_a_weight_that_is_given_beats_the_one_that_suits(base: State) -> None:
    experiment = tiny_experiment(pile={"pile_teach": True, "pile_soft": 3.0, "pile_batch": 5})
    task = experiment.stream.task(1)
    plain, carried = experiment.method.stages(task)[0], experiment.stages(task)[0]
    state = stirred(begun(base, plain))
    batch = batch_of(carried, state, 1)
    with torch.no_grad():
        terms, without = carried.losses(state, batch), plain.losses(state, batch)
    real = len(batch["new"].labels) + len(batch["old"].labels)
    assert len(batch["pile"].labels) == 5
    torch.testing.assert_close(terms["ce"], without["ce"] * real / (real + 3.0 * 5))


def test_lessons_carry_it_without_generators(tmp_path: Path) -> None:
    pile = write_pile(tmp_path / "pile", 20)
    a, b = write_classes(tmp_path / "a", range(2), 6), write_classes(tmp_path / "b", range(2, 4), 6)
    learner = Learner.create(
        **{**TINY_MODEL, "method": "replay", "counterparts": 0, "pile_teach": True, "pile_base": 0.5}
    )
    learner.learn(a, pile, **TINY_LESSON)
    lesson, _ = learner.prepare(b, None, None, LessonSettings(**TINY_LESSON))
    assert [type(part) for part in lesson.carried.components][1:] == [PileInBase, PileTeaching]
    assert lesson.carried.settings.teaches_on_pile
    state, _, _ = train(lesson, Watch())
    assert "generators" not in state.nets
