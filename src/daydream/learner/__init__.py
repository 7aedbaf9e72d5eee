"""A classifier of one's own images, taught lesson by lesson and kept in one file."""

from typing import TYPE_CHECKING

from daydream.lazily import offers

if TYPE_CHECKING:
    from daydream.learner.learner import Learner as Learner
    from daydream.learner.settings import LessonSettings as LessonSettings
    from daydream.learner.settings import ModelSettings as ModelSettings

OFFERED = {"Learner": "learner", "LessonSettings": "settings", "ModelSettings": "settings"}
__getattr__ = offers(__name__, OFFERED)
