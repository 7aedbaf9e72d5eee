"""Losses against loops in double precision."""

import math
from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor

from daydream.stages.losses import (
    Centring,
    balanced_distillation,
    centred,
    class_balance,
    class_weights,
    cosine_distillation,
    cross_entropy,
    divergence,
    divergence_from_uniform,
    global_targets,
    gram,
    margin_ranking,
    nca,
    overwritten_bce,
    pod_spatial,
    pooled_contrast,
    pooled_decoupling,
    regression,
    relative_contrast,
    relative_decoupling,
    semantic_contrast,
    semantic_decoupling,
    soft_cross_entropy,
    softened_divergence,
    weight_share,
    weighted_cross_entropy,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cross_entropy(dtype: torch.dtype) -> None:
    scores = (4 * torch.randn(6, 5)).to(dtype)
    labels = torch.tensor([0, 4, 2, 2, 1, 3])
    total = 0.0
    for row, label in zip(scores.double().tolist(), labels.tolist(), strict=True):
        total -= math.log(math.exp(row[label]) / sum(math.exp(s) for s in row))
    loss = cross_entropy(scores, labels)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(total / 6, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cosine_distillation(dtype: torch.dtype) -> None:
    new, old = torch.randn(6, 5).to(dtype), (3 * torch.randn(6, 5)).to(dtype)
    total = 0.0
    for a, b in zip(new.double().tolist(), old.double().tolist(), strict=True):
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        total += 1 - dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    loss = cosine_distillation(new, old)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(total / 6, rel=1e-5)


def test_cosine_distillation_of_equal_and_opposite_features() -> None:
    z = torch.randn(4, 8)
    assert float(cosine_distillation(2 * z, z)) == pytest.approx(0, abs=1e-6)
    assert float(cosine_distillation(-z, z)) == pytest.approx(2)


# --- UCIR and PODNet -------------------------------------------------------------------------------------------------


def scores_of(dtype: torch.dtype, classes: int = 5) -> tuple[Tensor, Tensor]:
    """Scores of 8 samples, and labels that some of them get right."""
    scores = 3 * torch.randn(8, classes, generator=torch.Generator().manual_seed(3))
    labels = torch.tensor([0, 4, 2, 2, 1, 3, 0, 4])
    scores[[0, 2, 5], labels[[0, 2, 5]]] += 9
    return scores.to(dtype), labels


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_old", [3, 4])
def test_margin_ranking(dtype: torch.dtype, num_old: int) -> None:
    """With 4 old classes of 5 there is one negative only."""
    scores, labels = scores_of(dtype)
    cosines = (scores / 20).clamp(-1, 1)
    terms = []
    for row, label in zip(cosines.double().tolist(), labels.tolist(), strict=True):
        if label < num_old:
            terms += [max(0.0, 0.5 - row[label] + s) for s in sorted(row[num_old:])[-2:]]
    loss = margin_ranking(cosines, labels, num_old, margin=0.5, negatives=2)
    assert len(set(terms)) > 4
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(sum(terms) / len(terms), rel=1e-5)


def test_margin_ranking_without_a_sample_of_an_old_class() -> None:
    scores, _ = scores_of(torch.float32)
    assert float(margin_ranking(scores, torch.full((8,), 4), 4, 0.5, 2)) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("margin", [0.0, 0.6])
def test_nca(dtype: torch.dtype, margin: float) -> None:
    scores, labels = scores_of(dtype)
    total = 0.0
    for row, label in zip(scores.double().tolist(), labels.tolist(), strict=True):
        s = [v - margin * (j == label) for j, v in enumerate(row)]
        others = sum(math.exp(v - max(s)) for j, v in enumerate(s) if j != label)
        total += -(s[label] - max(s)) + math.log(1 + others)
    loss = nca(scores, labels, margin)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(total / 8, rel=1e-5)


def test_nca_is_cross_entropy_where_the_target_scores_highest() -> None:
    scores, labels = scores_of(torch.float32)
    right = scores.argmax(1) == labels
    assert 0 < right.sum() < 8
    ours, usual = (f(scores[right], labels[right]) for f in (nca, cross_entropy))
    assert float(ours) == pytest.approx(float(usual), rel=1e-5)
    assert float(nca(scores[~right], labels[~right])) > float(cross_entropy(scores[~right], labels[~right])) + 1e-4


def test_a_margin_for_every_class_has_no_effect() -> None:
    """The margin of PODNet's released code; the paper's, on the target alone, has one."""
    scores, labels = scores_of(torch.float32)
    assert float(nca(scores - 0.6, labels)) == pytest.approx(float(nca(scores, labels)), rel=1e-6)
    assert float(nca(scores, labels, 0.6)) > float(nca(scores, labels)) + 0.1


def test_pod_spatial() -> None:
    """A mean over stages, whose maps differ in shape."""
    new, old = [[maps(seed), maps(seed + 1, 2, 3, 3)] for seed in (1, 5)]
    expected = sum(mean_distance(a, b, lines) for a, b in zip(new, old, strict=True)) / 2
    assert float(pod_spatial(new, old)) == pytest.approx(expected, rel=1e-5)
    assert float(pod_spatial(new, new)) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_old", [0, 2])
def test_overwritten_bce(dtype: torch.dtype, num_old: int) -> None:
    """Old classes' targets are the old network's for every sample, and the mean counts classes without scores."""
    scores, old_scores = (3 * torch.randn(6, 5)).to(dtype), (3 * torch.randn(6, num_old)).to(dtype)
    labels, total = torch.tensor([0, 4, 2, 2, 1, 3]), 0.0
    for row, old, label in zip(scores.double().tolist(), old_scores.double().tolist(), labels.tolist(), strict=True):
        for c, s in enumerate(row):
            target = 1 / (1 + math.exp(-old[c])) if c < num_old else float(c == label)
            p = 1 / (1 + math.exp(-s))
            total -= target * math.log(p) + (1 - target) * math.log(1 - p)
    loss = overwritten_bce(scores, labels, old_scores if num_old else None, num_classes=9)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(total / (6 * 9), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_soft_cross_entropy(dtype: torch.dtype) -> None:
    scores, old_scores = (4 * torch.randn(6, 5)).to(dtype), (4 * torch.randn(6, 3)).to(dtype)
    total = 0.0
    for new, old in zip(scores.double().tolist(), old_scores.double().tolist(), strict=True):
        q = [math.exp(s / 2) / sum(math.exp(o / 2) for o in old) for s in old]
        p = [math.exp(s / 2) / sum(math.exp(n / 2) for n in new[:3]) for s in new[:3]]
        total -= sum(a * math.log(b) for a, b in zip(q, p, strict=True))
    loss = soft_cross_entropy(scores, old_scores, temperature=2.0)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(total / 6, rel=1e-5)


@pytest.mark.parametrize("beta", [0.0, 0.94, 0.97])
def test_class_weights(beta: float) -> None:
    counts = [20, 3, 500, 20]
    raw = [(1 - beta) / (1 - beta**n) for n in counts]
    weights = class_weights(torch.tensor(counts), beta)
    assert weights.tolist() == pytest.approx([w * len(raw) / sum(raw) for w in raw], rel=1e-6)
    assert weights.dtype == torch.float32
    assert bool((weights == 1).all()) == (beta == 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_balanced_distillation(dtype: torch.dtype) -> None:
    scores, taught = (4 * torch.randn(6, 5)).to(dtype), (4 * torch.randn(6, 5)).to(dtype)
    weights = torch.rand(5) + 0.2
    total = 0.0
    for new, old in zip(scores.double().tolist(), taught.double().tolist(), strict=True):
        q = [
            w * math.exp(s / 2) / sum(math.exp(o / 2) for o in old) for s, w in zip(old, weights.tolist(), strict=True)
        ]
        p = [math.exp(s / 2) / sum(math.exp(n / 2) for n in new) for s in new]
        total -= sum(a / sum(q) * math.log(b) for a, b in zip(q, p, strict=True))
    assert float(balanced_distillation(scores, taught, weights, 2.0)) == pytest.approx(total / 6, rel=1e-4)


def test_weight_share() -> None:
    layers = [(9, torch.ones(3), torch.rand(5)), (1, torch.rand(5), torch.rand(4)), (49, torch.rand(4), torch.ones(2))]
    kept = whole = 0.0
    for kernel, m_in, m_out in layers:
        for i in m_in.double().tolist():
            for j in m_out.double().tolist():
                kept += kernel * i * j
                whole += kernel
    assert float(weight_share(layers)) == pytest.approx(kept / whole, rel=1e-5)
    assert float(weight_share([(k, torch.ones_like(i), torch.ones_like(o)) for k, i, o in layers])) == 1


# --- the generators' losses ------------------------------------------------------------------------------------------

Grid = list[list[list[float]]]
"""One sample's map [C][H][W]."""


def maps(seed: int, channels: int = 3, height: int = 4, width: int = 5) -> Tensor:
    return 2 * torch.randn(6, channels, height, width, generator=torch.Generator().manual_seed(seed))


def distance(a: list[float], b: list[float]) -> float:
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def unit(values: list[float]) -> list[float]:
    length = math.sqrt(sum(v * v for v in values))
    return [v / length for v in values]


def gram_by_loop(grid: Grid) -> list[float]:
    rows = [[v for line in channel for v in line] for channel in grid]
    return [sum(x * y for x, y in zip(a, b, strict=True)) for a in rows for b in rows]


def unit_channels(grid: Grid) -> Grid:
    return [[unit([v for line in channel for v in line])] for channel in grid]


def averages(grid: Grid) -> list[float]:
    return [sum(map(sum, channel)) / (len(channel) * len(channel[0])) for channel in grid]


def lines(grid: Grid) -> list[float]:
    """Energy along each row and each column of each channel."""
    found = []
    for channel in grid:
        found += [sum(v * v for v in line) for line in channel]
        found += [sum(line[x] ** 2 for line in channel) for x in range(len(channel[0]))]
    return unit(found)


def places(grid: Grid) -> list[float]:
    """Energy at each pixel."""
    return unit([sum(c[y][x] ** 2 for c in grid) for y in range(len(grid[0])) for x in range(len(grid[0][0]))])


def mean_distance(a: Tensor, b: Tensor, of: Callable[[Grid], list[float]]) -> float:
    pairs = zip(a.double().tolist(), b.double().tolist(), strict=True)
    return sum(distance(of(x), of(y)) for x, y in pairs) / len(a)


def test_gram() -> None:
    found = gram(maps(1))
    assert found.shape == (6, 3, 3)
    for i, grid in enumerate(maps(1).double().tolist()):
        assert found[i].flatten().tolist() == pytest.approx(gram_by_loop(grid), rel=1e-4, abs=1e-4)


def test_semantic_contrast() -> None:
    expected = mean_distance(maps(1), maps(2), averages)
    assert float(semantic_contrast(maps(1), maps(2))) == pytest.approx(expected, rel=1e-5)


def test_semantic_decoupling() -> None:
    expected = mean_distance(maps(1), maps(2), gram_by_loop)
    assert float(semantic_decoupling(maps(1), maps(2))) == pytest.approx(expected, rel=1e-5)


def test_pooled_contrast() -> None:
    expected = mean_distance(maps(1), maps(2), lines) + mean_distance(maps(1), maps(2), places)
    assert float(pooled_contrast(maps(1), maps(2))) == pytest.approx(expected, rel=1e-5)


def test_pooled_decoupling() -> None:
    """A mean over samples and over the rows of the Gram matrix."""
    total = 0.0
    for mixed, style in zip(maps(1).double().tolist(), maps(2).double().tolist(), strict=True):
        a, b = gram_by_loop(unit_channels(mixed)), gram_by_loop(unit_channels(style))
        total += sum(distance(a[i : i + 3], b[i : i + 3]) for i in (0, 3, 6)) / 3
    assert float(pooled_decoupling(maps(1), maps(2))) == pytest.approx(total / 6, rel=1e-5)


def energy(grids: list) -> float:
    """The mean over samples and pixels of a map's squared length, by loops."""
    sums = [sum(value**2 for channel in grid for row in channel for value in row) for grid in grids]
    return sum(sums) / len(sums) / (len(grids[0][0]) * len(grids[0][0][0]))


def test_relative_losses_are_those_printed_in_units_of_the_real_maps() -> None:
    unit, pixels = energy(maps(2).double().tolist()), maps(2)[0, 0].numel()
    expected = mean_distance(maps(1), maps(2), averages) / unit**0.5
    assert float(relative_contrast(maps(1), maps(2))) == pytest.approx(expected, rel=1e-5)
    expected = mean_distance(maps(1), maps(2), gram_by_loop) / (unit * pixels)
    assert float(relative_decoupling(maps(1), maps(2))) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("loss", [relative_contrast, relative_decoupling])
def test_relative_losses_are_equal_at_any_scale_and_finite_at_none(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    assert float(loss(50 * maps(1), 50 * maps(2))) == pytest.approx(float(loss(maps(1), maps(2))), rel=1e-5)
    assert float(loss(maps(1), 0 * maps(2))) < float("inf")


RELATIVE = [relative_contrast, relative_decoupling]


@pytest.mark.parametrize(
    "loss", [semantic_contrast, semantic_decoupling, pooled_contrast, pooled_decoupling, *RELATIVE]
)
def test_equal_maps_cost_nothing_and_low_precision_is_summed_in_high(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    assert float(loss(maps(1), maps(1))) == 0
    low = loss(maps(1).bfloat16(), maps(2).bfloat16())
    assert low.dtype == torch.float32
    assert float(low) == pytest.approx(float(loss(maps(1), maps(2))), rel=0.02)


# --- DMC -------------------------------------------------------------------------------------------------------------


def centred_by_loop(teachers: list[list[list[float]]], over: str) -> list[list[float]]:
    """DMC's targets, each less the mean of whatever `over` says it is compared with."""
    samples, everything = range(len(teachers[0])), []
    for b in samples:
        row = []
        for scores in teachers:
            for c, score in enumerate(scores[b]):
                peers = {
                    "sample-teacher": scores[b],
                    "sample": [s for other in teachers for s in other[b]],
                    "teacher": [s for other in samples for s in scores[other]],
                    "class": [scores[other][c] for other in samples],
                }[over]
                row.append(score - sum(peers) / len(peers))
        everything.append(row)
    return everything


@pytest.mark.parametrize("over", get_args(Centring))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_double_distillation(over: Centring, dtype: torch.dtype) -> None:
    teachers = [(3 * torch.randn(6, classes) + classes).to(dtype) for classes in (4, 2)]
    scores = torch.randn(6, 6).to(dtype)
    wanted = centred_by_loop([t.double().tolist() for t in teachers], over)
    targets = centred(teachers, over)
    assert targets.dtype == torch.float32
    torch.testing.assert_close(targets.double(), torch.tensor(wanted, dtype=torch.float64), rtol=1e-4, atol=1e-5)
    total = sum(
        (s - t) ** 2 for a, b in zip(scores.double().tolist(), wanted, strict=True) for s, t in zip(a, b, strict=True)
    )
    assert float(regression(scores, targets)) == pytest.approx(total / 36, rel=1e-4)


def test_only_the_papers_centring_ignores_what_a_teacher_adds_to_all_of_a_samples_scores() -> None:
    teachers, more = [torch.randn(6, 4), torch.randn(6, 2)], torch.randn(6, 1)
    same = [
        over
        for over in get_args(Centring)
        if torch.allclose(centred(teachers, over), centred([teachers[0] + more, teachers[1]], over), atol=1e-5)
    ]
    assert same == ["sample-teacher"]


# --- GD --------------------------------------------------------------------------------------------------------------


def softmax(row: list[float], temperature: float = 1.0) -> list[float]:
    powers = [math.exp(s / temperature) for s in row]
    return [p / sum(powers) for p in powers]


def kl(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softened_divergence(dtype: torch.dtype) -> None:
    teacher, scores = (3 * torch.randn(6, 4)).to(dtype), torch.randn(6, 4).to(dtype)
    wanted = [
        2.5**2 * kl(softmax(t, 2.5), softmax(s, 2.5))
        for t, s in zip(teacher.double().tolist(), scores.double().tolist(), strict=True)
    ]
    found = softened_divergence(teacher, scores, 2.5)
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx(wanted, rel=1e-4, abs=1e-6)


def test_divergence_of_targets_that_may_be_zero() -> None:
    scores = torch.randn(2, 3)
    targets = torch.tensor([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0]])
    wanted = [kl(t, softmax(s)) for t, s in zip(targets.double().tolist(), scores.double().tolist(), strict=True)]
    assert divergence(targets, scores).tolist() == pytest.approx(wanted, rel=1e-5)


def test_divergence_from_uniform() -> None:
    scores = 3 * torch.randn(6, 5)
    wanted = [kl([1 / 5] * 5, softmax(row)) for row in scores.double().tolist()]
    assert min(wanted) > 0.01
    assert divergence_from_uniform(scores).tolist() == pytest.approx(wanted, rel=1e-4)
    assert divergence_from_uniform(torch.full((2, 5), 7.0)).tolist() == pytest.approx([0, 0], abs=1e-6)


@pytest.mark.parametrize(("num_old", "num_new"), [(4, 2), (1, 3), (5, 1)])
def test_global_targets(num_old: int, num_new: int) -> None:
    old, new = 2 * torch.randn(6, num_old), 2 * torch.randn(6, num_new)
    found, others = global_targets(old, new), num_old + num_new - 1
    for row, a, b in zip(found.tolist(), old.double().tolist(), new.double().tolist(), strict=True):
        p, c = softmax(a), softmax(b)
        j = p.index(max(p))
        wanted = [p[i] if i == j else p[i] * (num_old - 1) / others for i in range(num_old)]
        wanted += [share * (1 - p[j]) * num_new / others for share in c]
        assert row == pytest.approx(wanted, rel=1e-4, abs=1e-7)
        assert sum(row) == pytest.approx(1, abs=1e-5)
        assert row[j] == pytest.approx(p[j], rel=1e-5)
        for i in range(num_new):
            assert row[num_old + i] * c[0] == pytest.approx(row[num_old] * c[i], rel=1e-3, abs=1e-7)


def test_balanced_classes_count_alike() -> None:
    counts, labels = torch.tensor([3, 1, 2]), torch.tensor([0, 0, 0, 1, 2, 2])
    scores = torch.randn(6, 3)
    weights = class_balance(counts)
    assert weights.tolist() == pytest.approx([6 / 9, 6 / 3, 6 / 6])
    by_class = [0.0] * 3
    for row, label in zip(scores.double().tolist(), labels.tolist(), strict=True):
        by_class[label] -= math.log(softmax(row)[label]) / int(counts[label])
    found = weighted_cross_entropy(scores, labels, weights[labels])
    assert float(found) == pytest.approx(6 * sum(by_class) / 3, rel=1e-5)
