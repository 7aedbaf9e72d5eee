"""Optimisers built from a stage's description, with learning rates that live on the device."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from daydream.stages.stage import SGD, Adam, Group


class Optimizer:
    """A torch optimiser over groups; the learning rate of each group is a device scalar set once an epoch."""

    def __init__(self, kind: SGD | Adam, groups: Sequence[Group], device: torch.device) -> None:
        self.kind = kind
        self.factors = [group.factor for group in groups]
        self.tensors = [list(group.tensors) for group in groups]
        self.rates = [torch.zeros((), device=device) for _ in groups]
        params = [
            {
                "params": tensors,
                "lr": rate,
                "weight_decay": kind.weight_decay if group.weight_decay is None else group.weight_decay,
            }
            for group, tensors, rate in zip(groups, self.tensors, self.rates, strict=True)
        ]
        self.inner: torch.optim.Optimizer
        if isinstance(kind, SGD):
            self.inner = torch.optim.SGD(params, lr=kind.lr, momentum=kind.momentum, fused=True)
        else:
            self.inner = torch.optim.Adam(
                params, lr=kind.lr, betas=kind.betas, fused=True, capturable=device.type == "cuda"
            )

    def set_rate(self, scheduled: float) -> None:
        """Set every group's learning rate for the epoch to come."""
        for rate, factor in zip(self.rates, self.factors, strict=True):
            rate.fill_(self.kind.lr * factor * scheduled)

    def parameters(self) -> list[Tensor]:
        return [tensor for tensors in self.tensors for tensor in tensors]

    def state(self) -> dict[str, Tensor]:
        """Return the state of each parameter by its place, for a checkpoint."""
        return {
            f"{place}.{name}": value
            for place, tensor in enumerate(self.parameters())
            for name, value in self.inner.state.get(tensor, {}).items()
            if isinstance(value, Tensor)
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up a state written by `state`, in the parameters' own memory layout."""
        places = self.parameters()
        for key, value in state.items():
            place, name = key.split(".", 1)
            tensor = places[int(place)]
            like = (
                torch.empty_like(tensor)
                if value.shape == tensor.shape
                else torch.empty_like(value, device=tensor.device)
            )
            self.inner.state[tensor][name] = like.detach().copy_(value)
