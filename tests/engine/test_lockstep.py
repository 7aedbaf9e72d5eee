"""The order in which steps of several runs are put on CUDA streams, watched on stand-ins: no GPU is needed."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from daydream.engine import Lockstep, Training
from daydream.engine.lockstep import EAGER_STEPS, side_stream


class Recorder:
    """Stands in for torch.cuda: writes down what waits for what, and what runs on which stream."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.streams = 0
        self.now: list[Any] = [self.stream("default")]

    def stream(self, name: str) -> Any:
        waits = lambda other: self.log.append(f"{name} waits for {other.name}")  # noqa: E731
        return SimpleNamespace(name=name, wait_stream=waits)

    def new_stream(self, device: object) -> Any:
        self.streams += 1
        return self.stream(f"side {self.streams}")

    @contextlib.contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        self.now.append(stream)
        yield
        self.now.pop()

    @contextlib.contextmanager
    def capturing(self, graph: object, stream: Any) -> Iterator[None]:
        self.log.append(f"capture on {stream.name}")
        with self.on(stream):
            yield
        self.log.append("captured")

    def graph(self) -> Any:
        return SimpleNamespace(replay=lambda: self.log.append("replay"))

    def loop(self, name: str) -> Any:
        return SimpleNamespace(
            stage=None,
            hardware=SimpleNamespace(capture=True, device=torch.device("cpu")),
            step=lambda: self.log.append(f"{name} steps on {self.now[-1].name}"),
            forget_gradients=lambda: self.log.append(f"{name} forgets"),
        )


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    recorder = Recorder()
    monkeypatch.setattr(torch.cuda, "Stream", recorder.new_stream)
    monkeypatch.setattr(torch.cuda, "stream", recorder.on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: recorder.now[-1])
    monkeypatch.setattr(torch.cuda, "graph", recorder.capturing)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", recorder.graph)
    side_stream.cache_clear()
    yield recorder
    side_stream.cache_clear()


def lockstep(cuda: Recorder, *names: str) -> Lockstep:
    return Lockstep([Training(cuda.loop(name), watcher=None) for name in names])  # type: ignore[arg-type]


def test_all_fork_before_the_first_step_and_join_after_the_last(cuda: Recorder) -> None:
    steps = lockstep(cuda, "a", "b", "c")
    for _ in range(EAGER_STEPS):
        steps.take_step()
    cuda.log.clear()
    steps.take_step()
    steps.take_step()
    assert cuda.log == [
        "a forgets",
        "b forgets",
        "c forgets",
        "capture on side 1",
        "side 2 waits for side 1",
        "side 3 waits for side 1",
        "a steps on side 1",
        "b steps on side 2",
        "c steps on side 3",
        "side 1 waits for side 2",
        "side 1 waits for side 3",
        "captured",
        "replay",
        "replay",
    ]


def test_the_steps_before_run_one_after_the_other_on_the_streams_of_the_capture(cuda: Recorder) -> None:
    steps = lockstep(cuda, "a", "b")
    for _ in range(EAGER_STEPS):
        steps.take_step()
    once = [
        "side 1 waits for default",
        "a steps on side 1",
        "default waits for side 1",
        "side 2 waits for default",
        "b steps on side 2",
        "default waits for side 2",
    ]
    assert cuda.log == once * EAGER_STEPS
    lockstep(cuda, "c").take_step()
    assert cuda.streams == 2, "a stream is made once, not for every stage"


def test_without_one_that_failed_the_others_are_captured_anew(cuda: Recorder) -> None:
    from daydream.errors import UserError

    steps = lockstep(cuda, "a", "b")
    for _ in range(EAGER_STEPS + 2):
        steps.take_step()
    steps.trainings[0].failure = UserError("diverged")
    steps.leave_out_failed()
    cuda.log.clear()
    for _ in range(EAGER_STEPS + 1):
        steps.take_step()
    assert not any(line.startswith("a ") for line in cuda.log)
    assert cuda.log[-4:] == ["capture on side 1", "b steps on side 1", "captured", "replay"]
