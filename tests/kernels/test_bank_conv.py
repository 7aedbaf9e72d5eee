"""A bank's convolutions, back by kernels, against torch's in float64. Without a GPU the kernels are interpreted."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from daydream.engine.hardware import Hardware
from daydream.kernels import bank_conv as conv_kernels
from daydream.kernels.bank_conv import Share, Tile
from daydream.nets.generators import ClassConv, ClassNorm, GeneratorBank, laid

pytestmark = pytest.mark.slow

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
HALF = torch.bfloat16 if DEVICE.type == "cuda" else torch.float16  # the interpreter knows no bfloat16
USED = conv_kernels.WEIGH
CLOSE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several programs of several tiles each, and tiles that reach beyond maps and weights; float32 as it is."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(conv_kernels, "WEIGH", Tile(16, 16, 32))
    monkeypatch.setattr(conv_kernels, "TURN", 16)


@pytest.fixture
def autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have passes in float32 take the way of those in bfloat16."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: True)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda _: torch.float32)


def close(found: Tensor | None, wanted: Tensor | None, dtype: torch.dtype = torch.float32) -> None:
    assert found is not None
    assert wanted is not None
    off = CLOSE[dtype] * float(wanted.detach().abs().max())
    torch.testing.assert_close(found.detach().double(), wanted.detach().double(), rtol=0, atol=off)


def drawn(classes: int, written: int, read: int, size: int) -> Tensor:
    """Return weights that lie as a GPU wants them."""
    return laid(torch.randn(classes, written, read, size, size, device=DEVICE), channels_last=True)


@pytest.mark.parametrize("dtype", [torch.float32, HALF], ids=["float32", "half"])
@pytest.mark.parametrize(
    ("classes", "read", "written", "size", "samples", "height", "width"),
    [
        (2, 16, 16, 3, 3, 4, 4),
        (3, 5, 7, 3, 3, 5, 3),
        (2, 3, 4, 3, 5, 2, 2),
        (1, 24, 40, 3, 2, 3, 3),
        (2, 4, 4, 3, 1, 9, 2),
        (2, 6, 5, 3, 3, 1, 1),
        (9, 12, 20, 1, 3, 4, 5),
    ],
    ids=["whole tiles", "parts of tiles", "several maps a tile", "wide", "one tall map", "one pixel", "one tap"],
)
def test_gradients_are_torchs(
    classes: int,
    read: int,
    written: int,
    size: int,
    samples: int,
    height: int,
    width: int,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda _: dtype)
    weight = drawn(classes, written, read, size).requires_grad_()
    x = torch.randn(samples, classes * read, height, width, device=DEVICE).requires_grad_()
    y = conv_kernels.convolved(x, weight)
    g = torch.randn_like(y)
    y.backward(g)
    weight64, x64 = (t.detach().to(dtype).double().requires_grad_() for t in (weight, x))
    y64 = F.conv2d(x64, weight64.flatten(0, 1), padding=size // 2, groups=classes)
    y64.backward(g.double())
    assert y.dtype == dtype
    close(y, y64, dtype)
    close(x.grad, x64.grad, dtype)
    close(weight.grad, weight64.grad)  # added up in float32, and written so, whatever the maps are


def test_tiles_need_not_be_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiles that are used, some of them beyond the weights."""
    monkeypatch.setattr(conv_kernels, "WEIGH", USED)
    torch.manual_seed(0)
    x, g = (torch.randn(3, 9, 9, 2 * each, device=DEVICE).permute(0, 3, 1, 2) for each in (20, 130))
    wanted = torch.nn.grad.conv2d_weight(x.double(), (260, 20, 3, 3), g.double(), padding=1, groups=2)
    found = conv_kernels.weighed(x, g, 3, 2).permute(0, 1, 4, 2, 3)
    close(found.flatten(0, 1), wanted)


@pytest.mark.parametrize(("written", "read", "size"), [(16, 16, 3), (5, 33, 3), (20, 3, 1)])
def test_weights_are_turned(written: int, read: int, size: int) -> None:
    weight = torch.randn(3, written, size, size, read, device=DEVICE)
    assert torch.equal(conv_kernels.turned(weight), weight.flip(2, 3).transpose(1, 4).contiguous())


def test_a_gradient_lies_as_its_weights_do() -> None:
    """Otherwise autograd would turn it in every step."""
    weight = drawn(2, 4, 5, 3).requires_grad_()
    y = conv_kernels.Convolved.apply(torch.randn(3, 10, 2, 2, device=DEVICE, dtype=HALF), weight)
    (found,) = torch.autograd.grad(y.sum(), weight)
    assert found.dtype == weight.dtype
    assert found.stride() == weight.stride()


def test_what_no_gradient_is_wanted_for_has_none_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_kernels, "turned", None)
    weight, x = drawn(2, 4, 5, 3).requires_grad_(), torch.randn(3, 10, 2, 2, device=DEVICE)
    conv_kernels.Convolved.apply(x, weight).sum().backward()
    assert weight.grad is not None


def counted(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """Return the list to which every pass by the kernels adds the shape of its weights."""
    calls: list[torch.Size] = []
    convolved = conv_kernels.convolved

    def noted(x: Tensor, weight: Tensor) -> Tensor:
        calls.append(weight.shape)
        return convolved(x, weight)

    monkeypatch.setattr(conv_kernels, "convolved", noted)
    return calls


@pytest.mark.usefixtures("autocast")
@pytest.mark.parametrize(("depth", "width", "passes"), [(1, 0, 3), (2, 5, 6)])
def test_a_bank_trains_by_kernels_as_without(
    depth: int, width: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two passes through the same weights, as a cycle has."""
    torch.manual_seed(0)
    plain = GeneratorBank(3, 4, depth, width).to(DEVICE).train()
    fast = copy.deepcopy(plain)
    fast.use_kernels()
    for module in fast.modules():
        if isinstance(module, ClassConv):
            module.kernels = True
    calls = counted(monkeypatch)
    m, u, pull = torch.randn(3, 3, 6, 4, 3, 5, device=DEVICE)
    made = []
    for bank in (plain, fast):
        mine, theirs = (maps.clone().requires_grad_() for maps in (m, u))
        mixed = bank(mine, theirs)
        again = bank(mixed, mine, track=False)
        ((mixed + again) * pull).sum().backward()
        gradients = {f"{name}.grad": parameter.grad for name, parameter in bank.named_parameters()}
        made.append({"mixed": mixed, "m": mine.grad, "u": theirs.grad, **bank.state_dict(), **gradients})
    assert len(calls) == 2 * passes
    for name, wanted in made[0].items():
        off = 1e-4 * float(wanted.detach().abs().max())
        torch.testing.assert_close(
            made[1][name], wanted, rtol=0, atol=off, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.usefixtures("autocast")
def test_only_training_goes_back_by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    conv, x = ClassConv(2, 3, 4, 3).to(DEVICE), torch.randn(2, 6, 3, 3, device=DEVICE)
    calls = counted(monkeypatch)
    wanted = conv(x, None)
    conv.kernels = True
    close(conv(x, None), wanted)
    assert len(calls) == 1
    which = torch.tensor([0, 1], device=DEVICE)
    close(conv(x, which), wanted)
    conv(x, which).sum().backward()
    assert conv.weight.grad is not None
    with torch.no_grad():
        close(conv(x, None), wanted)
        close(conv(x, which), wanted)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)
    close(conv(x, None), wanted)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: True)
    conv.requires_grad_(False)
    close(conv(x, None), wanted)
    assert len(calls) == 1


@pytest.mark.parametrize("kernels", [True, False])
def test_hardware_with_kernels_has_a_bank_use_them(kernels: bool) -> None:
    bank = GeneratorBank(2, 4, 2, 5)
    Hardware(DEVICE, "bf16", compile=True, capture=False, kernels=kernels).compile_parts(bank)
    parts = [part.kernels for part in bank.modules() if isinstance(part, ClassNorm | ClassConv)]
    assert parts == [kernels] * (4 + 6)


@pytest.mark.parametrize("dtype", [torch.float32, HALF], ids=["float32", "half"])
@pytest.mark.parametrize(("read", "written", "size"), [(16, 16, 3), (24, 40, 3), (12, 20, 1)])
def test_groups_are_convolved_by_the_weights_of_their_classes(
    read: int, written: int, size: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(conv_kernels, "CONVOLVE", Share(32, 16, 16))
    which = torch.tensor([2, 9, 0, 9, 2, 9, 1, 9], device=DEVICE)[::2]
    weight = torch.randn(3, written, size, size, read, device=DEVICE).to(dtype)
    x = torch.randn(3, 4 * read, 5, 3, device=DEVICE).to(dtype).contiguous(memory_format=torch.channels_last)
    flat = weight[which].double().flatten(0, 1).permute(0, 3, 1, 2)
    wanted = F.conv2d(x.double(), flat, padding=size // 2, groups=4)
    found = conv_kernels.of_classes(x, weight, which)
    assert found.is_contiguous(memory_format=torch.channels_last)
    close(found, wanted, dtype)
