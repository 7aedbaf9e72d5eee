"""A state as JSON and named tensors, and back."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from daydream.memory import Budget, Memory
from daydream.runs import Components
from daydream.stage import Rebuildable, State

Kinds = Mapping[str, Callable[..., nn.Module]]


def pack(state: State) -> tuple[dict[str, Any], dict[str, Mapping[str, Tensor]]]:
    """Return what JSON can hold of a state, and its tensors by component."""
    nets = {
        name: {"kind": type(net).__name__, "config": cast(Rebuildable, net).config()}
        for name, net in state.nets.items()
    }
    memory = state.memory
    components: dict[str, Mapping[str, Tensor]] = {f"net.{name}": net.state_dict() for name, net in state.nets.items()}
    components["tensors"] = state.tensors
    components["memory"] = {"images": memory.images, "labels": memory.labels, "ranks": memory.ranks}
    return {"nets": nets, "budget": {"rule": memory.budget.rule, "size": memory.budget.size}}, components


def unpack(info: Mapping[str, Any], components: Components, kinds: Kinds, device: torch.device) -> State:
    """Build a state again; networks are built by the method's own `kinds`, never by a name imported from a file."""
    stored = components["memory"]
    memory = Memory(Budget(**info["budget"]), stored["images"].to(device), stored["labels"], stored["ranks"])
    state = State(memory, device, tensors={k: v.to(device) for k, v in components["tensors"].items()})
    for name, made in info["nets"].items():
        config = {k: tuple(v) if isinstance(v, list) else v for k, v in made["config"].items()}
        net = kinds[made["kind"]](**config).to(device)
        net.load_state_dict(components[f"net.{name}"])
        state.nets[name] = net.eval()
    return state
