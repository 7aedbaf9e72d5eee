"""A state written to disk and read back is the same state."""

from pathlib import Path

import pytest
import torch
from torch import nn

from daydream.nets.network import Network
from daydream.protocol.memory import Budget, Memory
from daydream.settings import plain_json
from daydream.stages.stage import State
from daydream.storage.checkpoint_files import load_checkpoint, save_checkpoint
from daydream.storage.state import pack, unpack

CPU = torch.device("cpu")


class Scaler(nn.Module):
    """A second kind of network, with a tuple in its config."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(shape))

    def config(self) -> dict[str, tuple[int, ...]]:
        return {"shape": tuple(self.weight.shape)}


KINDS = {"Network": Network, "Scaler": Scaler}


def made_state() -> State:
    torch.manual_seed(0)
    memory = Memory(
        Budget("per_class", 2),
        torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8),
        torch.tensor([0, 0, 1, 1]),
        torch.tensor([0, 1, 0, 1]),
    )
    net = Network("resnet10", "proxy", (3, 2), "stage2")
    net.train()
    net(torch.randn(4, 3, 8, 8))  # the running statistics are no longer those of a new network
    nets: dict[str, nn.Module] = {"net": net, "old": net.frozen_copy(), "scaler": Scaler((2, 3))}
    return State(memory, CPU, nets, {"means": torch.randn(5, 64), "counts": torch.arange(5)})


def through_disk(state: State, folder: Path) -> State:
    info, components = pack(state)
    save_checkpoint(folder, {"state": info, "epoch": 3}, components)
    found = load_checkpoint(folder)
    assert found is not None
    assert found[0]["epoch"] == 3
    return unpack(found[0]["state"], found[1], KINDS, CPU)


def test_a_state_comes_back(tmp_path: Path) -> None:
    state = made_state()
    found = through_disk(state, tmp_path / "checkpoint")
    assert list(found.nets) == list(state.nets)
    for name, net in state.nets.items():
        twin = found.nets[name]
        assert type(twin) is type(net)
        assert twin.config() == net.config()
        weights = net.state_dict()
        assert set(twin.state_dict()) == set(weights)
        assert all(torch.equal(value, weights[key]) for key, value in twin.state_dict().items())
        assert not any(module.training for module in twin.modules())
    assert set(found.tensors) == {"means", "counts"}
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in state.tensors.items())
    assert found.tensors["counts"].dtype == torch.int64
    assert found.memory.budget == state.memory.budget
    for name in ("images", "labels", "ranks"):
        assert torch.equal(getattr(found.memory, name), getattr(state.memory, name))
        assert getattr(found.memory, name).dtype == getattr(state.memory, name).dtype


@torch.no_grad()
def test_the_networks_answer_the_same_bit_for_bit(tmp_path: Path) -> None:
    state, x = made_state(), torch.randn(4, 3, 8, 8)
    found = through_disk(state, tmp_path / "checkpoint")
    assert torch.equal(found.nets["net"](x), state.nets["net"].eval()(x))


def test_convolutions_are_still_channels_last(tmp_path: Path) -> None:
    found = through_disk(made_state(), tmp_path / "checkpoint")
    weights = [m.weight for m in found.nets["net"].modules() if isinstance(m, nn.Conv2d)]
    assert weights
    assert all(w.is_contiguous(memory_format=torch.channels_last) for w in weights)


def test_an_empty_state_comes_back(tmp_path: Path) -> None:
    found = through_disk(State(Memory.empty(Budget("total", 10)), CPU), tmp_path / "checkpoint")
    assert (found.nets, found.tensors, len(found.memory)) == ({}, {}, 0)
    assert found.memory.budget == Budget("total", 10)


def test_what_is_packed_is_plain_json() -> None:
    info, components = pack(made_state())
    assert plain_json(info)["nets"]["scaler"] == {"kind": "Scaler", "config": {"shape": [2, 3]}}
    assert set(components) == {"net.net", "net.old", "net.scaler", "tensors", "memory"}


def test_a_kind_the_method_does_not_list_is_not_built() -> None:
    info, components = pack(made_state())
    with pytest.raises(KeyError, match="Scaler"):
        unpack(info, components, {"Network": Network}, CPU)
