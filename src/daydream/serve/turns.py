"""Who may take much memory at once: a few decode, few of large pictures, and few run the network."""

import contextlib
import os
import threading
from collections.abc import Iterator

from PIL import Image

LARGE = 2**22
"""Pixels from which a picture is decoded alone: up to 12 bytes of memory each, so 800 MB for the largest."""
_small = threading.BoundedSemaphore(max(2, os.cpu_count() or 2))
_large = threading.Lock()
running = threading.BoundedSemaphore(2)
"""To be held while a network runs."""


@contextlib.contextmanager
def decoding(opened: Image.Image) -> Iterator[None]:
    """Wait for a turn to decode a picture that is opened."""
    with _large if opened.width * opened.height > LARGE else _small:
        yield
