"""Passes over rows by our own kernels against float64. Without a GPU they run in Triton's interpreter."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from daydream.kernels import row_kernels
from daydream.nets.cosine_ops import Nearest, Unit, cosine_of_units, nearest_proxies, unit

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def close(mine: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 64), (3, 10, 7), (1, 2500)])
def test_rows_of_length_one_and_their_gradient(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, g = torch.randn(shape, device=DEVICE), torch.randn(shape, device=DEVICE)
    wanted = x.double().requires_grad_()
    y = F.normalize(wanted, dim=-1)
    y.backward(g.double())
    assert wanted.grad is not None
    close(row_kernels.unit(x, torch.float32), y.detach())
    close(row_kernels.unit_back(x, g), wanted.grad)


def test_a_row_of_zeros_stays_one() -> None:
    x = torch.zeros(2, 8, device=DEVICE)
    assert torch.equal(row_kernels.unit(x, torch.float32), x)
    assert torch.isfinite(row_kernels.unit_back(x, torch.ones_like(x))).all()


@pytest.mark.parametrize("classes", [1, 7, 301])
def test_scores_by_proxies_and_their_gradient(classes: int) -> None:
    torch.manual_seed(0)
    cosines, g = 2 * torch.rand(3, 10 * classes, device=DEVICE) - 1, torch.randn(3, classes, device=DEVICE)
    wanted = cosines.double().requires_grad_()
    s = 18 * (wanted.unflatten(1, (classes, 10)) - 1)
    scores = (s.softmax(2) * s).sum(2)
    scores.backward(g.double())
    assert wanted.grad is not None
    close(row_kernels.nearest(cosines, 10, 18.0), scores.detach())
    close(row_kernels.nearest_back(cosines, g, 10, 18.0), wanted.grad)


def test_gradients_go_back_through_rows_cosines_and_scores() -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(4, 64, device=DEVICE, requires_grad=True) for _ in range(2))
    x64, y64 = (t.detach().double().requires_grad_() for t in (x, y))
    cosines, wanted = cosine_of_units(x, y), F.cosine_similarity(x64, y64, dim=1)
    close(cosines.detach(), wanted.detach())
    scores, s = (
        Nearest.apply(Unit.apply(x, torch.float32), 8, 2.0),
        2 * (F.normalize(x64, dim=1) - 1).unflatten(1, (8, 8)),
    )
    (cosines.sum() + scores.square().sum()).backward()
    (wanted.sum() + (s.softmax(2) * s).sum(2).square().sum()).backward()
    for mine, theirs in ((x, x64), (y, y64)):
        assert mine.grad is not None
        assert theirs.grad is not None
        close(mine.grad, theirs.grad)


def test_what_a_device_without_kernels_gives_is_the_same() -> None:
    torch.manual_seed(0)
    x, cosines = torch.randn(4, 6), torch.rand(4, 20)
    close(unit(x), F.normalize(x.double(), dim=1))
    close(nearest_proxies(cosines, 10, 2.0), row_kernels.nearest(cosines.to(DEVICE), 10, 2.0).double().cpu())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_gradients_pass_and_autocast_chooses_the_type() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 64, device=DEVICE, requires_grad=True)
    assert unit(x).dtype == torch.float32
    with torch.autocast("cuda", torch.bfloat16):
        u = unit(x)
        scores = nearest_proxies(u @ u.detach().repeat(5, 1).T, 10, 18.0)
    assert u.dtype == torch.bfloat16
    assert scores.dtype == torch.float32
    scores.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float32
    assert x.grad.isfinite().all()
