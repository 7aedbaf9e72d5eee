"""A network for other programs: as named weights or as ONNX, without generators and exemplars."""

from typing import TYPE_CHECKING

from daydream.lazily import offers

if TYPE_CHECKING:
    from daydream.export.classifier import Classifier as Classifier
    from daydream.export.classifier import load_exported as load_exported

OFFERED = {"Classifier": "classifier", "load_exported": "classifier"}
__getattr__ = offers(__name__, OFFERED)
