"""Runs side by side for as long as their epochs last, or until a signal stops them: see test_side_by_side.py."""

import sys
from pathlib import Path

from tiny_runs import TINY_DATA, TINY_RECIPE, TINY_RUN

from daydream.engine import Interrupted
from daydream.engine.display import stop_switch
from daydream.reproduce.executors.processes import SideBySide
from daydream.reproduce.jobs import Job


def job(folder: Path, epochs: int) -> Job:
    run, recipe = {**TINY_RUN, "checkpoint_every": 10_000}, {**TINY_RECIPE, "base_epochs": epochs}
    return Job(folder.name, str(folder), {"run": run, "data": TINY_DATA, "method": recipe})


if __name__ == "__main__":
    jobs = [job(Path(folder), int(sys.argv[1])) for folder in sys.argv[2:]]
    with stop_switch() as switch:
        executor = SideBySide(2, {}, lambda: switch.asked, lambda job, what: print(job.name, what, flush=True))
        try:
            for outcome in executor.run(jobs, lambda job: True):
                print(outcome.job.name, "ends", outcome.error, flush=True)
        except Interrupted:
            sys.exit(130)
