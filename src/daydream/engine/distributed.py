"""One run in several processes, as `torchrun` starts them: each does its share of a step, and all hold the same state.

Random numbers are functions of the seed, so every process draws the whole batch and takes its own part. Batch norm sees
the whole batch (`shared_norm.py`), and after the backward pass one all-reduce adds the shares' gradients up.
"""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from daydream.errors import UserError
from daydream.stages.stage import State

log = logging.getLogger("daydream")

PATIENCE = timedelta(hours=12)  # the first process may decode a data set alone; one that dies is noticed at once
CPU = torch.device("cpu")
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Team:
    """The processes that train one run, and this one's place among them. Alone, it is a team of one."""

    rank: int = 0
    size: int = 1
    place: int = 0
    """This process's place on its machine: the number of its GPU."""

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.rank == 0

    def divides(self, sizes: Sequence[int]) -> bool:
        """Say whether a step on streams of these sizes can be shared so that weighted shares add up to the whole.

        One stream may be cut anywhere: a share's loss weighs as much as its samples. Of several streams each must be
        cut evenly, since a term may be a mean over some of them only.
        """
        if self.size == 1 or not sizes:
            return False
        return sizes[0] >= self.size if len(sizes) == 1 else all(size % self.size == 0 for size in sizes)

    def part(self, count: int) -> slice:
        """Return this process's share of `count` samples in a row."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace, in place, every tensor by its sum over processes."""
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with together():
            dist.all_reduce(flat)
        for tensor, values in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(values.view(tensor.shape))

    def any(self, wish: bool) -> bool:
        """Say whether any process has a wish; asked by all of them at the same step."""
        if self.size == 1:
            return wish
        wishes = torch.tensor(float(wish))
        with together():
            dist.all_reduce(wishes)
        return bool(wishes)

    def meet(self) -> None:
        """Wait until every process is here."""
        self.any(False)

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        """Let the first process do what is inside before the others: they then find what it has cached."""
        if not self.leads:
            self.meet()
        yield
        if self.leads:
            self.meet()

    @torch.no_grad()
    def agree(self, state: State) -> None:
        """Give all processes the first one's networks, tensors and exemplars.

        Two GPUs need not round alike, and a rounding can decide which image is herded.
        """
        if self.size == 1:
            return
        weights = [tensor for net in state.nets.values() for tensor in net.state_dict().values()]
        memory = state.memory
        images, labels, ranks, *rest = self.of_first(
            [memory.images, memory.labels, memory.ranks, *state.tensors.values(), *weights]
        )
        state.memory = replace(memory, images=images, labels=labels, ranks=ranks)
        state.tensors = dict(zip(state.tensors, rest[: len(state.tensors)], strict=True))
        for tensor, values in zip(weights, rest[len(state.tensors) :], strict=True):
            tensor.copy_(values)

    def of_first(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the first process's tensors, whatever shape this one's have."""
        forms = [[(tensor.shape, tensor.dtype) for tensor in tensors]]
        found = []
        with together():
            dist.broadcast_object_list(forms, 0, device=CPU)
            for tensor, (shape, dtype) in zip(tensors, forms[0], strict=True):
                same = (tensor.shape, tensor.dtype) == (shape, dtype)
                own = tensor.detach() if same else torch.empty(shape, dtype=dtype, device=tensor.device)
                own = own.contiguous()
                if own.numel():
                    dist.broadcast(own.view(-1).view(torch.uint8), 0)  # as bytes: not every backend knows every type
                found.append(own)
        return found


ALONE = Team()


def team() -> Team:
    """Return the team this process has joined."""
    if not dist.is_initialized():
        return ALONE
    return Team(dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"]))


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Turn the failure of something all processes do together into the user's line."""
    try:
        yield
    except RuntimeError as error:
        raise UserError(
            "another process of this run ended, so this one does too; go on from the last checkpoint with "
            "`daydream resume`"
        ) from error


def first_to_fail(store: Any) -> bool:
    """Say whether no other process has failed before this one, which then is to say why."""
    try:
        failed: int = store.add("failed", 1)
    except RuntimeError:  # whoever kept the count is gone
        return True
    return failed == 1


def stay_here() -> None:
    """Let processes that are all on this machine speak over its loopback, unless it is said otherwise."""
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE") and os.path.exists("/sys/class/net/lo"):
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(name, "lo")


def meeting_point() -> tuple[Any, int, int]:
    """Return the store by which all processes meet, this one's rank and how many they are.

    Where no agent of `torchrun` offers a store, the first process does; torch would let it listen on every address.
    """
    about = os.environ
    if about["RANK"] != "0" or about["MASTER_ADDR"] != LOOPBACK or about.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        found: tuple[Any, int, int] = next(rendezvous("env://", timeout=PATIENCE))
        return found
    size, port = int(about["WORLD_SIZE"]), int(about["MASTER_PORT"])
    listener = socket.create_server((LOOPBACK, port)).detach()
    store = dist.TCPStore(LOOPBACK, port, size, True, PATIENCE, master_listen_fd=listener)  # type: ignore[attr-defined]
    return store, 0, size


def open_meeting() -> str:
    """Say that processes which are all on this machine meet where others can come too, if they do.

    The store of an agent of `torchrun` listens on every address, which nothing that it starts can change.
    """
    about = os.environ
    here = about.get("LOCAL_WORLD_SIZE") == about.get("WORLD_SIZE")
    if about["RANK"] != "0" or not here or about.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return ""
    return (
        f"torchrun's meeting point, port {about['MASTER_PORT']}, listens on every address of this machine, without a "
        "password; on a network you do not trust, let the processes meet by a file (SECURITY.md)"
    )


@contextlib.contextmanager
def joined(trains: bool) -> Iterator[None]:
    """Join the processes `torchrun` started. Only the first of them speaks, and of those that fail the first to."""
    stay_here()
    if told := open_meeting():
        log.warning(told)
    store, rank, size = meeting_point()
    if torch.cuda.is_available() and int(os.environ["LOCAL_RANK"]) < torch.cuda.device_count():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    try:
        with contextlib.ExitStack() as silence:
            if rank:
                nothing = silence.enter_context(open(os.devnull, "w"))
                silence.enter_context(contextlib.redirect_stdout(nothing))
                silence.enter_context(contextlib.redirect_stderr(nothing))
            if not trains:
                raise UserError(
                    "only `daydream run` and `daydream resume` work in several processes: leave out torchrun"
                )
            yield
    except (Exception, KeyboardInterrupt) as error:
        if not first_to_fail(store):
            raise SystemExit(2) from error
        raise
    dist.destroy_process_group()
