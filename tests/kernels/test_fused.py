"""Our own kernels against the modules they stand for, in float64. Without a GPU they run in Triton's interpreter."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

pytest.importorskip("triton", reason="needs triton")

from daydream.engine.hardware import Hardware
from daydream.kernels import fused, launches
from daydream.nets import kernel_stages
from daydream.nets.network import Network
from daydream.nets.norm import Norm
from daydream.nets.resnet import Block, conv, make_stem, stage, to_channels_last

pytestmark = pytest.mark.slow

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def _few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tiles: an interpreted program takes its time, and several of them must share the work."""
    monkeypatch.setattr(launches, "TILES", {c: launches.Tile(32, 16, 4) for c in (16, 32, 64)})
    monkeypatch.setattr(launches, "WEIGHTS", {c: launches.Chunks(2, 16, 4, 4) for c in (16, 32, 64)})
    monkeypatch.setattr(launches, "ALL_TAPS", {c: launches.AllTaps(16, 4) for c in (16, 32)})


def randomised(module: nn.Module) -> nn.Module:
    """Give batch norms weights and statistics that are not those of a fresh network."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            for values in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
                assert values is not None
                nn.init.uniform_(values, 0.5, 1.5)
    return to_channels_last(module).to(DEVICE)


PARTS = {
    "stem": (make_stem, 3),
    "two blocks": (lambda: stage(16, 16, 2, 1, rectify=False, project=False), 16),
    "fewer pixels, more channels": (lambda: stage(16, 32, 1, 2, rectify=False, project=False), 16),
}
SIDE = 7  # odd: every second pixel is not half of them


@pytest.mark.parametrize(
    ("training", "hosts"), [(True, None), (True, 2), (False, None)], ids=["train", "guest", "eval"]
)
@pytest.mark.parametrize("part", PARTS)
def test_a_stage_gives_what_its_module_gives_forward_and_back(part: str, training: bool, hosts: int | None) -> None:
    torch.manual_seed(0)
    make, channels = PARTS[part]
    module = randomised(make()).train(training)
    slow = copy.deepcopy(module).double()
    for norm in slow.modules():
        if isinstance(norm, Norm):
            norm.hosts = hosts
    images = torch.randn(2 if hosts is None else 3, channels, SIDE, SIDE, device=DEVICE)
    x, x64 = images.clone().requires_grad_(), images.double().requires_grad_()
    y, y64 = kernel_stages.run(module, x, hosts), slow(x64)
    g = torch.randn_like(y)
    y.backward(g)
    y64.backward(g.double())
    assert x.grad is not None
    assert x64.grad is not None
    close(y, y64)
    close(x.grad, x64.grad)
    for mine, theirs in zip(module.parameters(), slow.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        close(mine.grad, theirs.grad)
    for mine, theirs in zip(module.buffers(), slow.buffers(), strict=True):
        close(mine, theirs)
    if not training:
        with torch.no_grad():
            close(kernel_stages.run(module, images), y64)


@pytest.mark.parametrize("product", [True, False], ids=["one product", "tap by tap"])
def test_gradients_for_weights_by_either_kernel(product: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    calls, weigh_all = list[bool](), launches.weigh_all
    monkeypatch.setattr(launches, "weigh_all", lambda *given: calls.append(True) or weigh_all(*given))
    if not product:
        monkeypatch.setattr(launches, "ALL_TAPS", {})
    x, g = (torch.randn(2, 16, SIDE, SIDE + 1, device=DEVICE).to(memory_format=torch.channels_last) for _ in range(2))
    weight = torch.zeros(16, 16, 3, 3, device=DEVICE, dtype=torch.float64, requires_grad=True)
    F.conv2d(x.double(), weight, padding=1).backward(g.double())
    out = torch.full((2, 9 * 16 * 16), torch.nan, device=DEVICE)
    launches.weigh(x, g, 1, out)
    assert len(calls) == product
    close(out.sum(0).view(16, 3, 3, 16).permute(0, 3, 1, 2), weight.grad)


@pytest.mark.parametrize(("maps", "gradients"), [(1e2, 1e-8), (1e-2, 1e2)], ids=["large maps", "large gradients"])
def test_sums_hold_the_large_and_the_small(maps: float, gradients: float) -> None:
    """They are whole numbers of a unit: maps and gradients of any size that training meets must fit it."""
    torch.manual_seed(0)
    module = randomised(stage(16, 16, 1, 1, rectify=False, project=False)).train()
    slow = copy.deepcopy(module).double()
    images = maps * torch.randn(2, 16, SIDE, SIDE, device=DEVICE)
    x, x64 = images.clone().requires_grad_(), images.double().requires_grad_()
    y, y64 = kernel_stages.run(module, x), slow(x64)
    g = gradients * torch.randn_like(y)
    y.backward(g)
    y64.backward(g.double())
    close(y, y64)
    for mine, theirs in zip((x, *module.parameters()), (x64, *slow.parameters()), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        size = theirs.grad.abs().max()
        close(mine.grad / size, theirs.grad / size)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # the interpreter's NumPy
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e18])
def test_sums_that_cannot_be_held_are_no_numbers(value: float) -> None:
    torch.manual_seed(0)
    module = randomised(stage(16, 16, 1, 1, rectify=False, project=False)).train()
    x = torch.randn(2, 16, SIDE, SIDE, device=DEVICE)
    x[1, 3, 2, 2] = value
    assert kernel_stages.run(module, x).isnan().any()
    first = next(norm for norm in module.modules() if isinstance(norm, nn.BatchNorm2d))
    assert first.running_mean is not None
    assert first.running_var is not None
    assert first.running_mean.isnan().any()
    assert first.running_var.isnan().any()


def test_a_stages_weights_are_cast_to_the_type_of_its_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module = randomised(stage(16, 16, 1, 1, rectify=False, project=False)).train()
    slow = copy.deepcopy(module).double()
    monkeypatch.setattr(fused, "precision", lambda x: torch.float16)
    images = torch.randn(2, 16, SIDE, SIDE, device=DEVICE)
    x, x64 = images.half().requires_grad_(), images.half().double().requires_grad_()
    y, y64 = kernel_stages.run(module, x), slow(x64)
    g = torch.randn_like(y)
    y.backward(g)
    y64.backward(g.double())
    assert x.grad is not None
    assert x64.grad is not None
    for mine, theirs in ((y, y64), (x.grad, x64.grad)):
        assert mine.dtype == torch.float16
        assert (mine.double() - theirs).norm() < 0.01 * theirs.norm()


@pytest.mark.parametrize("early", [True, False])
def test_a_kernel_that_is_launched_early_knows_it(early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, object]] = []

    class Kernel:
        def __getitem__(self, grid: tuple[int, ...]) -> object:
            return lambda *_, **options: told.append(options)

    monkeypatch.setattr(launches, "overlaps", lambda _: early)
    launches.launch(Kernel(), (1,), torch.zeros(1), BM=3)
    assert told == [{"BM": 3, "EARLY": early, **({"launch_pdl": True} if early else {})}]


def test_frozen_weights_let_the_gradient_through_and_get_none() -> None:
    torch.manual_seed(0)
    module = randomised(stage(16, 16, 1, 1, rectify=False, project=False)).eval().requires_grad_(False)
    x = torch.randn(1, 16, 4, 4, device=DEVICE, requires_grad=True)
    x64 = x.detach().double().requires_grad_()
    kernel_stages.run(module, x).sum().backward()
    copy.deepcopy(module).double()(x64).sum().backward()
    assert x.grad is not None
    assert x64.grad is not None
    close(x.grad, x64.grad)
    assert all(p.grad is None for p in module.parameters())


def test_a_network_under_autocast_runs_by_kernels_and_elsewhere_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net = Network("resnet10", "proxy", (4,)).to(DEVICE).eval().requires_grad_(False)
    randomised(net.lower)
    x = torch.randn(2, 3, 8, 8, device=DEVICE)
    plain, slow = net.lower(x), net.lower.stage1
    Hardware(DEVICE, "bf16", compile=True, capture=False, kernels=True).compile_parts(net)
    calls: list[nn.Module] = []
    # The interpreter knows no bfloat16: without a GPU this shows which way the network takes, not what comes of it.
    run = kernel_stages.run if DEVICE.type == "cuda" else nn.Module.__call__
    monkeypatch.setattr(kernel_stages, "run", lambda module, x, hosts: (calls.append(module), run(module, x))[1])
    assert torch.equal(net.lower(x), plain)
    assert not calls
    with torch.autocast(DEVICE.type, torch.bfloat16):
        found = net.lower(x)
    assert slow in calls
    assert found.dtype == torch.bfloat16
    assert float((found - plain).norm() / plain.norm()) < 0.03


def test_compiling_ahead_names_every_kernel_of_a_pass_and_runs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled ahead must be what is then run: kernel, constants and all."""
    torch.manual_seed(0)
    parts = [randomised(make_stem()), randomised(stage(16, 32, 1, 2, rectify=False, project=False))]
    images = torch.randn(2, 3, SIDE, SIDE, device=DEVICE)
    ahead: list[object] = []
    ran: list[object] = []

    def noted(kernel: object, grid: object, *args: object, **constants: object) -> None:
        types = [arg.dtype if isinstance(arg, Tensor) else arg for arg in args]
        (ahead if getattr(launches.dry, "compiles", False) else ran).append((kernel, grid, types, constants))

    monkeypatch.setattr(launches, "launch", noted)
    monkeypatch.setattr(fused, "precision", lambda _: torch.float16)  # as under autocast
    for training, back in [(True, True), (False, True), (False, False)]:
        ahead.clear()
        ran.clear()
        for part in parts:
            part.train(training)
        kernel_stages.compile_ahead(parts, images, back)
        x = images
        with torch.set_grad_enabled(back):
            for part in parts:
                x = kernel_stages.run(part, x)
        if back:
            x.sum().backward()
        assert ran
        assert all(call in ahead for call in ran)


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (nn.Sequential(Block(16, 16, 1, rectify=True, project=False)), "rectifies its input"),
        (nn.Sequential(Block(16, 32, 2, rectify=False, project=True)), "projects its shortcut"),
        (nn.Sequential(Block(24, 24, 1, rectify=False, project=False)), "24 channels"),
        (nn.Sequential(nn.Conv2d(3, 16, 7), nn.BatchNorm2d(16), nn.ReLU()), "a 7x7 convolution"),
        (nn.Sequential(nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU()), "no padding"),
        (nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()), "a bias"),
        (nn.Sequential(conv(3, 16), nn.BatchNorm2d(16, momentum=0.2), nn.ReLU()), "another momentum"),
        (nn.Sequential(nn.Linear(3, 3)), "no convolution"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_part_that_the_kernels_do_not_fit_is_left_alone(part: nn.Module, why: str) -> None:
    assert kernel_stages.stack_of(part) is None, why


def close(found: Tensor, wanted: Tensor) -> None:
    scale = float(wanted.detach().abs().max())
    torch.testing.assert_close(found.detach().double(), wanted.detach().double(), rtol=1e-4, atol=1e-5 * scale)
