"""Whether a store is in use, and taking it for oneself: the bytes of its ``lock`` file.

Byte 0 is a broker's and our writer's, 1 the indexer's, 2 that of the reader which keeps consumer
offsets. The locks belong to an open file where the kernel has such, so that closing another
descriptor of the file loses none.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pipeline.errors import StoreInUse

LOCK_FILE: Final = "lock"
CONTENT: Final = b"lock"
ROLES: Final = ("a writer or a broker", "an indexer", "a reader")
FLOCK: Final = "hhqqi4x"  # struct flock on 64-bit Linux: type, whence, start, length, pid


def is_in_use(store: Path) -> bool:
    """Return whether a writer, a broker or an indexer works on the store."""
    try:
        descriptor = os.open(store / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        asked = fcntl.fcntl(descriptor, fcntl.F_GETLK, _request(fcntl.F_WRLCK, 0, 2))
        return bool(struct.unpack(FLOCK, asked)[0] != fcntl.F_UNLCK)
    finally:
        os.close(descriptor)


@contextmanager
def stopped_store(store: Path) -> Iterator[None]:
    """Hold a store so that neither a broker nor a service of ours opens it meanwhile.

    Raises StoreInUse if one has it open; OSError if the directory cannot be written to.
    """
    descriptor = os.open(store / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        for position, holder in enumerate(ROLES):
            try:
                _lock(descriptor, position)
            except (BlockingIOError, PermissionError):
                raise StoreInUse(
                    f"{store} is in use by {holder}; stop it first, or work on a copy"
                ) from None
        if os.fstat(descriptor).st_size == 0:
            os.pwrite(descriptor, CONTENT, 0)
        yield
    finally:
        with suppress(OSError):
            os.close(descriptor)


def _lock(descriptor: int, position: int) -> None:
    request = _request(fcntl.F_WRLCK, position)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        fcntl.fcntl(descriptor, fcntl.F_SETLK, request)


def _request(kind: int, position: int, length: int = 1) -> bytes:
    return struct.pack(FLOCK, kind, os.SEEK_SET, position, length, 0)
