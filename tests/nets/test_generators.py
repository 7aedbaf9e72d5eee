"""The bank of generators against one plain module per class, written here from the paper's Figure 2."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from daydream.nets.generators import GeneratorBank

CLASSES, CHANNELS, SIDE = 3, 4, 5
TIGHT = {"rtol": 1e-9, "atol": 1e-11}
"""For float64: nothing but the order of sums may differ."""
SHAPES = pytest.mark.parametrize(("depth", "width"), [(1, 0), (2, 0), (2, 6), (3, 5)])


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(y)))


class OneGenerator(nn.Module):
    """G_c of one class: maps [N, c, h, w] and [N, c, h, w] -> [N, c, h, w]."""

    def __init__(self, channels: int, depth: int, width: int) -> None:
        super().__init__()
        inner = width or 2 * channels
        self.reduce = nn.Conv2d(2 * channels, inner, 1, bias=False) if width else None
        self.blocks = nn.ModuleList(Block(inner) for _ in range(depth))
        self.fuse = nn.Conv2d(inner, channels, 1, bias=False)

    def forward(self, exemplar: Tensor, unlabelled: Tensor) -> Tensor:
        x = torch.cat([exemplar, unlabelled], dim=1)
        x = x if self.reduce is None else self.reduce(x)
        for block in self.blocks:
            x = block(x)
        return self.fuse(x)


def filled(depth: int, width: int, classes: int = CLASSES, dtype: torch.dtype = torch.float64) -> GeneratorBank:
    """Return a bank in which every number, running statistics included, is its own."""
    torch.manual_seed(classes + 10 * depth + width)
    bank = GeneratorBank(classes, CHANNELS, depth, width).to(dtype)
    for name, values in bank.state_dict().items():
        if "norm" in name:
            noise = torch.rand_like(values) + 0.5
            values.copy_(noise if name.endswith(("weight", "var")) else noise - 1)
    return bank


def apart(bank: GeneratorBank) -> list[OneGenerator]:
    """Return the bank's generators as modules of their own."""
    _, channels, depth, width, _ = bank.shape
    found = []
    for index in range(bank.classes):
        one = OneGenerator(channels, depth, width).to(bank.fuse.weight.dtype)
        own = {name: values[index] for name, values in bank.state_dict().items()}
        missing, unexpected = one.load_state_dict(own, strict=False)
        assert not unexpected
        assert all(name.endswith("num_batches_tracked") for name in missing)
        found.append(one.train(bank.training))
    return found


def maps(groups: int, samples: int = 6, seed: int = 1, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    both = torch.randn(2, groups, samples, CHANNELS, SIDE, SIDE, generator=generator, dtype=torch.float64).to(dtype)
    return both[0].clone().requires_grad_(), both[1].clone().requires_grad_()


def together(ones: list[OneGenerator], exemplar: Tensor, unlabelled: Tensor, which: list[int]) -> Tensor:
    return torch.stack([ones[c](exemplar[g], unlabelled[g]) for g, c in enumerate(which)])


def assert_same_generators(bank: GeneratorBank, ones: list[OneGenerator]) -> None:
    for name, values in bank.state_dict().items():
        theirs = torch.stack([one.state_dict()[name] for one in ones])
        torch.testing.assert_close(values, theirs, **TIGHT, msg=lambda text, name=name: f"{name}: {text}")


def assert_same_gradients(bank: GeneratorBank, ones: list[OneGenerator]) -> None:
    theirs = [dict(one.named_parameters()) for one in ones]
    for name, parameter in bank.named_parameters():
        expected = torch.stack([torch.zeros_like(t[name]) if t[name].grad is None else t[name].grad for t in theirs])
        torch.testing.assert_close(parameter.grad, expected, **TIGHT)


@SHAPES
@pytest.mark.parametrize("training", [True, False])
def test_bank_and_its_gradients_equal_a_module_per_class(depth: int, width: int, training: bool) -> None:
    bank = filled(depth, width).train(training)
    ones = apart(bank)
    (m, u), (m_apart, u_apart) = maps(CLASSES), maps(CLASSES)
    pull = torch.randn(m.shape, dtype=m.dtype, generator=torch.Generator().manual_seed(2))
    mixed, expected = bank(m, u), together(ones, m_apart, u_apart, list(range(CLASSES)))
    assert mixed.shape == m.shape
    torch.testing.assert_close(mixed, expected, **TIGHT)
    (mixed * pull).sum().backward()
    (expected * pull).sum().backward()
    torch.testing.assert_close(m.grad, m_apart.grad, **TIGHT)
    torch.testing.assert_close(u.grad, u_apart.grad, **TIGHT)
    assert_same_gradients(bank, ones)
    assert_same_generators(bank, ones)  # running statistics, after one pass in train mode


@SHAPES
def test_after_several_steps_all_is_still_equal(depth: int, width: int) -> None:
    bank = filled(depth, width).train()
    before, ones = apart(bank), apart(bank)
    optimizers = [
        torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-3)
        for parameters in (bank.parameters(), [p for one in ones for p in one.parameters()])
    ]
    for step in range(4):
        m, u = maps(CLASSES, seed=step)
        target = u.detach().flip(0)
        for mixed, optimizer in (
            (bank(m, u), optimizers[0]),
            (together(ones, m, u, list(range(CLASSES))), optimizers[1]),
        ):
            optimizer.zero_grad()
            (mixed - target).square().sum().mul(0.01).backward()
            optimizer.step()
    assert_same_generators(bank, ones)
    moved = {
        name: not torch.equal(values, torch.stack([one.state_dict()[name] for one in before]))
        for name, values in bank.state_dict().items()
    }
    assert all(moved.values()), moved


@SHAPES
@pytest.mark.parametrize("which", [[1], [2, 0], [0, 0, 0, 0], [2, 1, 2, 0, 1, 2, 2]])
def test_any_mix_of_classes(depth: int, width: int, which: list[int]) -> None:
    bank = filled(depth, width).eval()
    ones = apart(bank)
    (m, u), (m_apart, u_apart) = maps(len(which), samples=2), maps(len(which), samples=2)
    mixed = bank(m, u, torch.tensor(which))
    expected = together(ones, m_apart, u_apart, which)
    torch.testing.assert_close(mixed, expected, **TIGHT)
    mixed.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(m.grad, m_apart.grad, **TIGHT)
    torch.testing.assert_close(u.grad, u_apart.grad, **TIGHT)
    assert_same_gradients(bank, ones)


@pytest.mark.parametrize("training", [True, False])
def test_float32(training: bool) -> None:
    bank = filled(2, 6, dtype=torch.float32).train(training)
    ones = apart(bank)
    (m, u), (m_apart, u_apart) = maps(CLASSES, dtype=torch.float32), maps(CLASSES, dtype=torch.float32)
    mixed, expected = bank(m, u), together(ones, m_apart, u_apart, list(range(CLASSES)))
    torch.testing.assert_close(mixed, expected, rtol=1e-4, atol=1e-4)
    mixed.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(m.grad, m_apart.grad, rtol=1e-3, atol=1e-4)


def test_a_pass_that_is_not_tracked_leaves_the_running_statistics() -> None:
    bank = filled(2, 6).train()
    before = {name: values.clone() for name, values in bank.state_dict().items()}
    m, u = maps(CLASSES)
    untracked = bank(m, u, track=False)
    assert all(torch.equal(values, before[name]) for name, values in bank.state_dict().items())
    torch.testing.assert_close(bank(m, u), untracked, **TIGHT)  # by the batch's own statistics either way
    assert not any(torch.equal(values, before[name]) for name, values in bank.state_dict().items() if "run" in name)


def test_a_class_does_not_see_the_others() -> None:
    bank = filled(2, 0).train()
    m, u = maps(CLASSES)
    before = bank(m, u)
    with torch.no_grad():
        m[1] += 1
        u[1] *= 2
    after = bank(m, u)
    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert not torch.equal(after[1], before[1])


def test_train_mode_takes_all_classes_in_order() -> None:
    with pytest.raises(AssertionError, match="side by side"):
        filled(1, 0).train()(*maps(2), torch.tensor([0, 1]))


@pytest.mark.parametrize("width", [0, 6])
def test_extended_keeps_both(width: int) -> None:
    first, second = (filled(2, width, classes=n, dtype=torch.float32).eval() for n in (3, 2))
    whole = first.extended(second)
    assert whole.classes == 5
    assert not whole.training
    assert not any(p.requires_grad for p in whole.parameters())
    mine, theirs = first.state_dict(), second.state_dict()
    for name, values in whole.state_dict().items():
        assert torch.equal(values[:3], mine[name]), name
        assert torch.equal(values[3:], theirs[name]), name
    m, u = maps(5, dtype=torch.float32)
    expected = torch.cat([first(m[:3], u[:3]), second(m[3:], u[3:])])
    torch.testing.assert_close(whole(m, u), expected, rtol=1e-4, atol=1e-5)


def test_extended_refuses_another_kind() -> None:
    with pytest.raises(AssertionError):
        filled(1, 0).extended(filled(2, 0))


@SHAPES
def test_config_and_state_dict_build_it_again(depth: int, width: int) -> None:
    bank = filled(depth, width, dtype=torch.float32).eval()
    again = GeneratorBank(**bank.config())
    again.load_state_dict(bank.state_dict())
    m, u = maps(CLASSES, dtype=torch.float32)
    assert again.config() == bank.config()
    assert torch.equal(again.eval()(m, u), bank(m, u))


@pytest.mark.parametrize(
    ("classes", "channels", "depth", "width"),
    [(1, 64, 2, 0), (3, 64, 2, 0), (2, 8, 1, 0), (2, 8, 4, 5), (1, 16, 3, 12)],
)
def test_parameters(classes: int, channels: int, depth: int, width: int) -> None:
    inner = width or 2 * channels
    reduction = 2 * channels * inner if width else 0
    each = reduction + depth * (2 * 9 * inner**2 + 4 * inner) + inner * channels
    bank = GeneratorBank(classes, channels, depth, width)
    assert sum(p.numel() for p in bank.parameters()) == classes * each


def test_parameters_on_the_maps_of_resnet32() -> None:
    assert sum(p.numel() for p in GeneratorBank(1, 64).parameters()) == 599_040


def test_an_untrained_generator_with_a_skip_gives_the_exemplar() -> None:
    bank = GeneratorBank(2, CHANNELS, skip=True).eval()
    m, u = torch.randn(2, 2, 3, CHANNELS, 4, 4)
    torch.testing.assert_close(bank(m, u), m, rtol=0, atol=0)


def test_a_skip_adds_the_exemplar_and_nothing_else() -> None:
    torch.manual_seed(1)
    plain, skipping = GeneratorBank(2, CHANNELS).eval(), GeneratorBank(2, CHANNELS, skip=True).eval()
    skipping.load_state_dict(plain.state_dict())
    m, u = torch.randn(2, 3, 1, CHANNELS, 4, 4)
    which = torch.tensor([1, 0, 1])
    torch.testing.assert_close(skipping(m, u, which), plain(m, u, which) + m)
    assert skipping.extended(GeneratorBank(1, CHANNELS, skip=True)).skip


def test_frozen_weights_are_cast_once_and_again_when_they_change() -> None:
    bank = filled(1, 0, dtype=torch.float32).eval().requires_grad_(False)
    conv, which = bank.fuse, torch.tensor([2, 0, 0])
    first = conv.as_gathered(torch.bfloat16)
    assert torch.equal(first, conv.laid_out().bfloat16())
    assert conv.as_gathered(torch.bfloat16) is first
    x = torch.randn(2, 3 * conv.weight.shape[2], SIDE, SIDE).bfloat16()
    found = conv(x, which)
    wanted = F.conv2d(x, conv.weight[which].flatten(0, 1).bfloat16(), groups=3)
    torch.testing.assert_close(found, wanted)
    with torch.no_grad():
        conv.weight.add_(1)
    assert torch.equal(conv.as_gathered(torch.bfloat16), conv.laid_out().bfloat16())
    assert conv.as_gathered(torch.float32).data_ptr() == conv.weight.data_ptr()
