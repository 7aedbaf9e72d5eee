"""k-means of all classes at once: classes, restarts and centres are axes of one tensor, on the points' device.

Each class by itself looks for the K centres m that make J = sum_n min_k |x_n - m_k|^2 small.

Shapes: C classes, N points of the largest class, D dimensions, R restarts, K centres. Smaller classes are padded, and
`real` [C, N] says which points are there.
"""

import contextlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor

RESTARTS = 10
ROUNDS = 300
ROUNDS_UNSEEN = 8  # between two looks at whether points still change centres: a look waits for the device


def by_class(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return features [M, D] of labels [M] as points [C, N, D], classes in order, 0 where padded; and what is real."""
    slots, counts = labels.cpu().unique(return_inverse=True, return_counts=True)[1:]
    order = slots.sort(stable=True).indices
    column = torch.arange(int(counts.max()))
    real = column < counts[:, None]
    rows = order[((counts.cumsum(0) - counts)[:, None] + column).clamp(max=len(order) - 1)].to(features.device)
    real = real.to(features.device)
    return features[rows] * real[..., None], real


def k_means(points: Tensor, real: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` centres of each class [C, K, D]: of R restarts that of the smallest J.

    A class of fewer points than centres has each of its points as a centre, in turn.
    """
    with _whole_products():
        centres, spread = lloyd(points, real, spread_start(points, real, count, generator))
    best = centres[torch.arange(len(centres), device=points.device), spread.argmin(1)]
    known = real.sum(1, keepdim=True).clamp(max=count)
    turn = torch.arange(count, device=points.device) % known
    return best.gather(1, turn[..., None].expand_as(best))


def spread_start(points: Tensor, real: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return points to start from [C, R, K, D], far from each other (greedy k-means++, Arthur and Vassilvitskii 2007).

    With w_n = min_k |x_n - m_k|^2 over the centres chosen so far, x_n is drawn with probability w_n / sum w; of
    2 + floor(ln K) different points so drawn the one is chosen that leaves the smallest sum w. The first is any point.

    Points are drawn as the largest log(u_n) / w_n, u uniform in (0, 1): the numbers come from the CPU, and unlike a
    search in cumulated weights the winner hardly ever depends on how a device rounds. Once all w are 0, points repeat.
    """
    num_classes, longest, _ = points.shape
    squares = points.square().sum(2)[:, None, None]
    real = real[:, None]
    weight = real.to(points.dtype).expand(-1, RESTARTS, -1)
    nearest = torch.full_like(weight, torch.inf)
    chosen: list[Tensor] = []
    for _ in range(count):
        trials = min(2 + int(math.log(count)), longest) if chosen else 1
        luck = torch.rand(num_classes, RESTARTS, longest, generator=generator).log().to(points)
        drawn = (luck / weight).topk(trials, 2).indices
        # A draw from fewer points than trials takes padding too: point 0 instead, which is always there.
        drawn = drawn.where(real.expand_as(weight).gather(2, drawn), 0)
        tried = points[torch.arange(num_classes, device=points.device)[:, None, None], drawn]
        distance = squares - 2 * (tried.flatten(1, 2) @ points.mT).unflatten(1, (RESTARTS, trials))
        distance = (distance + tried.square().sum(3, keepdim=True)).clamp(min=0)
        left = nearest[:, :, None].minimum(distance)
        best = left.where(real[:, None], 0).sum(3).argmin(2)[..., None, None]
        nearest = left.take_along_dim(best, 2).squeeze(2)
        chosen.append(tried.take_along_dim(best, 2))
        weight = nearest.where(real, 0)
    return torch.cat(chosen, 2)


def lloyd(points: Tensor, real: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Move centres [C, R, K, D] until no point changes its centre; return them, and J less sum_n |x_n|^2 [C, R].

    In turn: a_n = argmin_k |x_n - m_k|^2, the first of equals; m_k = mean of x_n with a_n = k. A centre without points
    stays where it is.
    """
    num_classes, restarts, count, dim = centres.shape
    numbers = torch.arange(count, device=points.device)[:, None]

    def assign(centres: Tensor) -> tuple[Tensor, Tensor]:
        flat = centres.flatten(1, 2)
        # |x - m|^2 less |x|^2, the same for every centre
        gaps = torch.baddbmm(flat.square().sum(2, keepdim=True), flat, points.mT, alpha=-2)
        least, owner = gaps.unflatten(1, (restarts, count)).min(2)
        return owner.masked_fill(~real[:, None], count), least.masked_fill(~real[:, None], 0).sum(2)

    owner, spread = assign(centres)
    for done in range(1, ROUNDS + 1):
        member = (owner[:, :, None] == numbers).to(points.dtype)
        sizes = member.sum(3)[..., None]
        sums = torch.bmm(member.flatten(1, 2), points).view(num_classes, restarts, count, dim)
        centres = torch.where(sizes > 0, sums / sizes.clamp(min=1), centres)
        before = owner
        owner, spread = assign(centres)
        if done % ROUNDS_UNSEEN == 0 and bool((owner == before).all()):
            break
    return centres, spread


@contextlib.contextmanager
def _whole_products() -> Iterator[None]:
    """Keep matrix products in float32 inside: TF32's 10 bits would round centres, and distances to them."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
