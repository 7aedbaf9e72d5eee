"""Read a pickle without running what it may contain: each name in it is answered by a stand-in of ours, or refused.

A pickle names functions and calls them. Who reads a kind of file says which names it needs, and what stands for each:
a class that checks what it is given, and that a pickle cannot change (`__setstate__` is checked too, or None).
"""

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO

from daydream.errors import UserError

Admitted = Mapping[tuple[str, str], type]
"""What stands in for a name, by its module and itself."""


class Refused(pickle.UnpicklingError):
    """The file asks for something that its kind never needs."""


class Unpickler(pickle.Unpickler):
    """Admits containers, texts, numbers and what stands in for the names it is told of."""

    def __init__(self, file: BinaryIO, admitted: Admitted, encoding: str = "ASCII") -> None:
        super().__init__(file, encoding=encoding)
        self.admitted = admitted

    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in self.admitted:
            raise Refused(f"{module}.{name}")
        return self.admitted[module, name]


@contextmanager
def reading(name: str, never: str, damaged: str) -> Iterator[None]:
    """Tell in one line what is wrong with a file: it asks for what its kind never needs, or it is damaged."""
    try:
        yield
    except Refused as error:
        what = str(error).replace("\n", " ")
        raise UserError(f"{name} asks to load {what}, which {never}") from error
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise UserError(f"{name} {damaged}") from error
