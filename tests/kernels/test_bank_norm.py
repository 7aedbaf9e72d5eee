"""The kernels of a bank's batch norms against torch's batch norm, in float64. Without a GPU they are interpreted."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from daydream.kernels import bank_conv as conv_kernels
from daydream.kernels import bank_norm as norm_kernels
from daydream.kernels.launches import Tile
from daydream.nets.generators import ClassNorm, GeneratorBank, laid, side_by_side

pytestmark = pytest.mark.slow

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
HALF = torch.bfloat16 if DEVICE.type == "cuda" else torch.float16  # the interpreter knows no bfloat16
CLOSE = {torch.float32: (1e-4, 1e-5), torch.float16: (2e-3, 2e-3), torch.bfloat16: (1.6e-2, 1.6e-2)}


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several programs of several tiles each, and tiles that reach beyond the maps; float32 as it is."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(norm_kernels, "TILE", Tile(16, 16, 4))


def drawn(classes: int, channels: int) -> ClassNorm:
    """Return a batch norm that is not a fresh one."""
    norm = ClassNorm(classes, channels)
    for values in norm.state_dict().values():
        values.uniform_(0.5, 1.5)
    with torch.no_grad():
        norm.bias -= 1  # so that the ReLU stops some of both signs
    return norm.to(DEVICE)


def maps(samples: int, channels: int, side: int, dtype: torch.dtype, around: float = 0.0) -> Tensor:
    x = torch.randn(samples, channels, side, side, device=DEVICE) + around
    return x.to(dtype).contiguous(memory_format=torch.channels_last)


def of(norm: ClassNorm) -> norm_kernels.Norm:
    return norm_kernels.Norm(norm.running_mean, norm.running_var, norm.weight, norm.bias)


def close(found: Tensor | None, wanted: Tensor | None, dtype: torch.dtype = torch.float32) -> None:
    assert found is not None
    assert wanted is not None
    relative, absolute = CLOSE[dtype]
    scale = float(wanted.detach().abs().max())
    torch.testing.assert_close(found.detach().double(), wanted.detach().double(), rtol=relative, atol=absolute * scale)


SIZES = pytest.mark.parametrize(
    ("classes", "channels", "samples", "side"),
    [(2, 16, 3, 4), (3, 7, 5, 3), (1, 40, 6, 1), (1, 1, 3, 5)],
    ids=["whole tiles", "parts of tiles", "one pixel", "one channel"],
)


@SIZES
@pytest.mark.parametrize("dtype", [torch.float32, HALF], ids=["float32", "half"])
@pytest.mark.parametrize("track", [True, False], ids=["tracked", "untracked"])
@pytest.mark.parametrize("beside", [True, False], ids=["side", "no side"])
def test_in_training_all_is_as_torch_has_it(
    classes: int, channels: int, samples: int, side: int, beside: bool, track: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    norm = drawn(classes, channels).train()
    slow = copy.deepcopy(norm).double()
    x = maps(samples, classes * channels, side, dtype).requires_grad_()
    added = maps(samples, classes * channels, side, dtype).requires_grad_() if beside else None
    y = norm_kernels.rectified(x, added, of(norm), None, training=True, track=track)
    g = torch.randn_like(y)
    y.backward(g)
    x64, added64 = (None if t is None else t.detach().double().requires_grad_() for t in (x, added))
    assert x64 is not None
    y64 = slow(x64, None, track)
    y64 = F.relu(y64 if added64 is None else y64 + added64)
    y64.backward(g.double())
    assert y.dtype == dtype
    assert y.is_contiguous(memory_format=torch.channels_last)
    close(y, y64, dtype)
    close(x.grad, x64.grad, dtype)
    if added is not None and added64 is not None:
        close(added.grad, added64.grad, dtype)
    close(norm.weight.grad, slow.weight.grad, dtype)
    close(norm.bias.grad, slow.bias.grad, dtype)
    close(norm.running_mean, slow.running_mean)
    close(norm.running_var, slow.running_var)


@SIZES
@pytest.mark.parametrize("which", [None, [0], [1, 0, 1, 1]], ids=["all", "one", "some"])
@pytest.mark.parametrize("beside", [True, False], ids=["side", "no side"])
def test_in_evaluation_a_group_is_normalised_by_its_class(
    classes: int, channels: int, samples: int, side: int, beside: bool, which: list[int] | None
) -> None:
    torch.manual_seed(0)
    norm = drawn(classes, channels).eval()
    before = copy.deepcopy(norm.state_dict())
    chosen = None if which is None else torch.tensor(which, device=DEVICE) % classes
    groups = classes if chosen is None else len(chosen)
    x = maps(samples, groups * channels, side, torch.float32)
    added = maps(samples, groups * channels, side, torch.float32) if beside else None
    y = norm_kernels.rectified(x, added, of(norm), chosen, training=False, track=True)
    y64 = copy.deepcopy(norm).double()(x.double(), chosen)
    close(y, F.relu(y64 if added is None else y64 + added))
    assert all(torch.equal(values, before[name]) for name, values in norm.state_dict().items())


def test_maps_far_from_zero_do_not_cancel() -> None:
    torch.manual_seed(0)
    norm = drawn(2, 16).train()
    slow = copy.deepcopy(norm).double()
    x = maps(5, 32, 4, torch.float32, around=1000.0).requires_grad_()
    x64 = x.detach().double().requires_grad_()
    y, y64 = norm_kernels.rectified(x, None, of(norm), None, training=True, track=True), F.relu(slow(x64, None))
    g = torch.randn_like(y)
    y.backward(g)
    y64.backward(g.double())
    torch.testing.assert_close(y.double(), y64, rtol=0, atol=1e-3)  # a mean of 1,000 is known to 6e-5
    torch.testing.assert_close(norm.running_var.double(), slow.running_var, rtol=1e-5, atol=0)
    torch.testing.assert_close(x.grad.double(), x64.grad, rtol=0, atol=1e-3)


def test_what_is_not_a_number_is_not_rectified_away() -> None:
    norm = drawn(1, 2).train()
    x = maps(2, 2, 2, torch.float32)
    x[0, 1, 0, 0] = torch.nan
    y = norm_kernels.rectified(x, None, of(norm), None, training=True, track=True)
    assert y[:, 1].isnan().all()
    assert y[:, 0].isfinite().all()


def test_maps_that_lie_otherwise_are_laid_channels_last() -> None:
    torch.manual_seed(0)
    norm = drawn(2, 3).train()
    slow = copy.deepcopy(norm).double()
    x, added = (torch.randn(4, 6, 3, 3, device=DEVICE).requires_grad_() for _ in range(2))
    x64 = x.detach().double().requires_grad_()
    y = norm_kernels.rectified(x, added, of(norm), None, training=True, track=True)
    y64 = F.relu(slow(x64, None) + added.detach())
    g = torch.randn(y.shape, device=DEVICE)
    y.backward(g)
    y64.backward(g.double())
    close(y, y64)
    close(x.grad, x64.grad)


@pytest.fixture
def _as_under_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have passes in float32 take the way of those in bfloat16."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: True)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda _: torch.float32)


def banks(classes: int = 3) -> tuple[GeneratorBank, GeneratorBank]:
    """Return a bank of 4 channels, and its equal that runs by kernels."""
    torch.manual_seed(0)
    plain = GeneratorBank(classes, 4, 2, 5)
    for name, values in plain.state_dict().items():
        if "norm" in name:
            values.uniform_(0.5, 1.5)
    fast = copy.deepcopy(plain)
    fast.use_kernels()
    return plain.to(DEVICE), fast.to(DEVICE)


@pytest.mark.usefixtures("_as_under_autocast")
@pytest.mark.parametrize("track", [True, False])
def test_a_bank_trains_by_kernels_as_without(track: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, fast = banks()
    calls = counted(monkeypatch)
    pull = torch.randn(3, 6, 4, 3, 3, device=DEVICE)
    made = []
    for bank in (plain.train(), fast.train()):
        m, u = (torch.randn(3, 6, 4, 3, 3, generator=torch.Generator().manual_seed(i)).to(DEVICE) for i in (1, 2))
        m.requires_grad_()
        u.requires_grad_()
        mixed = bank(m, u, track=track)
        (mixed * pull).sum().backward()
        gradients = {name: parameter.grad for name, parameter in bank.named_parameters()}
        made.append({"mixed": mixed, "m": m.grad, "u": u.grad, **bank.state_dict(), **gradients})
    assert calls == [False, True, False, True]  # two blocks, of two norms each: the second one with a side
    for name, wanted in made[0].items():
        close(made[1][name], wanted)
    for name, parameter in fast.named_parameters():
        if "conv" in name:  # else every step would turn the gradient
            assert parameter.grad is not None
            assert parameter.grad.stride() == parameter.stride()


@pytest.mark.usefixtures("_as_under_autocast")
def test_a_frozen_bank_imagines_by_kernels_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, fast = (bank.eval().requires_grad_(False) for bank in banks())
    calls, convolutions, of_classes = counted(monkeypatch), list[int](), conv_kernels.of_classes
    monkeypatch.setattr(conv_kernels, "of_classes", lambda *given: convolutions.append(1) or of_classes(*given))
    m, u = torch.randn(2, 5, 2, 4, 3, 3, device=DEVICE)
    which = torch.tensor([2, 0, 0, 1, 2], device=DEVICE)
    close(fast(m, u, which), plain(m, u, which))
    assert (len(calls), len(convolutions)) == (4, 6)
    m.requires_grad_()  # in evaluation mode the kernels have no pass back
    fast(m, u, which).sum().backward()
    assert m.grad is not None
    assert len(calls) == 4
    assert len(convolutions) == 6


def test_without_autocast_a_bank_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, fast = banks()
    calls = counted(monkeypatch)
    m, u = torch.randn(2, 3, 6, 4, 3, 3, device=DEVICE)
    assert torch.equal(fast.train()(m, u), plain.train()(m, u))
    assert not calls


def counted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return the list to which every pass by the kernels adds whether it has a side."""
    calls: list[bool] = []
    rectified = norm_kernels.rectified

    def noted(x: Tensor, side: Tensor | None, *others: object) -> Tensor:
        calls.append(side is not None)
        return rectified(x, side, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(norm_kernels, "rectified", noted)
    return calls


def test_maps_side_by_side_are_the_same_in_either_layout() -> None:
    m, u = torch.randn(2, 3, 5, 4, 2, 6)
    first, last = (side_by_side(m, u, channels_last=way) for way in (False, True))
    assert torch.equal(first, last)
    assert first.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)
    wanted = torch.stack([torch.cat([torch.cat([m[g, n], u[g, n]]) for g in range(3)]) for n in range(5)])
    assert torch.equal(first, wanted)


def test_weights_are_the_same_in_either_layout() -> None:
    weight = torch.randn(2, 3, 4, 3, 3)
    turned = laid(weight, channels_last=True)
    assert torch.equal(turned, weight)
    assert turned.permute(0, 1, 3, 4, 2).is_contiguous()
    assert laid(turned, channels_last=True).data_ptr() == turned.data_ptr()
    assert torch.equal(laid(turned, channels_last=False), weight)
    assert laid(turned, channels_last=False).is_contiguous()
