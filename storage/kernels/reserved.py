"""Sets of property names that clients may not set, recognised in the bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from storage.format.properties import TRANSIENT_PREFIX
from storage.kernels.primitives.jit import inner, uintp
from storage.kernels.primitives.text import text_bytes
from storage.kernels.properties import matches

_TRANSIENT: Final = text_bytes(TRANSIENT_PREFIX)


def reserved_names(names: Iterable[str]) -> Callable[[Any, int, int], bool]:
    """Return a function for kernels: whether ``length`` bytes at ``position`` are one of ``names``.

    Names that begin like the store's transient ones count, too. What is compared are the names of
    the same length: those of length n are numbers ``first[n]`` to ``first[n + 1]``.
    """
    encoded = sorted((name.encode() for name in names), key=len)
    data_of_names = np.frombuffer(b"".join(encoded), np.uint8)
    lengths = np.array([len(name) for name in encoded], np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64)
    longest = int(lengths.max())
    first = np.searchsorted(lengths, np.arange(longest + 2)).astype(np.int64)

    @inner
    def is_reserved(data: Any, position: int, length: int) -> bool:
        if length <= longest:
            for i in range(first[uintp(length)], first[uintp(length + 1)]):
                start = starts[uintp(i)]
                equal = True
                for j in range(length):
                    if data[uintp(position + j)] != data_of_names[uintp(start + j)]:
                        equal = False
                        break
                if equal:
                    return True
        return length >= _TRANSIENT.size and matches(data, position, _TRANSIENT)

    return is_reserved
