"""TPCIL, as we read it, on tiny trainings: the graph, its anchors, the loss that holds it, what a lesson may mix."""

import copy
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
import torch.nn.functional as F
from stages_driven import after_task, batch_of, begun, drive, same, snapshot, stirred
from tiny_runs import StopIn, Watch, real_training, tiny_experiment, without_times
from torch import Tensor

from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.experiment.experiment import Experiment
from daydream.methods import METHODS, tpcil
from daydream.methods.method import network
from daydream.methods.tpcil import TPCIL, anchors, marks_of
from daydream.nets.kmeans import by_class, k_means
from daydream.protocol.stream import Task
from daydream.report.beside_paper import paper_cell
from daydream.report.gather import Run
from daydream.reproduce import results
from daydream.stages.losses import topology
from daydream.stages.stage import Stage, State
from daydream.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

METHOD, OLD = "tpcil", 4


def randomly(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- the loss --------------------------------------------------------------------------------------------------------


def pairs(x: Tensor) -> list[float]:
    count = len(x)
    return [float(x[i] @ x[j] / (x[i].norm() * x[j].norm())) for i in range(count) for j in range(i + 1, count)]


def test_the_loss_is_minus_pearsons_correlation_over_pairs() -> None:
    z, v = randomly(7, 5), randomly(7, 5, seed=1)
    a, b = pairs(z), pairs(v)
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    over = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    under = math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))
    assert float(topology(z, v)) == pytest.approx(-over / under, abs=1e-6)


def test_the_graph_as_it_was_costs_minus_one() -> None:
    z = randomly(7, 5)
    assert float(topology(z, F.normalize(z, dim=1))) == pytest.approx(-1, abs=1e-5)


def test_turning_or_scaling_all_features_costs_nothing() -> None:
    z, v = randomly(9, 6), randomly(9, 6, seed=1)
    turn = torch.linalg.qr(randomly(6, 6, seed=2)).Q
    before = float(topology(z, v))
    assert float(topology(3 * z @ turn, v)) == pytest.approx(before, abs=1e-5)
    assert abs(before) < 0.9


def apart(z: Tensor, v: Tensor) -> float:
    """A topology held by distance, which ours is not: the mean square of what similarities changed by."""
    return sum((a - b) ** 2 for a, b in zip(pairs(z), pairs(v), strict=True)) / len(pairs(z))


def test_similarities_may_all_move_alike_which_a_distance_between_them_would_not_allow() -> None:
    """Features drawn together about a direction: who is near whom stays, every similarity grows."""
    v = F.normalize(randomly(6, 8), dim=1)
    far = torch.zeros(6, 1, dtype=torch.float64)
    alike = torch.cat([v, far + 3], dim=1)  # each similarity s becomes (s + 9) / 10
    swapped = torch.cat([v[torch.randperm(6, generator=torch.Generator().manual_seed(1))], far], dim=1)
    v = torch.cat([v, far], dim=1)
    assert float(topology(alike, v)) == pytest.approx(-1, abs=1e-5)
    assert float(topology(swapped, v)) > -0.5
    assert apart(alike, v) > 0.1
    assert apart(alike, v) > apart(swapped, v)


@pytest.mark.parametrize(
    ("z", "v"),
    [
        (randomly(5, 4), torch.ones(5, 4)),
        (torch.ones(5, 4), randomly(5, 4)),
        (randomly(2, 4), randomly(2, 4, seed=1)),
        (randomly(1, 4), randomly(1, 4, seed=1)),
    ],
)
def test_without_deviation_it_is_nothing_and_its_gradient_finite(z: Tensor, v: Tensor) -> None:
    z = z.clone().requires_grad_()
    loss = topology(z, v)
    (gradient,) = torch.autograd.grad(loss, z)
    assert loss.item() == 0
    assert not gradient.any()


# --- the graph -------------------------------------------------------------------------------------------------------


def test_anchors_are_the_nearest_images_of_their_vertices_and_large_clusters_rank_first() -> None:
    features, labels = randomly(60, 4).float(), torch.arange(60) % 3
    index, ranks, vertices = anchors(features, labels, 5, torch.Generator().manual_seed(1))
    assert labels[index].tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert ranks.tolist() == list(range(5)) * 3
    assert len(set(index.tolist())) == 15
    torch.testing.assert_close(vertices.norm(dim=1), torch.ones(15))
    phi = F.normalize(features, dim=1)
    points, real = by_class(phi, labels)
    centres = k_means(points, real, 5, torch.Generator().manual_seed(1))
    gaps = torch.tensor([[float((phi[i] - m).square().sum()) for m in centres[labels[i]]] for i in range(60)])
    owner = gaps.argmin(1)
    for c in range(3):
        chosen, sizes = index[5 * c : 5 * c + 5].tolist(), []
        assert sorted(owner[chosen].tolist()) == list(range(5))
        for vertex, anchor in zip(vertices[5 * c : 5 * c + 5], chosen, strict=True):
            k = int(owner[anchor])
            torch.testing.assert_close(vertex, F.normalize(centres[c, k], dim=0))
            cluster = [i for i in range(60) if i % 3 == c and owner[i] == k]
            sizes.append(len(cluster))
            # Two images of one cluster are as far from their mean: rounding decides.
            assert float(gaps[anchor, k]) <= float(gaps[cluster, k].min()) + 1e-6
        assert sizes == sorted(sizes, reverse=True)


def test_ranks_follow_the_sizes_of_clusters() -> None:
    """Three heaps of 9, 5 and 2 images: three anchors, one of each heap, the largest heap's first."""
    middles, sizes = torch.eye(3), (5, 9, 2)
    heap = torch.arange(3).repeat_interleave(torch.tensor(sizes))
    features = middles[heap] + 0.05 * randomly(16, 3).float()
    index, ranks, vertices = anchors(features, torch.zeros(16, dtype=torch.int64), 3, torch.Generator().manual_seed(0))
    assert heap[index].tolist() == [1, 0, 2]
    assert ranks.tolist() == [0, 1, 2]
    for vertex, i in zip(vertices, index.tolist(), strict=True):
        mean = F.normalize(F.normalize(features[heap == heap[i]], dim=1).mean(0), dim=0)
        torch.testing.assert_close(vertex, mean)
        phi = F.normalize(features, dim=1)
        assert int((phi @ vertex).argmax()) == i


def test_equal_images_and_small_classes_still_fill_the_memory() -> None:
    alike = torch.ones(8, 4)
    index, ranks, _ = anchors(alike, torch.zeros(8, dtype=torch.int64), 3, torch.Generator().manual_seed(0))
    assert (len(set(index.tolist())), ranks.tolist()) == (3, [0, 1, 2])
    labels = torch.tensor([0, 0, 1, 1, 1, 1])
    index, ranks, vertices = anchors(randomly(6, 4).float(), labels, 3, torch.Generator().manual_seed(0))
    assert labels[index].tolist() == [0, 0, 1, 1, 1]
    assert (ranks.tolist(), vertices.shape) == ([0, 1, 0, 1, 2], (5, 4))


def test_after_a_task_each_exemplar_has_its_vertex(experiment: Experiment, known: State) -> None:
    """Those of old classes stand where their anchors are now, those of new ones where k-means put them."""
    memory, vertices = known.memory, known.tensors["vertices"]
    assert vertices.shape == (12 // OLD * OLD, 64)
    exemplars = memory.as_set(experiment.stream.train.class_names)
    own = F.normalize(experiment.method.features(known, exemplars), dim=1)
    old = memory.labels < 2
    torch.testing.assert_close(vertices[old], own[old])
    assert not torch.allclose(vertices[~old], own[~old])
    assert ((vertices * own).sum(1) > 0.5).all()


def test_a_total_budget_keeps_the_vertices_of_large_clusters(experiment: Experiment, known: State) -> None:
    first = after_task(experiment, experiment.fresh_state(), 0)
    assert first.memory.ranks.tolist() == list(range(6)) * 2
    kept = known.memory.labels < 2
    assert torch.equal(known.memory.images[kept], first.memory.images[first.memory.ranks < 3])


def test_vertices_find_their_exemplars_in_any_memory(experiment: Experiment, known: State) -> None:
    """As a lesson may leave it: joined by other images, which stand for themselves, and in another order."""
    state, task = copy.deepcopy(known), experiment.stream.task(2)
    joined = state.memory.joined(experiment.stream.task(0).train.select(torch.arange(3)))
    order = torch.randperm(len(joined), generator=torch.Generator().manual_seed(0))
    state.memory = replace(joined, images=joined.images[order], labels=joined.labels[order], ranks=joined.ranks[order])
    state = begun(state, experiment.stages(task)[0])
    exemplars = state.memory.as_set(experiment.stream.train.class_names)
    own = F.normalize(experiment.method.features(state, exemplars), dim=1)
    before = zip(known.memory.images, known.tensors["vertices"], strict=True)
    were = {image.numpy().tobytes(): vertex for image, vertex in before}
    found = 0
    for image, vertex, itself in zip(state.memory.images, state.tensors["vertices"], own, strict=True):
        expected = were.get(image.numpy().tobytes())
        found += expected is not None
        torch.testing.assert_close(vertex, itself if expected is None else expected)
    assert 12 <= found < len(own) == 15  # of the images that joined, some are exemplars
    assert len(set(marks_of(known.memory.images).tolist())) == 12


# --- training --------------------------------------------------------------------------------------------------------


def test_terms_of_an_increment(experiment: Experiment, known: State) -> None:
    train = experiment.stages(experiment.stream.task(2))[0]
    state = stirred(begun(known, train))
    batch = batch_of(train, state, 2)
    with torch.no_grad():
        found = train.losses(state, batch)
        z = network(state).features(batch["graph"].images)
        scores = network(state)(torch.cat([batch["new"].images, batch["old"].images]))
    labels = torch.cat([batch["new"].labels, batch["old"].labels])
    vertices = state.tensors["vertices"][batch["graph"].index]
    assert len(vertices) == len(state.memory) == 12
    assert list(found) == ["ce", "topology"]
    assert float(found["ce"]) == pytest.approx(float(F.cross_entropy(scores, labels)), rel=1e-4)
    assert float(found["topology"]) == pytest.approx(float(topology(z, vertices)), abs=1e-5)
    assert -0.99 < float(found["topology"]) < -0.1


class Plain(TPCIL):
    """The same stages without the term, to compare with."""

    def increment(self, task: Task) -> Stage:
        return self.rehearse(task, task.train, imprinted=True)


def trained(known: State, kind: type[TPCIL] = TPCIL, **settings: float) -> dict[str, Tensor]:
    experiment = tiny_experiment("tpcil", **settings)
    experiment.method = experiment.carried.method = kind(experiment.method.settings, experiment.method.setup)
    train = experiment.stages(experiment.stream.task(2))[0]
    state = begun(known, train)
    drive(experiment, state, 2, train)
    return snapshot(network(state))


def test_without_its_term_it_is_plain_replay_to_the_bit_and_with_it_all_weights_change(known: State) -> None:
    off, plain, on = trained(known, topology=0.0), trained(known, Plain), trained(known)
    assert same(off, plain) == set(off)
    weights = {name for name, _ in network(known).named_parameters()}
    assert not same(off, on) & weights


def test_it_resumes_inside_an_increment(tmp_path: Path, experiment: Experiment, unbroken: RunFolder) -> None:
    with pytest.raises(Interrupted):
        experiment.start(tmp_path / "run", StopIn(2, "train"))
    result = experiment.resume(RunFolder.open(tmp_path / "run"), Watch())
    assert without_times(result) == without_times(unbroken.result)


def test_it_adds_no_parameter(unbroken: RunFolder) -> None:
    result = unbroken.result
    assert result is not None
    assert (result["parameters"], result["head_parameters"]) == (148_624, 6 * 64 + 1)
    assert result["reports"] == "cnn"


def test_it_carries_the_parts(tmp_path: Path) -> None:
    parts = {"rotations": "all", "blend": 0.6, "erase": 0.3}
    run = tiny_experiment("tpcil", {"tasks": 2}, {"imagine": True}, parts, epochs=1, base_epochs=1)
    run.start(tmp_path / "run", Watch())
    rows = [row for row in RunFolder(tmp_path / "run").metrics() if row["kind"] == "epoch"]
    terms = {(row["task"], row["stage"]): list(row["losses"]) for row in rows}
    assert terms[1, "train"] == ["ce", "topology", "imagined", "pile_distill"]


def test_its_term_falls_and_it_keeps_what_finetuning_loses(tmp_path: Path) -> None:
    result = real_training("tpcil", tmp_path / "run", lr=0.1, base_epochs=16, epochs=16, anchors=16)
    assert result["last_cnn"] > 58
    assert result["tasks"][1]["cnn"]["old"] > 30
    rows = [row for row in RunFolder(tmp_path / "run").metrics() if row["kind"] == "epoch" and row["task"] == 1]
    terms = [row["losses"]["topology"] for row in rows]
    assert terms[-1] < terms[0] - 0.02


def test_settings_out_of_range() -> None:
    with pytest.raises(UserError, match=r"--topology -1\.0 must not be negative"):
        tiny_experiment("tpcil", topology=-1.0)
    with pytest.raises(UserError, match="--anchors 2 must be at least 3"):
        tiny_experiment("tpcil", anchors=2)


def test_it_says_that_it_is_a_reading_and_is_held_against_no_number() -> None:
    assert "no reproduction" in cast(str, tpcil.__doc__)
    assert "a reading" in METHODS["tpcil"][1]
    split = {"data": "cifar100", "base": 50, "steps": 10, "memory": 2000, "budget": "total", "order": "icarl"}
    whole = {**split, "backbone": "resnet32", "cut": "stage3", "validation": 0.0, "tasks": None}
    found = {
        method: paper_cell(cast(Run, SimpleNamespace(settings={**whole, "method": method}, components={})))
        for method in ("tpcil", "mnemonics")
    }
    assert found["tpcil"] is None
    assert found["mnemonics"] is not None
    cells = [{"row": "TPCIL", "method": "tpcil", "paper": 63.58, "paper_budget": "unstated", "paper_mark": ""}]
    assert "TPCIL: ours is a reading of a paper without code, no reproduction of its numbers" in results._of_the_paper(
        {"cells": cells}
    )
