"""A whole run: its settings, all they need made ready, tasks and stages in turn, and who watches."""

from typing import TYPE_CHECKING

from daydream.lazily import offers

if TYPE_CHECKING:
    from daydream.experiment.config import Config as Config
    from daydream.experiment.config import RunSettings as RunSettings
    from daydream.experiment.config import config_from_json as config_from_json
    from daydream.experiment.config import make_config as make_config
    from daydream.experiment.experiment import Experiment as Experiment

OFFERED = {
    "Config": "config",
    "Experiment": "experiment",
    "RunSettings": "config",
    "config_from_json": "config",
    "make_config": "config",
}
__getattr__ = offers(__name__, OFFERED)
