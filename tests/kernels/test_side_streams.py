"""Work on a stream of its own: what waits for what. On a GPU, a step with it is the step without."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import TINY_IMAGINATION, Watch

from daydream.experiment.config import make_config
from daydream.experiment.experiment import Experiment
from daydream.kernels.side_streams import SideStream
from daydream.methods import load_method


class Stream:
    """A stream that notes whom it waited for, at which point of whose work."""

    def __init__(self, device: torch.device, name: str = "") -> None:
        self.device, self.name, self.done = device, name or "aside", list[str]()

    def wait_stream(self, other: "Stream") -> None:
        self.done.append(f"waits for {other.name} after {len(other.done)}")


class Gpu:
    """A GPU's current stream, and the streams made on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device = torch.device("cuda")
        self.main = self.current = Stream(self.device, "main")
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: self.current)
        monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: setattr(self, "current", stream))
        monkeypatch.setattr(torch.cuda, "Stream", Stream)

    def work(self, name: str) -> None:
        self.current.done.append(name)


def test_it_begins_after_what_came_before_and_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)
    gpu.work("before")
    here = SideStream(gpu.device, "teaching")
    with here:
        gpu.work("beside")
    gpu.work("after")
    assert gpu.main.done == ["before", "after"]
    with here:
        gpu.work("again")
    here.join()
    stream: Any = here.stream
    assert stream.done == ["waits for main after 1", "beside", "waits for main after 2", "again"]
    assert gpu.main.done == ["before", "after", "waits for aside after 4"]


def test_an_error_inside_leaves_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)
    with pytest.raises(RuntimeError, match="inside"), SideStream(gpu.device, "teaching"):
        raise RuntimeError("inside")
    assert gpu.current is gpu.main


def test_each_place_beside_each_stream_has_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)
    one, again, other = (SideStream(gpu.device, place).stream for place in ("teaching", "teaching", "imagining"))
    gpu.current = Stream(gpu.device, "another run's")
    beside_another = SideStream(gpu.device, "teaching").stream
    assert one is again
    assert len({id(stream) for stream in (one, other, beside_another)}) == 3


def test_where_nothing_ran_aside_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)
    gpu.work("before")
    SideStream(gpu.device, "teaching").join()
    assert gpu.main.done == ["before"]


def test_what_is_read_aside_is_kept_until_it_is_waited_for() -> None:
    here = SideStream(torch.device("cpu"), "teaching")
    with here:
        here.keep(torch.zeros(1))
    assert len(here.kept) == 1
    here.join()
    assert here.kept == []


class Alone(SideStream):
    """The same work, in line with the other."""

    def __init__(self, device: torch.device, place: str) -> None:
        super().__init__(torch.device("cpu"), place)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", ["replay", "imagine", "mixup", "ucir", "podnet", "bic"])
def test_captured_steps_are_those_in_line(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit: no order changes what the kernels add up, so that nothing but a race can make a difference."""
    data = {"classes": 20, "train_per_class": 64, "test_per_class": 4, "image_size": 32, "pile_size": 600}
    run = {
        "method": method,
        "backbone": "resnet32",
        "base": 10,
        "steps": 5,
        "tasks": 2,
        "memory": 200,
        "device": "cuda",
    }
    recipe = {"base_epochs": 4, "epochs": 8, "batch_size": 128}
    made = []
    for kind in (SideStream, Alone):
        for place in ("kernels.fused", "kernels.side_streams"):  # others import the stream where they need it
            monkeypatch.setattr(f"daydream.{place}.SideStream", kind)
        folder = tmp_path / kind.__name__
        # After four epochs of a base task the generators' default learning rate diverges, on a CPU too.
        imagination = {**TINY_IMAGINATION, "generator_lr": 1e-4} if load_method(method).replays else None
        Experiment(make_config(run, data, recipe, imagination)).start(folder, Watch())
        made.append(json.loads((folder / "checkpoint" / "latest.json").read_text())["files"])
    assert made[0] == made[1]
