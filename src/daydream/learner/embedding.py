"""Pictures to features by a frozen network, the same whatever pictures come along; features seen before come from disk.

Batches are padded to one fixed size, so that a picture's feature does not depend on how many come with it. The cache
is one file for each network and preparation, in a folder that only its owner may enter; it holds features and digests,
no pictures. A cache that cannot be read or written costs time and nothing else.
"""

import hashlib
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from daydream.data.augment import Prepare
from daydream.data.cache import private
from daydream.data.decode import digest_of
from daydream.data.images import Pixels
from daydream.nets.network import Network

log = logging.getLogger("daydream")

VERSION = 1
"""Of all that turns stored pixels into features, beside the network and its `Prepare`: raise it when that changes."""
BATCH = 8
"""Pictures that pass together: of 32, a CPU takes nearly twice as long for each, as memory is asked for anew."""
ASKED = 500  # digests in one query


def pixel_digests(pixels: Pixels) -> Tensor:
    """Return a number [N] for each image, equal for equal pixels."""
    numbers: list[int] = []
    for index in torch.arange(pixels.shape[0]).split(256):
        numbers += map(digest_of, pixels.fetch(index).cpu().numpy())
    return torch.tensor(numbers, dtype=torch.int64)


class Embedder:
    """A frozen network, and how pictures are prepared for it."""

    def __init__(self, net: Network, prepare: Prepare, cache: "FeatureCache | None" = None) -> None:
        self.net, self.prepare, self.cache = net.eval(), prepare, cache
        self.identity = identity_of(net, prepare)
        """Features of equal identity may be compared, others never."""

    @property
    def dim(self) -> int:
        """Return how many numbers a feature has."""
        return self.net.head.dim

    def __call__(self, pixels: Pixels, digests: Tensor | None = None) -> Tensor:
        """Return features [N, D], float32, on the CPU, of N stored images; their digests save time."""
        if self.cache is None:
            return self.computed(pixels)
        digests = pixel_digests(pixels) if digests is None else digests
        known = self.cache.get(self.identity, digests)
        seen = torch.tensor([digest in known for digest in digests.tolist()], dtype=torch.bool)
        missing = (~seen).nonzero().squeeze(1)
        fresh = self.computed(pixels.select(missing))
        self.cache.put(self.identity, digests[missing], fresh)
        found = torch.zeros(len(digests), self.dim)
        found[missing] = fresh
        if known:
            found[seen] = torch.stack([known[digest] for digest in digests[seen].tolist()])
        return found

    @torch.inference_mode()
    def computed(self, pixels: Pixels, padded: bool = True) -> Tensor:
        """Return the features of images, without the cache; not padded is for those that are only looked at."""
        device = next(self.net.parameters()).device
        found = [torch.zeros(0, self.dim)]
        for index in torch.arange(pixels.shape[0]).split(BATCH) if pixels.shape[0] else ():
            whole = torch.cat([index, index[-1:].expand(BATCH - len(index))]) if padded else index
            with torch.backends.cudnn.flags(deterministic=True, allow_tf32=False):  # a GPU's features are a CPU's
                z = self.net.features(self.prepare(pixels.fetch(whole).to(device)))
            found.append(z[: len(index)].float().cpu())
        return torch.cat(found).clone()


def identity_of(net: Network, prepare: Prepare) -> str:
    """Return a digest of all that a feature depends on beside the picture's pixels."""
    digest = hashlib.sha256(repr((VERSION, net.kinds[0], prepare)).encode())
    for name, value in net.state_dict().items():
        if not name.startswith("head."):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:32]


class FeatureCache:
    """Features by network and pixel digest, in files of a private folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.given = folder

    @property
    def folder(self) -> Path:
        return private("features") if self.given is None else self.given

    def get(self, identity: str, digests: Tensor) -> dict[int, Tensor]:
        """Return the features it holds of some pictures."""
        found: dict[int, Tensor] = {}
        with self._opened(identity) as file:
            for part in digests.split(ASKED) if file is not None else ():
                marks = ",".join("?" * len(part))
                query = f"SELECT digest, feature FROM features WHERE digest IN ({marks})"
                for digest, raw in file.execute(query, part.tolist()) if file is not None else ():
                    found[digest] = torch.from_numpy(np.frombuffer(raw, np.float32).copy())
        return found

    def put(self, identity: str, digests: Tensor, features: Tensor) -> None:
        """Keep features [N, D] of pictures."""
        rows = [(d, f.numpy().tobytes()) for d, f in zip(digests.tolist(), features, strict=True)]
        with self._opened(identity) as file:
            if file is not None:
                file.executemany("INSERT OR REPLACE INTO features VALUES (?, ?)", rows)

    def forget(self, digests: Tensor) -> None:
        """Take pictures' features out, of every network, and overwrite where they stood."""
        try:
            paths = sorted(self.folder.glob("*.features"))
        except OSError as error:
            log.info("there is no cache of features: %s", error)
            return
        for path in paths:
            with self._opened(path.stem) as file:
                if file is not None:
                    file.executemany("DELETE FROM features WHERE digest = ?", [(d,) for d in digests.tolist()])

    @contextmanager
    def _opened(self, identity: str) -> Iterator[sqlite3.Connection | None]:
        """Yield the file of a network, or None where it cannot be used."""
        file = None
        try:
            file = self._open(self.folder / f"{identity}.features")
            yield file
            file.commit()
        except (OSError, sqlite3.Error) as error:
            log.info("going on without a cache of features: %s", error)
            if file is None:
                yield None
        finally:
            if file is not None:
                file.close()

    def _open(self, path: Path) -> sqlite3.Connection:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        file = sqlite3.connect(path, timeout=10)
        try:
            file.execute("PRAGMA secure_delete = ON")
            file.execute("CREATE TABLE IF NOT EXISTS features (digest INTEGER PRIMARY KEY, feature BLOB)")
        except sqlite3.Error:
            file.close()
            raise
        return file
