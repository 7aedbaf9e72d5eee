"""A method that exists to lean on every wall: two trained networks, trained pixels, a network grown in `begin`, another
network's stored outputs in the batches, a scalar per step, hooks, and a predictor of its own. The engine knows nothing
of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from daydream import rng
from daydream.methods.method import Method, Prediction, TrainingSettings, memory_names, network
from daydream.nets.network import Network, in_mode
from daydream.protocol.stream import Task
from daydream.settings import setting
from daydream.stages.losses import cross_entropy
from daydream.stages.stage import Adam, Batch, Batches, Group, Stage, State


class Tower(nn.Module):
    """A network that gains a layer with every task."""

    def __init__(self, dim: int, depth: int) -> None:
        super().__init__()
        self.dim = dim
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))

    def config(self) -> dict[str, Any]:
        return {"dim": self.dim, "depth": len(self.layers)}

    def forward(self, z: Tensor) -> Tensor:
        for layer in self.layers:
            z = z + 0.1 * torch.tanh(layer(z))
        return z


@dataclass(frozen=True, kw_only=True)
class WallsSettings(TrainingSettings):
    pull: float = setting(0.5, "weight of the stored outputs")


class Walls(Method[WallsSettings]):
    Settings = WallsSettings
    kinds = {"Network": Network, "Tower": Tower}  # noqa: RUF012
    head = "cosine"
    reports = "cnn"

    def stages(self, task: Task) -> list[Stage]:
        if task.is_base:
            return [self.classify(task, task.train, self.settings.base_epochs), self.select(task), self.tower(task)]
        return [self.together(task), self.select(task), self.tower(task)]

    def tower(self, task: Task) -> Stage:
        """An action without epochs: grow the tower by a layer, drawn anew."""

        def begin(state: State) -> None:
            before = state.nets.get("tower")
            with rng.seeded(self.setup.seed, "tower", task.index):
                grown = Tower(64, task.index + 1).to(state.device)
            if before is not None:
                grown.load_state_dict(before.state_dict(), strict=False)
            state.nets["tower"] = grown

        return Stage(name="tower", begin=begin)

    def together(self, task: Task) -> Stage:
        def begin(state: State) -> None:
            net = network(state)
            state.nets["teacher"] = net.frozen_copy()
            with rng.seeded(self.setup.seed, "init", task.index):
                net.head.grow(task.num_new)
                state.nets["critic"] = Tower(64, 1).to(state.device)
            exemplars = state.memory.as_set(memory_names(task))
            state.tensors["stored"] = self.features(state, exemplars)
            state.tensors["pixels"] = self.setup.prepare(state.memory.images).contiguous()
            state.tensors["steps"] = torch.zeros((), device=state.device)

        def trains(state: State) -> Sequence[Group]:
            nets = [*state.nets["net"].parameters(), *state.nets["critic"].parameters()]
            return [Group(nets, weight_decay=0.0), Group([state.tensors["pixels"]], factor=10.0)]

        def streams(state: State) -> Mapping[str, Batches]:
            exemplars = state.memory.as_set(memory_names(task))
            return {
                "new": Batches(images=task.train, size=6, augment=self.setup.augment),
                "old": Batches(
                    images=exemplars,
                    size=4,
                    augment=self.setup.augment,
                    fields={"stored": state.tensors["stored"]},
                    draw=lambda generator, steps, before: (
                        (torch.randint(len(exemplars), (steps, 4), generator=generator) + before["new"][:, :4])
                        % len(exemplars)
                    ),
                    noise={"mix": lambda generator, steps, size: torch.rand(steps, size, generator=generator)},
                ),
            }

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            net, old = network(state), batch["old"]
            trained = state.tensors["pixels"][old.index]
            mix = old.fields["mix"].view(-1, 1, 1, 1)
            z = net.features(torch.cat([batch["new"].images, mix * old.images + (1 - mix) * trained]))
            with in_mode(net, training=False):
                quiet = net.features(trained)
            agreement = F.cosine_similarity(state.nets["critic"](quiet), old.fields["stored"], dim=1)
            labels = torch.cat([batch["new"].labels, old.labels])
            slope = torch.autograd.grad(quiet.square().mean(), state.tensors["pixels"], create_graph=True)[0]
            return {
                "ce": cross_entropy(net.head(z) / batch.scalars["temperature"], labels),
                "pull": self.settings.pull * (1 - agreement).mean(),
                "smooth": slope.square().sum(),
            }

        def after_step(state: State) -> None:
            state.tensors["steps"].add_(1)
            state.tensors["pixels"].detach().clamp_(-3, 3)

        def finish(state: State) -> None:
            del state.nets["teacher"], state.tensors["stored"]
            assert int(state.tensors["steps"]) == self.settings.epochs * 4

        def halve_critic(state: State) -> None:
            for parameter in state.nets["critic"].parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(0.5)

        return Stage(
            name="together",
            epochs=self.settings.epochs,
            steps=4,
            trains=trains,
            streams=streams,
            losses=losses,
            optimizer=Adam(lr=1e-3),
            train_mode=frozenset({"net"}),
            scalars={"temperature": lambda clock: 1 + clock.epoch + clock.step / clock.steps},
            begin=begin,
            finish=finish,
            on_gradients=halve_critic,
            after_step=after_step,
        )

    def predict(self, state: State, images: Tensor) -> Prediction:
        net = network(state)
        z = state.nets["tower"](net.features(images)) if "tower" in state.nets else net.features(images)
        return Prediction(z, net.head(z))
