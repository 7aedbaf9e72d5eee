"""Controls of imagination: what they put in the counterparts' place, at which weight, and where they are refused."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from stages_driven import after_task, batch_of, begun, stirred
from tiny_runs import Watch, tiny_experiment

from daydream.components.carried import COUNTERPARTS
from daydream.components.hard import REACH, HardCounterparts
from daydream.engine.feed import Feed
from daydream.errors import UserError
from daydream.experiment.experiment import Experiment
from daydream.experiment.naming import headline, variants
from daydream.learner.making import carried_settings
from daydream.learner.settings import LessonSettings, ModelSettings
from daydream.methods.method import network
from daydream.report.features import has_generators
from daydream.report.gather import read_runs
from daydream.stages.stage import Stage, State

COUNT = 3
CONTROLS = ("hard", "exemplars", "real", "nothing")
Begun = tuple[State, Stage, Stage]


def control(source: str, **pile: float) -> Experiment:
    imagination = {"counterparts_from": source, "counterparts": COUNT, "imagined_weight": 0.5}
    return tiny_experiment("imagine", imagination=imagination, pile={"pile_distill": 0.0, **pile})


@pytest.fixture(scope="module")
def base() -> State:
    experiment = control("nothing")
    return after_task(experiment, experiment.fresh_state(), 0)


def increment(experiment: Experiment, base: State) -> Begun:
    task = experiment.stream.task(1)
    plain, carried = experiment.method.stages(task)[0], experiment.stages(task)[0]
    return stirred(begun(base, plain)), plain, carried


@pytest.mark.parametrize("source", ["exemplars", "real"])
@pytest.mark.parametrize("distill", [0.0, 0.7])
def test_what_stands_there_is_classified_as_one_by_one(base: State, source: str, distill: float) -> None:
    experiment = control(source, pile_distill=distill)
    state, plain, carried = increment(experiment, base)
    batch, net = batch_of(carried, state, 1), network(state)
    old, found = batch["old"], []
    with torch.no_grad():
        for place, label in enumerate(old.labels):
            for turn in range(COUNT):
                image = old.images[place] if source == "exemplars" else batch["real"].images[place * COUNT + turn]
                found.append(F.cross_entropy(net.head(net.upper(net.lower(image[None]))), label[None]))
        terms, without = carried.losses(state, batch), plain.losses(state, batch)
    real, beside = len(batch["new"].labels) + len(old.labels), 0.5 * COUNT * len(old.labels)
    assert set(terms) == {*without, "imagined", *(["pile_distill"] if distill else [])}
    expected = torch.stack(found).mean() * beside / (real + beside)
    torch.testing.assert_close(terms["imagined"], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(terms["ce"], without["ce"] * real / (real + beside))


@pytest.mark.parametrize(("distill", "soft"), [(0.0, 0.0), (0.7, 0.0), (0.7, 2.0)])
def test_equal_weights_are_those_beside_generators(base: State, distill: float, soft: float) -> None:
    experiment = control("nothing", pile_distill=distill, pile_soft=soft)
    state, plain, carried = increment(experiment, base)
    batch = batch_of(carried, state, 1)
    with torch.no_grad():
        terms, without = carried.losses(state, batch), plain.losses(state, batch)
    real, pile = len(batch["new"].labels) + len(batch["old"].labels), len(batch["pile"].labels)
    assert "imagined" not in terms
    torch.testing.assert_close(terms["ce"], without["ce"] * real / (real + 0.5 * pile + soft * pile))
    torch.testing.assert_close(terms["distill"], without["distill"])


def test_real_images_are_others_of_the_exemplars_classes(base: State) -> None:
    experiment = control("real")
    state, _, carried = increment(experiment, base)
    streams = carried.streams(state)
    feed = Feed(carried, state, (1, 0), 1)
    feed.load(0)
    labels = streams["real"].images.labels[feed.streams["real"].tables["index"].cpu()]
    wanted = streams["old"].images.labels[feed.streams["old"].tables["index"].cpu()]
    assert torch.equal(labels, wanted.repeat_interleave(COUNT, dim=1))
    assert len(streams["real"].images) == 2 * 12  # all training images of both old classes
    assert len(feed.streams["real"].tables["index"].unique()) > 12


@pytest.mark.parametrize("source", CONTROLS)
def test_the_same_unlabelled_images_pass_and_no_generator_trains(base: State, source: str) -> None:
    indices = []
    for name in (source, "generators"):
        experiment = control(name)
        state, _, carried = increment(experiment, base)
        assert "imagine" not in [s.name for s in control(source).stages(experiment.stream.task(0))]
        feed = Feed(carried, state, (1, 0), 1)
        feed.load(0)
        indices.append(feed.streams["pile"].tables["index"])
    assert torch.equal(*indices)


@pytest.mark.parametrize("source", COUNTERPARTS)
def test_distillation_is_as_beside_generators(source: str) -> None:
    method = "mixup" if source == "pixels" else "imagine"
    given = {} if source == "pixels" else {"counterparts_from": source}
    found = tiny_experiment(method, imagination=given).config.carried
    assert found.imagines == source
    assert found.pile_distill == (0.0 if source == "pixels" else 0.5)


def test_an_oracle_is_marked_wherever_it_is_named(tmp_path: Path) -> None:
    for source in ("real", "exemplars"):
        experiment = tiny_experiment("imagine", {"tasks": 2}, {"counterparts_from": source})
        experiment.start(tmp_path / source, Watch())
        assert ("oracle" in headline(experiment)) == (source == "real")
    oracle, copies = read_runs([tmp_path / "real", tmp_path / "exemplars"])
    assert oracle.config["oracle"] is True
    assert oracle.variant == "imagine --counterparts-from real (oracle)"
    assert copies.variant == "imagine --counterparts-from exemplars"
    assert variants([oracle.config]) == ["imagine (oracle)"]
    assert not has_generators(copies)


def test_where_a_control_has_no_place_it_is_refused() -> None:
    with pytest.raises(UserError, match="--counterparts-from real does not fit method 'mixup', which mixes pixels"):
        tiny_experiment("mixup", imagination={"counterparts_from": "real"})
    given = {"imagination": {"counterparts_from": "real"}}
    with pytest.raises(UserError, match="counterparts_from is for experiments"):
        carried_settings(ModelSettings(), given, LessonSettings(), has_pile=True)


def test_hard_counterparts_are_moved_up_the_loss_of_the_network_as_it_is(base: State) -> None:
    experiment = control("hard")
    state, _, carried = increment(experiment, base)
    component, net = experiment.carried.imagination, network(state).eval()
    assert isinstance(component, HardCounterparts)
    batch = batch_of(carried, state, 1)
    old, pile = batch["old"], batch["pile"]
    company = component.company(state, net, old, pile)
    assert company.maps is not None
    found = company.maps()[0].unflatten(0, (len(old.labels), COUNT))
    for image, label, moved, reach in zip(
        old.images, old.labels, found, pile.fields["reach"].view(-1, COUNT), strict=True
    ):
        with torch.no_grad():
            h = net.lower(image[None])
        at = h.clone().requires_grad_()
        loss = F.cross_entropy(net.head(net.upper(at)), label[None])
        [slope], before = torch.autograd.grad(loss, at), float(loss.detach())
        for one, share in zip(moved, reach, strict=True):
            expected = h + REACH * share * h.norm() * slope / slope.norm()
            torch.testing.assert_close(one[None], expected, rtol=1e-3, atol=1e-4)
        with torch.no_grad():
            after = F.cross_entropy(net.head(net.upper(moved)), label.expand(COUNT), reduction="none")
        assert float(after.max()) > before
    assert all(parameter.grad is None for parameter in net.parameters())
