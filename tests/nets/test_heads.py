"""Heads against loops in double precision; growing keeps what is there; imprinting finds the classes."""

import math

import pytest
import torch
from torch import Tensor

from daydream.nets.heads import (
    HEADS,
    CosineHead,
    Head,
    LinearHead,
    ProjectedHead,
    ProxyHead,
    ScaledProxyHead,
    UnitHead,
    imprint,
)


def grown(kind: type[Head], dim: int = 5, sizes: tuple[int, ...] = (3, 2)) -> Head:
    torch.manual_seed(1)
    head = kind(dim)
    for size in sizes:
        head.grow(size)
    return head.double()


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def cosine(a: list[float], b: list[float]) -> float:
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(count: int = 4, dim: int = 5) -> Tensor:
    return 3 * torch.randn(count, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def test_linear_scores() -> None:
    head = grown(LinearHead)
    assert isinstance(head, LinearHead)
    for bias in head.biases:
        torch.nn.init.normal_(bias)
    weights = [w[0].tolist() for block in head.weights for w in block]
    biases = [b for block in head.biases for b in block.tolist()]
    expected = [[dot(w, z) + b for w, b in zip(weights, biases, strict=True)] for z in features().tolist()]
    torch.testing.assert_close(head(features()), torch.tensor(expected, dtype=torch.float64))


def test_a_linear_head_starts_without_bias() -> None:
    head = grown(LinearHead)
    assert isinstance(head, LinearHead)
    assert torch.equal(torch.cat(list(head.biases)), torch.zeros(5, dtype=torch.float64))


def test_rescaling_a_block_changes_its_scores_alone() -> None:
    head = grown(LinearHead)
    assert isinstance(head, LinearHead)
    for bias in head.biases:
        torch.nn.init.normal_(bias)
    before = head(features()).detach()
    head.rescale(-1, torch.tensor(0.7).double(), torch.tensor(-1.5).double())
    torch.testing.assert_close(head(features()), torch.cat([before[:, :3], 0.7 * before[:, 3:] - 1.5], dim=1))


def test_cosine_scores() -> None:
    head = grown(CosineHead)
    assert isinstance(head, CosineHead)
    assert head.scale.item() == 1.0
    head.scale.data.fill_(2.5)
    weights = [w[0].tolist() for block in head.weights for w in block]
    cosines = torch.tensor([[cosine(w, z) for w in weights] for z in features().tolist()], dtype=torch.float64)
    torch.testing.assert_close(head.cosines(features()), cosines)
    torch.testing.assert_close(head(features()), 2.5 * cosines)


@pytest.mark.parametrize(("kind", "a", "eta"), [(ProxyHead, 3, 1.0), (ScaledProxyHead, 1, 2.5)])
def test_proxy_scores(kind: type[Head], a: float, eta: float) -> None:
    head = grown(kind)
    if isinstance(head, ScaledProxyHead):
        assert head.scale.item() == 1.0
        head.scale.data.fill_(eta)
    rows = []
    for z in features().tolist():
        length = math.sqrt(dot(z, z))
        scores = []
        for block in head.weights:
            for proxies in block.tolist():
                similarities = []
                for w in proxies:
                    norm = math.sqrt(dot(w, w))
                    distance = sum((a * x / length - a * y / norm) ** 2 for x, y in zip(z, w, strict=True))
                    similarities.append(-distance)
                weights = [math.exp(s) for s in similarities]
                scores.append(eta * sum(e / sum(weights) * s for e, s in zip(weights, similarities, strict=True)))
        rows.append(scores)
    assert head.weights[0].shape == (3, 10, 5)
    torch.testing.assert_close(head(features()), torch.tensor(rows, dtype=torch.float64))


def test_scores_of_features_at_unit_length_and_of_projected_ones() -> None:
    unit, wide = grown(UnitHead), grown(ProjectedHead)
    assert isinstance(wide, ProjectedHead)
    torch.nn.init.normal_(wide.projection)
    for z, scores, projected in zip(features().tolist(), unit(features()), wide(features()), strict=True):
        z = [x / math.sqrt(dot(z, z)) for x in z]
        expected = [dot(w, z) for block in unit.weights for w in block[:, 0].tolist()]
        torch.testing.assert_close(scores, torch.tensor(expected, dtype=torch.float64))
        columns = [max(0.0, dot(p, z)) / math.sqrt(4096) for p in wide.projection.T.tolist()]
        expected = [dot(w, columns) for block in wide.weights for w in block[:, 0].tolist()]
        torch.testing.assert_close(projected, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("name", HEADS)
def test_growing_keeps_the_old_classes(name: str) -> None:
    head = grown(HEADS[name])
    before, weight = head(features()), head.weight().detach().clone()
    old = [id(p) for p in head.weights]
    given = torch.randn(4, head.vectors, head.dim, dtype=torch.float64)
    head.grow(4, given)
    head.double()
    assert (head.sizes, head.num_classes) == ((3, 2, 4), 9)
    assert [id(p) for p in head.weights][:2] == old
    assert torch.equal(head.weight()[:5], weight)
    assert torch.equal(head.weight()[5:], given)
    assert head.weights[2].data_ptr() != given.data_ptr()
    torch.testing.assert_close(head(features())[:, :5], before)
    assert head(features()).shape == (4, 9)


@pytest.mark.parametrize("name", HEADS)
def test_blocks_and_shared_parameters_are_all_there_is(name: str) -> None:
    head = grown(HEADS[name])
    listed = [*head.block(0), *head.block(1), *head.shared()]
    assert sorted(map(id, listed)) == sorted(map(id, head.parameters()))
    assert all(len(p) == 2 for p in head.block(1))


def test_weights_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(AssertionError):
        grown(ProxyHead).grow(2, torch.zeros(2, 9, 5))


def test_one_imprinted_vector_is_the_normalised_mean_times_the_norm() -> None:
    z, labels = features(9), torch.tensor([7, 5, 6, 5, 5, 7, 6, 6, 5])
    found = imprint(z, labels, 1, torch.tensor(2.5), drawn(0))
    rows = []
    for c in (5, 6, 7):
        units = [[v / math.sqrt(dot(row, row)) for v in row] for row in z[labels == c].tolist()]
        mean = [sum(column) / len(units) for column in zip(*units, strict=True)]
        rows.append([[2.5 * v / math.sqrt(dot(mean, mean)) for v in mean]])
    torch.testing.assert_close(found, torch.tensor(rows))


def test_imprinted_proxies_are_the_centres_of_clusters() -> None:
    """Three tight bundles of directions a class, of different lengths: the centres are the bundles' unit means."""
    generator = torch.Generator().manual_seed(5)
    basis = torch.eye(8, dtype=torch.float64)
    bundles = [basis[i] + 0.01 * torch.randn(6, 8, generator=generator, dtype=torch.float64) for i in range(6)]
    lengths = 1 + 5 * torch.rand(36, 1, generator=generator, dtype=torch.float64)
    z, labels = torch.cat(bundles) * lengths, torch.arange(6).repeat_interleave(6) // 3
    found = imprint(z, labels, 3, torch.tensor(2.0), drawn(4))
    assert found.shape == (2, 3, 8)
    for c in range(2):
        units = [b / b.norm(dim=1, keepdim=True) for b in bundles[3 * c : 3 * c + 3]]
        expected = torch.stack([2 * u.mean(0) for u in units]).float()
        order = found[c].argmax(1) - 3 * c
        assert sorted(order.tolist()) == [0, 1, 2]
        torch.testing.assert_close(found[c], expected[order], rtol=1e-4, atol=1e-5)
    assert torch.equal(found, imprint(z, labels, 3, torch.tensor(2.0), drawn(4)))


def test_a_class_with_fewer_features_than_proxies_repeats_them() -> None:
    z = features(3)
    found = imprint(z, torch.zeros(3, dtype=torch.int64), 10, torch.tensor(1.0), drawn(0))
    assert found.shape == (1, 10, 5)
    units = (z / z.norm(dim=1, keepdim=True)).float()
    distance = torch.cdist(found[0], units)
    assert (distance.min(1).values < 1e-5).all()
    assert set(distance.argmin(1).tolist()) == {0, 1, 2}
    head = ProxyHead(5)
    head.grow(1, found)
    assert head(z.float()).isfinite().all()
