"""A classifier of one's own images, taught lesson by lesson and kept in one file."""

from typing import TYPE_CHECKING

from daydream.lazily import offers

if TYPE_CHECKING:
    from daydream.learner.exact_learner import ExactLearner as ExactLearner
    from daydream.learner.learner import Learner as Learner
    from daydream.learner.opening import create as create
    from daydream.learner.opening import load as load
    from daydream.learner.settings import LessonSettings as LessonSettings
    from daydream.learner.settings import ModelSettings as ModelSettings

OFFERED = {
    "ExactLearner": "exact_learner",
    "Learner": "learner",
    "LessonSettings": "settings",
    "ModelSettings": "settings",
    "create": "opening",
    "load": "opening",
}
__getattr__ = offers(__name__, OFFERED)
