"""Reading what nobody else may want, without pushing out of the page cache what others use.

The device is read past the page cache (``O_DIRECT``) where the file system can do that and position and
memory fit: then what is checked is what the device holds. Elsewhere the file is read as usual.
"""

from __future__ import annotations

import errno
import mmap
import os
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from storage.files.protocol import ByteArray

PAGE_SIZE: Final = mmap.PAGESIZE
_REFUSED: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT, errno.EACCES})


def aligned_array(size: int) -> ByteArray:
    """Return memory of whole pages that ``read_uncached`` can have the device fill."""
    return np.frombuffer(mmap.mmap(-1, -(-size // PAGE_SIZE) * PAGE_SIZE), np.uint8)


def read_uncached(descriptor: int, into: ByteArray, position: int) -> int:
    """Fill an array from a position of an open file; return how many bytes there were.

    The GIL is released meanwhile. Raises OSError.
    """
    if position % PAGE_SIZE == len(into) % PAGE_SIZE == into.ctypes.data % PAGE_SIZE == 0:
        try:
            return _read_device(descriptor, into, position)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
    return _fill(descriptor, into, position)


def _read_device(descriptor: int, into: ByteArray, position: int) -> int:
    # Opened again: the flag would change every read of the descriptor.
    direct = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        return _fill(direct, into, position)
    finally:
        os.close(direct)


def _fill(descriptor: int, into: ByteArray, position: int) -> int:
    view = memoryview(into)  # type: ignore[arg-type]
    done = 0
    while done < len(view):
        count = os.preadv(descriptor, [view[done:]], position + done)
        done += count
        if not count or done % PAGE_SIZE:
            break  # the end of the file
    return done
