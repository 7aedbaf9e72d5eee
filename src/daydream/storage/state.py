"""A state as JSON and named tensors, and back."""

import contextlib
from collections.abc import Collection, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from daydream.nets.network import architecture
from daydream.nets.timm_backbone import PREFIX
from daydream.protocol.memory import Budget, Memory
from daydream.settings import require
from daydream.stages.stage import Kinds, Rebuildable, State
from daydream.storage.checkpoint_files import Components


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


class Ledger:
    """Remembers which networks the last checkpoint wrote, so that the next need not write again what did not change.

    Generators hold a hundred times what the network holds, and change once a task. A captured step changes tensors
    unseen by torch's own version counters, so what a stage trains always counts as changed.
    """

    def __init__(self) -> None:
        self.written: dict[str, list[tuple[Tensor, int]]] = {}

    def unchanged(self, state: State, train_mode: Collection[str]) -> frozenset[str]:
        """Name the components of networks that are as they were when last written."""
        return frozenset(
            f"net.{name}"
            for name, net in state.nets.items()
            if name not in train_mode
            and not any(parameter.requires_grad for parameter in net.parameters())
            and self._same(name, _versions(net))
        )

    def _same(self, name: str, now: list[tuple[Tensor, int]]) -> bool:
        before = self.written.get(name, [])
        return len(before) == len(now) and all(a is b and v == w for (a, v), (b, w) in zip(before, now, strict=True))

    def note(self, state: State) -> None:
        """Remember the networks as they are now: they have just been written."""
        self.written = {name: _versions(net) for name, net in state.nets.items()}


def _versions(net: nn.Module) -> list[tuple[Tensor, int]]:
    """Return a network's own tensors, kept alive so that no other can be taken for one of them."""
    return [(tensor, tensor._version) for tensor in (*net.parameters(), *net.buffers())]


def unpack(info: Mapping[str, Any], components: Components, kinds: Kinds, device: torch.device) -> State:
    """Build a state again; networks are built by the method's own `kinds`, never by a name imported from a file."""
    check_networks(info["nets"], components, kinds)
    stored = components["memory"]
    memory = Memory(Budget(**info["budget"]), stored["images"].to(device), stored["labels"], stored["ranks"])
    state = State(memory, device, tensors={k: v.to(device) for k, v in components["tensors"].items()})
    for name, made in info["nets"].items():
        config = {k: tuple(v) if isinstance(v, list) else v for k, v in made["config"].items()}
        net = kinds[made["kind"]](**config).to(device)
        net.load_state_dict(components[f"net.{name}"])
        state.nets[name] = net.eval()
    return state


def check_networks(nets: Mapping[str, Any], components: Components, kinds: Kinds) -> None:
    """Build each network of ours without memory, and compare its shapes with those stored, before any is allocated.

    What is asked for may be no larger than what is there: a number no larger than a side of a tensor, and as many
    layers or blocks as there are tensors at most. A network of a user's own method is built as his code says.
    """
    for name, made in nets.items():
        build, tensors = kinds[made["kind"]], components[f"net.{name}"]
        if not getattr(build, "__module__", "").startswith("daydream."):
            continue
        shapes = {key: tuple(value.shape) for key, value in tensors.items()}
        largest = max(len(shapes), *(side for value in tensors.values() if value.numel() for side in value.shape))
        several = made["config"].get("extractors", [made["config"]])  # networks side by side have a config each
        require(len(several) <= len(shapes), f"its network '{name}' does not fit its weights")
        for key, value in (item for one in several for item in one.items()):
            numbers = value if isinstance(value, list | tuple) else [value]
            most = len(shapes) if key == "depth" else largest
            fits = len(numbers) <= len(shapes) and all(isinstance(n, str | None) or 0 <= n <= most for n in numbers)
            require(fits, f"its network '{name}' does not fit its weights")
        config = {key: tuple(value) if isinstance(value, list) else value for key, value in made["config"].items()}
        backbones = [str(one.get("backbone", "")) for one in several]
        own = all(architecture(backbone) == backbone for backbone in backbones)
        require(own, f"its network '{name}' asks for weights from elsewhere")
        # timm's networks are tried out when they are built, which needs numbers; their names bound their size.
        from_timm = any(backbone.startswith(PREFIX) for backbone in backbones)
        with contextlib.nullcontext() if from_timm else torch.device("meta"):
            built = build(**config).state_dict()
        require(
            {key: tuple(value.shape) for key, value in built.items()} == shapes, f"its network '{name}' is not whole"
        )
