"""What a method can carry: parts of the recipe, unlabelled images, imagined counterparts. Each adds to its stages."""

from typing import TYPE_CHECKING

from daydream.lazily import offers

if TYPE_CHECKING:
    from daydream.components.imagination import Imagination as Imagination
    from daydream.components.imagination_settings import ImaginationSettings as ImaginationSettings
    from daydream.components.parts import Parts as Parts
    from daydream.components.parts import PartsSettings as PartsSettings
    from daydream.components.settings import component_settings as component_settings

OFFERED = {
    "Imagination": "imagination",
    "ImaginationSettings": "imagination",
    "Parts": "parts",
    "PartsSettings": "parts",
    "component_settings": "settings",
}
__getattr__ = offers(__name__, OFFERED)
