"""Take the steps of a stage, epoch after epoch: of one run, or of several side by side."""

import functools
import time
from collections.abc import Mapping, Sequence

import torch

from daydream.engine.loop import Interrupted, Loop, Training

EAGER_STEPS = 3  # run as they are before a capture: they allocate, compile and tune what the capture then records


class Lockstep:
    """Trains one stage, or the same stage of several runs side by side: of the same epochs, steps and start.

    A run's step is the one it takes alone. On a GPU the steps of all runs are one CUDA graph, each on a stream of its
    own: their kernels run at the same time, and fill a device that a small network leaves idle.
    """

    def __init__(self, trainings: Sequence[Training]) -> None:
        self.trainings = list(trainings)
        self.stage, self.hardware = trainings[0].loop.stage, trainings[0].loop.hardware
        self.graph: torch.cuda.CUDAGraph | None = None
        self.eager_steps = 0

    @property
    def loops(self) -> list[Loop]:
        return [training.loop for training in self.trainings]

    def train(self) -> None:
        """Run the epochs that are left. A run that fails keeps its failure; the others go on without it."""
        start = self.trainings[0].start
        for training in self.trainings:
            training.loop.take_up(training.start)
        for epoch in range(start.epoch, self.stage.epochs):
            if self.trainings:
                self.run_epoch(epoch, start.step if epoch == start.epoch else 0)
        for loop in self.loops:
            loop.close()

    def run_epoch(self, epoch: int, first: int = 0) -> None:
        """Run the steps of an epoch from `first` on, and tell the watchers."""
        began, steps = time.perf_counter(), self.stage.steps
        for loop in self.loops:
            loop.begin_epoch(epoch, first)
        for step in range(first, steps):
            if any(training.loop.stop_asked(step, training.watcher) for training in self.trainings):
                self.stop(epoch, step)
            for loop in self.loops:
                loop.feed.advance()
            self.take_step()
        means: list[Mapping[str, float]] = [{} for _ in self.trainings]
        for place, training in enumerate(self.trainings):
            with training.failing_alone():
                means[place] = training.loop.checked_means(epoch)
        # An epoch that was resumed inside is timed as if it had run at this speed from its start.
        seconds = (time.perf_counter() - began) * steps / max(steps - first, 1)
        for training, losses in zip(self.trainings, means, strict=True):
            if training.failure is None:
                with training.failing_alone():
                    training.loop.end_epoch(epoch, losses, seconds, training.watcher)
        self.leave_out_failed()

    def stop(self, epoch: int, step: int) -> None:
        """Hand over the checkpoint of every run, and stop."""
        for training in self.trainings:
            with training.failing_alone():
                training.watcher.checkpoint(training.loop.stands(epoch, step))
        raise next((training.failure for training in self.trainings if training.failure), Interrupted())

    def leave_out_failed(self) -> None:
        """Go on without the runs that failed: the captured step is of all, so there must be another."""
        left = [training for training in self.trainings if training.failure is None]
        if len(left) < len(self.trainings):
            self.trainings, self.graph, self.eager_steps = left, None, 0

    def take_step(self) -> None:
        """Replay the captured steps; until they are captured, run them as they are, one after the other."""
        if self.graph is not None:
            self.graph.replay()
        elif not self.hardware.capture:
            for loop in self.loops:
                loop.step()
        elif self.eager_steps < EAGER_STEPS:
            self.eager_steps += 1
            self.warm_up()
        else:
            self.graph = self.capture()
            self.graph.replay()

    def streams(self) -> list[torch.cuda.Stream]:
        return [side_stream(self.hardware.device, place) for place in range(len(self.trainings))]

    def warm_up(self) -> None:
        """Take each run's step on the stream it will be captured on, as a capture asks of what comes before it."""
        here = torch.cuda.current_stream(self.hardware.device)
        for loop, stream in zip(self.loops, self.streams(), strict=True):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                loop.step()
            here.wait_stream(stream)

    def capture(self) -> torch.cuda.CUDAGraph:
        """Record a step of every run as one graph: the first on the capture's stream, each other on its own.

        What a step allocates comes from the graph's pool, which keeps the memory of streams apart: no run is handed
        memory that another, at work at the same time, has just let go of.
        """
        for loop in self.loops:
            loop.forget_gradients()  # the capture allocates gradients in its own pool
        here, *others = streams = self.streams()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=here):
            for stream in others:
                stream.wait_stream(here)  # all of them before the first step: after it they would wait for it
            for loop, stream in zip(self.loops, streams, strict=True):
                with torch.cuda.stream(stream):
                    loop.step()
            for stream in others:
                here.wait_stream(stream)
        return graph


@functools.cache
def side_stream(device: torch.device, place: int) -> torch.cuda.Stream:
    """Return the stream of the run at this place, always the same: libraries keep scratch memory for each stream."""
    return torch.cuda.Stream(device)
