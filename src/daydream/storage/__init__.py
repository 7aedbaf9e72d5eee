"""A run on disk: its folder, its checkpoints, and a state as tensors and JSON. No code is ever loaded from one."""

from typing import TYPE_CHECKING

from daydream.lazily import offers

if TYPE_CHECKING:
    from daydream.storage.checkpoint_files import load_checkpoint as load_checkpoint
    from daydream.storage.checkpoint_files import save_checkpoint as save_checkpoint
    from daydream.storage.run_folder import RunFolder as RunFolder
    from daydream.storage.run_folder import find_runs as find_runs
    from daydream.storage.state import pack as pack
    from daydream.storage.state import unpack as unpack

OFFERED = {
    "RunFolder": "run_folder",
    "find_runs": "run_folder",
    "load_checkpoint": "checkpoint_files",
    "pack": "state",
    "save_checkpoint": "checkpoint_files",
    "unpack": "state",
}
__getattr__ = offers(__name__, OFFERED)
