"""Optimisers against the update written out, and continued from a stored state."""

import math

import pytest
import torch
from torch import Tensor, nn

from daydream.engine.optim import Optimizer
from daydream.stages.stage import SGD, Adam, Group
from daydream.storage.checkpoint_files import load_checkpoint, save_checkpoint

CPU = torch.device("cpu")
KINDS: list[SGD | Adam] = [
    SGD(lr=0.1, momentum=0.9, weight_decay=0.01),
    SGD(lr=0.1, momentum=0.0, weight_decay=0.01),
    Adam(lr=0.05, betas=(0.8, 0.95), weight_decay=0.01),
]


def parameters(seed: int = 0) -> list[nn.Parameter]:
    """A channels-last convolution, a matrix and a scalar."""
    generator = torch.Generator().manual_seed(seed)
    kernel = torch.randn(4, 3, 3, 3, generator=generator).contiguous(memory_format=torch.channels_last)
    return [
        nn.Parameter(t) for t in (kernel, torch.randn(5, 2, generator=generator), torch.randn((), generator=generator))
    ]


def groups(tensors: list[nn.Parameter]) -> list[Group]:
    return [Group(tensors[:1]), Group(tensors[1:2], factor=0.1), Group(tensors[2:], factor=2.0, weight_decay=0.0)]


def gradients(step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(p.shape, generator=generator) for p in parameters()]


def take_steps(optimizer: Optimizer, tensors: list[nn.Parameter], steps: range) -> None:
    for step in steps:
        optimizer.set_rate(rate(step))
        for tensor, gradient in zip(tensors, gradients(step), strict=True):
            tensor.grad = gradient.clone(memory_format=torch.preserve_format).to(memory_format=layout(tensor))
        optimizer.inner.step()


def layout(tensor: Tensor) -> torch.memory_format:
    return torch.channels_last if tensor.ndim == 4 else torch.contiguous_format


def rate(step: int) -> float:
    return 1.0 if step < 3 else 0.5


def values(tensors: list[nn.Parameter]) -> list[list[float]]:
    return [p.detach().double().flatten().tolist() for p in tensors]


def sgd_by_loop(kind: SGD, steps: int) -> list[list[float]]:
    found = values(parameters())
    for place, (factor, decay) in enumerate([(1.0, kind.weight_decay), (0.1, kind.weight_decay), (2.0, 0.0)]):
        for i in range(len(found[place])):
            w, velocity = found[place][i], 0.0
            for step in range(steps):
                g = gradients(step)[place].double().flatten()[i].item() + decay * w
                velocity = kind.momentum * velocity + g
                w -= kind.lr * factor * rate(step) * velocity
            found[place][i] = w
    return found


def adam_by_loop(kind: Adam, steps: int) -> list[list[float]]:
    found = values(parameters())
    (b1, b2) = kind.betas
    for place, (factor, decay) in enumerate([(1.0, kind.weight_decay), (0.1, kind.weight_decay), (2.0, 0.0)]):
        for i in range(len(found[place])):
            w, m, v = found[place][i], 0.0, 0.0
            for step in range(steps):
                g = gradients(step)[place].double().flatten()[i].item() + decay * w
                m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
                towards = m / (1 - b1 ** (step + 1)) / (math.sqrt(v / (1 - b2 ** (step + 1))) + 1e-8)
                w -= kind.lr * factor * rate(step) * towards
            found[place][i] = w
    return found


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_updates_are_the_equations_with_each_groups_factor_and_decay(kind: SGD | Adam) -> None:
    tensors = parameters()
    take_steps(Optimizer(kind, groups(tensors), CPU), tensors, range(5))
    expected = sgd_by_loop(kind, 5) if isinstance(kind, SGD) else adam_by_loop(kind, 5)
    for found, wanted in zip(values(tensors), expected, strict=True):
        assert found == pytest.approx(wanted, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("stop", [0, 1, 4])
def test_a_stored_state_goes_on_bit_for_bit(
    kind: SGD | Adam, stop: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = parameters()
    take_steps(Optimizer(kind, groups(whole), CPU), whole, range(7))

    first = parameters()
    optimizer = Optimizer(kind, groups(first), CPU)
    take_steps(optimizer, first, range(stop))
    folder = tmp_path_factory.mktemp("checkpoint")
    save_checkpoint(folder, {}, {"optimizer": optimizer.state()})
    stored = load_checkpoint(folder)
    assert stored is not None

    second = [nn.Parameter(p.detach().clone(memory_format=torch.preserve_format)) for p in first]
    resumed = Optimizer(kind, groups(second), CPU)
    resumed.load(stored[1]["optimizer"])
    take_steps(resumed, second, range(stop, 7))
    assert all(torch.equal(a, b) for a, b in zip(whole, second, strict=True))


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2]], ids=str)
def test_a_loaded_state_has_the_parameters_layout_and_is_a_copy(kind: SGD | Adam) -> None:
    tensors = parameters()
    optimizer = Optimizer(kind, groups(tensors), CPU)
    take_steps(optimizer, tensors, range(2))
    state = {name: value.contiguous() for name, value in optimizer.state().items()}
    names = ["momentum_buffer"] if isinstance(kind, SGD) else ["exp_avg", "exp_avg_sq", "step"]
    assert sorted(state) == sorted(f"{place}.{name}" for place in range(3) for name in names)

    resumed = Optimizer(kind, groups(tensors), CPU)
    resumed.load(state)
    for name, value in resumed.state().items():
        assert torch.equal(value, state[name])
        assert value.data_ptr() != state[name].data_ptr()
        assert not value.requires_grad
    for name in set(names) - {"step"}:
        assert resumed.state()[f"0.{name}"].stride() == tensors[0].stride()


def test_the_rate_is_the_learning_rate_times_factor_times_schedule() -> None:
    optimizer = Optimizer(SGD(lr=0.2), groups(parameters()), CPU)
    assert [float(r) for r in optimizer.rates] == [0, 0, 0]
    optimizer.set_rate(0.5)
    assert [float(r) for r in optimizer.rates] == pytest.approx([0.1, 0.01, 0.2])
    assert [float(g["lr"]) for g in optimizer.inner.param_groups] == pytest.approx([0.1, 0.01, 0.2])


def test_parameters_are_in_the_groups_order() -> None:
    tensors = parameters()
    assert [id(p) for p in Optimizer(SGD(), groups(tensors), CPU).parameters()] == [id(p) for p in tensors]


def test_a_factor_of_zero_freezes() -> None:
    tensors = parameters()
    before = values(tensors)
    optimizer = Optimizer(KINDS[0], [Group(tensors[:2], factor=0.0), Group(tensors[2:])], CPU)
    take_steps(optimizer, tensors, range(3))
    assert values(tensors)[:2] == before[:2]
    assert values(tensors)[2] != before[2]
