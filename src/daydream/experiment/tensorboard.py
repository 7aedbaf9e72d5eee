"""TensorBoard events beside metrics.jsonl, when asked for."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daydream.engine import EpochReport
from daydream.errors import UserError


def require_installed() -> None:
    """Say how to get TensorBoard before a run begins, not after."""
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError("--tensorboard needs the package tensorboard: pip install 'daydream[tensorboard]'")


class Board:
    """Writes scalars over finished epochs; a resumed run replaces what it is about to write again."""

    def __init__(self, folder: Path, epochs_done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder), purge_step=epochs_done + 1)

    def epoch(self, step: int, stage: str, report: EpochReport) -> None:
        for name, value in report.losses.items():
            self.writer.add_scalar(f"{stage}/{name}", value, step)
        self.writer.add_scalar(f"{stage}/lr", report.lr, step)
        self.writer.add_scalar(f"{stage}/images_per_second", report.images / max(report.seconds, 1e-9), step)

    def task(self, step: int, row: Mapping[str, Any]) -> None:
        for kind in ("cnn", "nme"):
            if row[kind] is not None:
                self.writer.add_scalar(f"accuracy/{kind}", row[kind]["top1"], step)
        self.writer.flush()
