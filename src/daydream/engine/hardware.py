"""The device a run trains on, and how: precision, compilation, capture."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from daydream.engine.distributed import ALONE, Team
from daydream.errors import UserError
from daydream.fast import has_kernels

log = logging.getLogger("daydream")

Precision = Literal["bf16", "tf32", "fp32"]


@dataclass(frozen=True)
class Hardware:
    """A device and the settings that make it fast there."""

    device: torch.device
    precision: Precision
    compile: bool
    capture: bool
    kernels: bool = False
    """Whether what our own kernels fit (ResNet-32's stages, banks of generators) runs by them, not compiled.

    Crops, and short passes of heads and losses, run by kernels on any GPU with Triton."""

    @classmethod
    def choose(
        cls, device: str, precision: str, compile: bool | None, capture: bool | None, team: Team = ALONE
    ) -> "Hardware":
        """Resolve `auto` to what this machine has; bf16, compilation and capture are the default on a GPU.

        Of several processes each takes the GPU of its place on its machine, and runs steps as they are: an
        exchange between processes inside a compiled or captured step is untried.
        """
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise UserError(
                "--device cuda: this machine has no usable CUDA GPU (or torch is a CPU build); use --device cpu"
            )
        if device.startswith("cuda:") and team.size > 1:
            raise UserError(f"--device {device} is one GPU for {team.size} processes; use --device cuda: one for each")
        try:
            chosen = torch.device(f"cuda:{team.place}" if device == "cuda" and team.size > 1 else device)
        except RuntimeError as error:
            raise UserError(f"--device {device} is not a device; use auto, cpu, cuda or cuda:N") from error
        if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
            raise UserError(f"--device {chosen}: this machine has {torch.cuda.device_count()} GPU(s)")
        gpu = chosen.type == "cuda"
        if precision == "auto":
            precision = "bf16" if gpu else "fp32"
        if capture and not gpu:
            raise UserError("--capture needs a CUDA GPU: a CUDA graph cannot be captured on a CPU")
        capture, compile = gpu if capture is None else capture, gpu if compile is None else compile
        if team.size > 1 and (capture or compile):
            log.info("in several processes no step is compiled or captured as a CUDA graph")
            capture = compile = False
        kernels = gpu and compile and precision == "bf16" and has_kernels()
        return cls(chosen, precision, compile, capture, kernels)  # type: ignore[arg-type]

    @property
    def could_be_faster(self) -> bool:
        """Say whether half the bits and compilation would make long trainings faster here: on a CPU that has bf16."""
        plain = self.device.type == "cpu" and self.precision == "fp32" and not self.compile
        asked = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # an older torch may not know the answer
        return plain and any(getattr(torch.cpu, name, bool)() for name in asked)

    def set_up(self) -> None:
        """Set torch's global switches for this hardware."""
        tf32 = self.precision != "fp32"
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True
        if self.device.index is not None:
            torch.cuda.set_device(self.device)  # Triton launches on the current one
        if self.compile:
            from torch._dynamo import config

            # A batch that changes between stages must not turn shapes into symbols: static ones are faster.
            config.automatic_dynamic_shapes = False
            config.cache_size_limit = 64

    @contextlib.contextmanager
    def autocast(self) -> Iterator[None]:
        """Run the passes inside in the chosen precision."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            yield

    def compile_parts(self, net: nn.Module) -> None:
        """Compile, in place and once, the parts a network offers, or have them run by our own kernels.

        A bank of generators has kernels and offers no part to compile.
        """
        whole: Callable[[], object] | None = getattr(net, "use_kernels", None)
        if self.kernels and whole is not None:
            whole()
        offered: Callable[[], list[nn.Module]] | None = getattr(net, "compiled_parts", None)
        for part in offered() if self.compile and offered is not None else []:
            fits: Callable[[], bool] | None = getattr(part, "use_kernels", None)
            if not (self.kernels and fits is not None and fits()) and part._compiled_call_impl is None:
                part.compile(dynamic=False)

    def describe(self) -> str:
        """Name the device and the ways it is used, for config.json and the plan."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        fast = "own kernels" if self.kernels else "compiled" if self.compile else ""
        ways = [self.precision, *([fast] if fast else []), *(["captured"] if self.capture else [])]
        return f"{name} ({', '.join(ways)})"
