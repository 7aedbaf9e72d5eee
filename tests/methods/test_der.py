"""DER on tiny trainings: what grows, what is frozen, which gradient reaches what, and what the head is fitted to."""

import itertools
import math
from pathlib import Path

import pytest
import torch
from own_images import TINY_LESSON, tiny_learner, write_classes, write_pile
from stages_driven import batch_of, begun, drive, same, snapshot
from tiny_runs import StopIn, Watch, real_training, tiny_experiment, without_times
from torch import nn

from daydream.cli.main import main
from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.experiment.config import make_config
from daydream.experiment.experiment import Experiment
from daydream.methods.expanding import old_as_one, rising, warm_up
from daydream.methods.method import network
from daydream.nets.extractor import past
from daydream.protocol.stream import Task
from daydream.stages.stage import Stage, State
from daydream.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

METHOD = "der"
OLD, NEW, WIDTH, BODY = 4, 2, 64, 148_624
"""Classes in the second increment of the tiny run; width and parameters of its backbone."""


def body_of(net: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value for name, value in snapshot(net).items() if not name.startswith("head.")}


def test_terms_of_an_increment(experiment: Experiment, known: State, stages: list[Stage]) -> None:
    state = begun(known, stages[0])
    batch = batch_of(stages[0], state, 2)
    with torch.no_grad():
        terms = stages[0].losses(state, batch)
        images = torch.cat([batch["new"].images, batch["old"].images])
        z = [net.features(images).double() for net in (*past(state.nets), network(state))]
    labels = torch.cat([batch["new"].labels, batch["old"].labels]).tolist()
    weights, auxiliary = network(state).head.weight()[:, 0].detach().double(), state.tensors["auxiliary"].double()
    assert auxiliary.shape == (1 + NEW, WIDTH)
    ce, told = 0.0, 0.0
    for row, y in enumerate(labels):
        whole = torch.cat([part[row] for part in z])
        scores = [float(w @ whole) for w in weights]
        ce -= math.log(math.exp(scores[y]) / sum(map(math.exp, scores)))
        own = [float(w @ z[-1][row]) for w in auxiliary]
        told -= math.log(math.exp(own[0 if y < OLD else 1 + y - OLD]) / sum(map(math.exp, own)))
    assert list(terms) == ["ce", "auxiliary"]
    assert float(terms["ce"]) == pytest.approx(ce / len(labels), rel=1e-4)
    assert float(terms["auxiliary"]) == pytest.approx(told / len(labels), rel=1e-4)


def test_every_old_class_is_one_to_the_auxiliary_head() -> None:
    assert old_as_one(torch.tensor([0, 3, 4, 5, 2, 6]), 4).tolist() == [0, 0, 1, 2, 0, 3]


def test_no_auxiliary_term_in_the_base_task(experiment: Experiment) -> None:
    train = experiment.stages(experiment.stream.task(0))[0]
    state = begun(experiment.fresh_state(), train)
    assert list(train.losses(state, batch_of(train, state, 0))) == ["ce"]
    assert not state.tensors


def test_the_newest_starts_as_the_one_before_it_under_a_new_head(known: State, stages: list[Stage]) -> None:
    before = snapshot(network(known))
    state = begun(known, stages[0])
    ours = snapshot(network(state))
    assert {name for name in body_of(network(known)) if not torch.equal(before[name], ours[name])} == set()
    assert ours["head.weights.0"].shape == (OLD + NEW, 1, 3 * WIDTH)
    assert float(ours["head.weights.0"].std()) == pytest.approx(1 / math.sqrt(3 * WIDTH), rel=0.1)
    assert [name for name in state.nets if name.startswith("past")] == ["past.0", "past.1"]


def test_past_extractors_stay_bit_for_bit(
    experiment: Experiment, known: State, stages: list[Stage], task: Task
) -> None:
    state = begun(known, stages[0])
    before = [snapshot(net) for net in past(state.nets)]
    ours = snapshot(network(state))
    drive(experiment, state, 2, stages[0])
    after = [snapshot(net) for net in past(state.nets)]
    assert [same(a, b) for a, b in zip(before, after, strict=True)] == [set(a) for a in before]
    assert same(body_of(network(known)), body_of(past(state.nets)[-1])) == set(body_of(network(known)))
    assert same(ours, snapshot(network(state))) == set(), "the newest trains whole, statistics too"
    # What an extractor said of an image before, it says as the first blocks of the features after.
    images = experiment.method.setup.prepare(task.train.pixels.fetch(torch.arange(5)))
    with torch.no_grad():
        old, new = (experiment.method.predict(s, images).features for s in (known, state))
    assert new.shape == (5, 3 * WIDTH)
    assert torch.equal(old, new[:, : 2 * WIDTH])
    assert "auxiliary" not in state.tensors, "no use for it after the stage"


def test_the_auxiliary_gradient_reaches_the_newest_and_its_own_head_alone(known: State, stages: list[Stage]) -> None:
    state = begun(known, stages[0])
    for net in state.nets.values():
        net.requires_grad_(True)
    state.tensors["auxiliary"].requires_grad_(True)
    named = {f"{net}.{name}": p for net, module in state.nets.items() for name, p in module.named_parameters()}
    named["auxiliary"] = state.tensors["auxiliary"]
    loss = stages[0].losses(state, batch_of(stages[0], state, 2))["auxiliary"]
    gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    reached = {name for name, gradient in zip(named, gradients, strict=True) if gradient is not None}
    assert reached == {"auxiliary", *(name for name in named if name.startswith(("net.lower", "net.upper")))}


def test_without_the_auxiliary_loss_other_weights_come_out_and_with_it_it_falls(
    experiment: Experiment, known: State, task: Task
) -> None:
    off = tiny_experiment("der", auxiliary=0.0, epochs=16, lr=0.1).stages(task)[0]
    on = tiny_experiment("der", epochs=16, lr=0.1).stages(task)[0]
    trained = {}
    for name, stage in (("off", off), ("on", on)):
        state = begun(known, stage)
        trained[name] = drive(experiment, state, 2, stage), snapshot(network(state))
    assert list(trained["off"][0][0]) == ["ce"]
    falls = [epoch["auxiliary"] for epoch in trained["on"][0]]
    assert falls[-1] < 0.85 * falls[0]
    assert not same(trained["off"][1], trained["on"][1])


def test_the_head_alone_is_fitted_to_a_balanced_subset(
    experiment: Experiment, known: State, stages: list[Stage]
) -> None:
    state = begun(known, stages[0])
    drive(experiment, state, 2, stages[0])
    before = {name: snapshot(net) for name, net in state.nets.items()}
    state = begun(state, stages[1])
    fresh = snapshot(network(state))["head.weights.0"]
    assert float(fresh.abs().max()) <= 1 / math.sqrt(3 * WIDTH)
    assert float(fresh.std()) == pytest.approx(1 / math.sqrt(3 * 3 * WIDTH), rel=0.1)
    images = stages[1].streams(state)["balanced"].images
    assert torch.bincount(images.labels).tolist() == [3] * (OLD + NEW), "3 exemplars of an old class"
    again = stages[1].streams(state)["balanced"].images
    assert torch.equal(images.pixels.fetch(torch.arange(18)), again.pixels.fetch(torch.arange(18))), "drawn once"
    drive(experiment, state, 2, stages[1])
    after = {name: snapshot(net) for name, net in state.nets.items()}
    changed = {f"{net}.{name}" for net in after for name in after[net].keys() - same(before[net], after[net])}
    assert changed == {"net.head.weights.0"}


def test_scores_are_divided_by_the_temperature(experiment: Experiment, known: State, stages: list[Stage]) -> None:
    state = begun(begun(known, stages[0]), stages[1])
    batch = batch_of(stages[1], state, 2)
    with torch.no_grad():
        ce = float(stages[1].losses(state, batch)["ce"])
        scores = experiment.method.predict(state, batch["balanced"].images).scores.double()
    rows = zip(scores.tolist(), batch["balanced"].labels.tolist(), strict=True)
    expected = [-s[y] / 5 + math.log(sum(math.exp(v / 5) for v in s)) for s, y in rows]
    assert ce == pytest.approx(sum(expected) / len(expected), rel=1e-4)


def test_learning_rates(experiment: Experiment) -> None:
    base, expand, balance = (
        experiment.stages(experiment.stream.task(task))[place] for task, place in ((0, 0), (1, 0), (1, 1))
    )
    falls = [base.schedule(e, 200) for e in (0, 59, 60, 119, 120, 159, 160)]
    assert falls == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01, 0.001])
    assert expand.schedule is rising
    assert [rising(e, 170) for e in (0, 4, 9, 10, 109, 110, 129, 130, 169)] == pytest.approx(
        [0.1, 0.5, 1, 1, 1, 0.1, 0.1, 0.01, 0.01]
    )
    assert [balance.schedule(e, 30) for e in (0, 14, 15, 29)] == pytest.approx([1, 1, 0.1, 0.1])
    assert (base.clamp, expand.clamp, balance.clamp) == (None, None, None)
    assert balance.optimizer.lr == 0.1
    assert [warm_up(epochs) for epochs in (170, 34, 17, 16)] == [10, 2, 1, 0]


def test_both_heads_begin_again_when_the_warm_up_ends(known: State, experiment: Experiment, task: Task) -> None:
    stage = tiny_experiment("der", epochs=34).stages(task)[0]
    assert stage.after_epoch is not None
    state = begun(known, stage)
    heads = []
    for _ in range(3):
        heads.append([network(state).head.weights[0].detach().clone(), state.tensors["auxiliary"].clone()])
        stage.after_epoch(state)
    heads.append([network(state).head.weights[0].detach(), state.tensors["auxiliary"]])
    restarted = [[not torch.equal(x, y) for x, y in zip(a, b, strict=True)] for a, b in itertools.pairwise(heads)]
    assert restarted == [[False, False], [True, True], [False, False]]
    assert float(heads[2][1].abs().max()) <= 1 / math.sqrt(WIDTH)


def test_parameters_are_counted_task_by_task(unbroken: RunFolder) -> None:
    result = unbroken.result
    assert result is not None
    assert [row["parameters"] for row in result["tasks"]] == [BODY, 2 * BODY, 3 * BODY]
    assert [row["head_parameters"] for row in result["tasks"]] == [2 * 64, 4 * 128, 6 * 192]
    assert (result["parameters"], result["mean_parameters"]) == (3 * BODY, 2 * BODY)
    assert tiny_experiment("der").parameters() == (result["parameters"], result["head_parameters"])


def test_show_lists_them(unbroken: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["show", str(unbroken.path)])
    assert stop.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "task by task 148,624, 297,248, 445,872, their mean 297,248" in said


def test_a_checkpoint_writes_a_past_extractor_once(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        tiny_experiment("der").start(tmp_path / "run", StopIn(2, "balance"))
    written = [file.name for file in (tmp_path / "run" / "checkpoint").glob("net.past*")]
    assert sorted(name.split("-")[0] for name in written) == ["net.past.0", "net.past.1"]


@pytest.mark.parametrize("place", [(0, "train"), (1, "expand"), (1, "balance"), (2, "expand")])
def test_it_resumes_in_each_stage(place: tuple[int, str], tmp_path: Path, unbroken: RunFolder) -> None:
    with pytest.raises(Interrupted):
        tiny_experiment("der").start(tmp_path / "run", StopIn(*place))
    result = tiny_experiment("der").resume(RunFolder.open(tmp_path / "run"), Watch())
    assert without_times(result) == without_times(unbroken.result)


def test_it_resumes_around_the_warm_up(tmp_path: Path) -> None:
    """A stop after the heads have begun again must not let them begin a third time."""
    run = {"base": 4, "steps": 1}
    whole = tiny_experiment("der", run, epochs=17).start(tmp_path / "whole", Watch())
    watch = StopIn(1, "expand")
    watch.stop_asked = lambda: watch.here and next(steps) == 10  # type: ignore[method-assign]
    steps = iter(range(10**6))
    with pytest.raises(Interrupted):
        tiny_experiment("der", run, epochs=17).start(tmp_path / "run", watch)
    result = tiny_experiment("der", run, epochs=17).resume(RunFolder.open(tmp_path / "run"), Watch())
    assert without_times(result)["tasks"] == without_times(whole)["tasks"]


def test_it_starts_from_another_runs_base_task(unbroken: RunFolder, tmp_path: Path) -> None:
    result = tiny_experiment("der", {"base_from": str(unbroken.path)}).start(tmp_path / "run", Watch())
    assert unbroken.result is not None
    assert without_times(result["tasks"]) == without_times(unbroken.result["tasks"])


def test_it_keeps_what_finetuning_loses(tmp_path: Path) -> None:
    result = real_training("der", tmp_path / "run", head_epochs=12)
    assert result["last_cnn"] > 60  # fine-tuning cannot pass 50
    assert result["tasks"][1]["cnn"]["old"] > 35


@pytest.mark.parametrize(
    ("name", "value"), [("auxiliary", -1.0), ("head_epochs", 0), ("head_lr", 0.0), ("temperature", 0.0)]
)
def test_settings_out_of_range(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} {value} must "):
        tiny_experiment("der", **{name: value})


@pytest.mark.parametrize("part", [{"blend": 0.5}, {"rotations": "all"}, {"rotations": "base"}])
def test_parts_that_do_not_fit_say_why(part: dict[str, object]) -> None:
    with pytest.raises(UserError, match="does not fit method 'der': ") as error:
        tiny_experiment("der", parts=part)
    assert "\n" not in str(error.value)


def test_imagination_does_not_fit_and_says_why(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--imagine does not fit method 'der': a counterpart has features under the"):
        make_config({"method": "der"}, {}, {}, {"imagine": True})
    learner = tiny_learner(method="der")
    with pytest.raises(UserError, match="--method der has no use for unlabelled images: a counterpart has features"):
        learner.learn(write_classes(tmp_path / "a", range(2), 6), write_pile(tmp_path / "pile", 4), **TINY_LESSON)


def test_blank_squares_fit(known: State) -> None:
    stages = tiny_experiment("der", parts={"erase": 0.5}).plan()[2].stages
    assert [stage.name for stage in stages] == ["expand", "balance", "select"]
    state = begun(known, stages[0])
    assert "blank" in batch_of(stages[0], state, 2)["new"].fields
