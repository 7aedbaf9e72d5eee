"""Jobs on a Ray cluster: each is a task with its share of a GPU, begun again from its checkpoint if its worker dies.

All machines of the cluster must see the same files under the same paths.
"""

import contextlib
import importlib.util
import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.reproduce.jobs import LOOK_SECONDS, Job, Outcome, attempt

RETRIES = 5
CANCEL_SECONDS = 60.0  # for the runs that were stopped to write their checkpoints


@dataclass(frozen=True)
class OnRay:
    """Carries out jobs on the cluster that RAY_ADDRESS names, or on this machine."""

    gpu_share: float
    """Of a GPU, for each run; a cluster without GPUs runs one job per core."""
    stop_asked: Callable[[], bool]

    def run(self, jobs: Sequence[Job], ready: Callable[[Job], bool]) -> Iterator[Outcome]:
        stay_here()
        import ray

        connect()
        gpus = self.gpu_share if ray.cluster_resources().get("GPU") else 0
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(carry_out_at)
        waiting, running = list(jobs), dict[Any, Job]()
        while waiting or running:
            if self.stop_asked():
                for ref in running:
                    ray.cancel(ref)
                if running:
                    ray.wait(list(running), num_returns=len(running), timeout=CANCEL_SECONDS)
                raise Interrupted
            for job in list(filter(ready, waiting)):
                waiting.remove(job)
                running[task.remote(job, os.getcwd())] = job
            done, _ = ray.wait(list(running), timeout=LOOK_SECONDS)
            for ref in done:
                yield outcome_of(ref, running.pop(ref))


def require_installed() -> None:
    """Raise the user's mistake if Ray is missing."""
    if importlib.util.find_spec("ray") is None:
        raise UserError("--engine ray needs Ray: pip install 'daydream[ray]'")


def stay_here() -> None:
    """Let a Ray that is started for these jobs listen on this machine's loopback alone, and report its use to nobody.

    Either can be said otherwise. Ray reads the first when it is imported; by its name it is for other systems, where it
    keeps Ray off the network already.
    """
    if "RAY_ADDRESS" not in os.environ:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def connect() -> None:
    """Join the cluster, once, and leave signals as they were: Ray would take SIGTERM for itself."""
    import ray

    if not ray.is_initialized():
        before = signal.getsignal(signal.SIGTERM)
        ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        signal.signal(signal.SIGTERM, before)


def carry_out_at(job: Job, folder: str) -> Outcome:
    """Carry out a job on a worker, in the folder it was sent from; a cancelled one writes a checkpoint first."""
    from daydream.engine.display import Display, stop_switch

    with contextlib.chdir(folder), stop_switch() as switch:
        return attempt(job, Display(switch))


def outcome_of(ref: Any, job: Job) -> Outcome:
    """Return what a task gave; one whose workers died too often has failed."""
    import ray

    try:
        outcome: Outcome = ray.get(ref)
        return outcome
    except ray.exceptions.RayError as error:
        return Outcome(job, None, f"its workers died {RETRIES + 1} times: {error}")
